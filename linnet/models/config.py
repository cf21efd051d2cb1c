"""ModelConfig: everything that defines a network, as plain values that convert to JSON and back.

    config = ModelConfig(d_model=256, n_layers=8, n_heads=8, mixer=("conv", "rebased"))
    ModelConfig.from_dict(config.to_dict()) == config

A hybrid is a list of mixers, repeated over the layers. Invalid values are refused here, before anything is built.
A file records the `config_version` it was written with; without one it is version 1. Mixers keep the defaults of that
version (VERSION_1), so that a model computes what it was trained to compute.
E = d_model model width, H = n_heads, D = key_dim width of q and k, V = head_dim width of v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..errors import brief, is_number, unknown, whole
from ..json_file import as_json
from ..layers import CAUSAL_ONLY, MIXERS, MLPS, NORMS
from ..layers.attention import head_width
from ..layers.block import PLACES
from ..layers.rope_scaling import check_scaling
from ..schema import Accepts, Flag, Number, Text

TASKS = ("language", "image", "speech", "classify", "forecast", "translate")
POSITIONS = ("none", "learned", "sinusoidal", "rotary")
HEADS = ("categorical", "mixture")
TYPES: dict[str, Accepts] = {name: Text() for name in ("task", "mlp", "norm", "norm_place", "positions", "head")}
TYPES |= {name: Flag() for name in ("causal", "bias", "tie_embeddings")}
TYPES |= {"norm_eps": Number(0), "init_std": Number(0), "dropout": Number(), "rotary_base": Number(0)}
MOST = 2**31 - 1  # limit of every size
VERSION = 2
VERSION_1: dict[str, dict[str, Any]] = {  # options of mixers whose defaults changed in version 2
    "delta": {"scale": 1.0},
    "gated_delta": {"scale": 1.0},
    "rwkv7": {"norm_eps": 1e-5},
}
LATER = (  # fields added later, None by default
    "attention_bias",
    "mlp_bias",
    "rotary_scaling",
    "rotary_fraction",
    "embed_norm",
    "rescale_every",
)
BILSTM = "bilstm"  # the recurrent baseline of the speech experiments: a complete network, not a mixer


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The hyperparameters of a model; see the comment next to each field."""

    task: str = "language"  # one of TASKS; selects the head
    d_model: int = 128
    n_layers: int = 4
    n_heads: int = 4
    n_kv_heads: int | None = None  # None: as many as n_heads
    head_dim: int | None = None  # None: d_model / n_heads
    key_dim: int | None = None  # None: head_dim; quadratic kernels use a small one (Based: 16)
    mixer: str | tuple[str, ...] = "elu"  # a name, or names repeated over the layers
    mixer_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # {"window": {"window": 128}}
    mlp: str = "gelu"
    d_ff: int | None = None  # None: 4 d_model
    norm: str = "layer"
    norm_place: str = "pre"
    norm_eps: float = 1e-5
    embed_norm: bool | None = None  # true: a norm of the embedding, before the first layer (RWKV)
    rescale_every: int | None = None  # of RWKV-4, see eps_at
    positions: str = "none"
    max_length: int = 1024  # of learned positions; the other kinds have no limit
    rotary_base: float = 10_000.0
    rotary_scaling: Mapping[str, Any] | None = None  # {"rope_type": "llama3", ...}: see layers/rope_scaling.py
    rotary_fraction: float | None = None  # of the numbers of a head, which rotary positions turn; None: all
    causal: bool = True
    dropout: float = 0.0
    bias: bool = True
    attention_bias: bool | None = None  # of the mixer's projections; None: same as `bias`
    mlp_bias: bool | None = None  # None: same as `bias`
    tie_embeddings: bool = True
    init_std: float = 0.02
    vocab_size: int = 256  # number of tokens, pixel values, phones including the blank, or classes
    input_dim: int = 0  # channels of a real-valued input; 0: the input is tokens
    output_dim: int = 0  # channels forecast
    horizon: int = 1  # steps forecast
    output_channels: tuple[int, ...] = ()  # inputs to forecast, as changes from their current value
    head: str = "categorical"  # of an image model: 256-way softmax, or "mixture" of logistics
    n_mixtures: int = 10
    n_encoder_layers: int = 0  # of a "translate" model
    source_vocab_size: int = 0  # source tokens; 0: same as vocab_size
    config_version: int = VERSION  # of the mixers' defaults

    def __post_init__(self) -> None:
        for name in ("mixer", "output_channels"):  # JSON has lists
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_types()
        for name, value, accepted in (
            ("task", self.task, TASKS),
            ("mlp", self.mlp, MLPS),
            ("norm", self.norm, tuple(NORMS)),
            ("norm_place", self.norm_place, PLACES),
            ("positions", self.positions, POSITIONS),
            ("head", self.head, HEADS),
        ):
            if value not in accepted:
                raise unknown(name, value, accepted)
        self._check_mixers()
        self._check_sizes()
        self._check_choices()

    def _check_types(self) -> None:
        """Raise ValueError for a value of the wrong type: the later checks rely on types."""
        for name, accepts in TYPES.items():
            if accepts.misfit(getattr(self, name)) is not None:
                raise ValueError(f"{name} is {brief(getattr(self, name))}; accepted: {accepts.words}")
        names = (self.mixer,) if isinstance(self.mixer, str) else self.mixer
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"mixer is {brief(self.mixer)}; accepted: a name or a list of names")
        options = self.mixer_options
        if not isinstance(options, Mapping) or not all(isinstance(inner, Mapping) for inner in options.values()):
            raise ValueError(f"mixer_options is {brief(options)}; accepted: options by the name of the mixer")
        if not isinstance(self.output_channels, tuple):
            raise ValueError(f"output_channels is {brief(self.output_channels)}; accepted: a list of channels")

    def _check_mixers(self) -> None:
        if not self.pattern:
            raise ValueError("mixer is an empty list; accepted: a name or a list of names such as ['conv', 'rebased']")
        accepted = (*MIXERS, BILSTM) if self.task == "speech" else MIXERS
        for name in self.pattern:
            if name not in accepted:
                raise unknown("mixer", name, accepted)
            if name in CAUSAL_ONLY and not self.causal:
                raise ValueError(
                    f"mixer {name!r} looks back only, but causal is False; use 'softmax' or a linear mixer"
                )
        if BILSTM in self.pattern and self.pattern != (BILSTM,):
            raise ValueError(f"mixer {self.mixer!r}: {BILSTM!r} is a complete network; accepted: {BILSTM!r} alone")
        for name in self.mixer_options:
            if name not in self.pattern:
                raise ValueError(f"mixer_options has {name!r}; accepted: options for the mixers {list(self.pattern)}")

    def _check_sizes(self) -> None:
        least = {"d_model": 1, "n_layers": 1, "n_heads": 1, "vocab_size": 1, "max_length": 1, "horizon": 1}
        least |= {"n_mixtures": 1, "input_dim": 0, "output_dim": 0, "n_encoder_layers": 0, "source_vocab_size": 0}
        least |= {name: 1 for name in ("n_kv_heads", "head_dim", "key_dim", "d_ff") if getattr(self, name) is not None}
        for name, low in least.items():
            value = getattr(self, name)
            whole(name, value, low, MOST)
        if self.output_channels and (
            len(self.output_channels) != (self.output_dim or self.input_dim)
            or not all(type(c) is int and 0 <= c < self.input_dim for c in self.output_channels)
        ):
            raise ValueError(
                f"output_channels is {self.output_channels}; accepted: (), or output_dim = "
                f"{self.output_dim or self.input_dim} numbers from 0 to {self.input_dim - 1}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout!r}; accepted: a number from 0 up to, not including, 1")
        if self.head_dim is None and BILSTM not in self.pattern:
            head_width(self.d_model, self.n_heads)
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads ({self.n_kv_heads}) must divide n_heads ({self.n_heads})")

    def _check_choices(self) -> None:
        for name, null in (("attention_bias", "that of bias"), ("mlp_bias", "that of bias"), ("embed_norm", "false")):
            if getattr(self, name) not in (None, True, False):
                raise ValueError(f"{name} is {getattr(self, name)!r}; accepted: true, false, or null for {null}")
        if self.rescale_every is not None:
            whole("rescale_every", self.rescale_every, 1, MOST, hint="null for never")
        if self.config_version not in range(1, VERSION + 1) or isinstance(self.config_version, bool):
            raise ValueError(
                f"config_version is {self.config_version!r}; accepted: 1 to {VERSION}; a newer one needs a newer linnet"
            )
        if self.rotary_scaling is not None:
            check_scaling(self.rotary_scaling, self.rotary_base)
            if self.positions != "rotary":
                raise ValueError(f"rotary_scaling is given, but positions is {self.positions!r}; accepted: 'rotary'")
        if self.rotary_fraction is not None and (
            not is_number(self.rotary_fraction) or not 0 < self.rotary_fraction <= 1
        ):
            raise ValueError(f"rotary_fraction is {self.rotary_fraction!r}; accepted: null, or a number from 0 to 1")

    def options_of(self, mixer: str) -> dict[str, Any]:
        """Return the options to build a mixer with: `mixer_options` over the defaults of this config_version."""
        old = VERSION_1.get(mixer, {}) if self.config_version == 1 else {}
        return {**old, **self.mixer_options.get(mixer, {})}

    @property
    def pattern(self) -> tuple[str, ...]:
        """The mixers that repeat over the layers."""
        return (self.mixer,) if isinstance(self.mixer, str) else tuple(self.mixer)

    @property
    def mixers(self) -> tuple[str, ...]:
        """The mixer of every layer."""
        return tuple(self.pattern[i % len(self.pattern)] for i in range(self.n_layers))

    def eps_at(self, layer: int) -> float:
        """Return the eps of the norms of a layer, or of the last norm for `n_layers`.

        Published RWKV-4 models halve their residual path, and all that is added to it, every `rescale_every` layers.
        Only the eps of the norms notices: for unscaled numbers it is four times as large from there on.
        """
        return self.norm_eps * 4.0 ** (layer // self.rescale_every if self.rescale_every else 0)

    @property
    def hidden(self) -> int:
        """Hidden width of the MLP."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def replace(self, **changes: Any) -> ModelConfig:
        """Return a copy with some fields changed."""
        names = [f.name for f in fields(self)]
        for name in changes:
            if name not in names:
                raise unknown("field of ModelConfig", name, names)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return as_json(asdict(self))

    def identity(self) -> dict[str, Any]:
        """Return `to_dict` without newer fields at their defaults, so that fingerprints of old files still match."""
        values = self.to_dict()
        if self.config_version == 1 or not set(VERSION_1).intersection(self.pattern):
            del values["config_version"]
        return {name: value for name, value in values.items() if name not in LATER or value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Build from the result of `to_dict`, also of an older version; raise ValueError for an unknown field."""
        return cls().replace(**{"config_version": 1, **values})
