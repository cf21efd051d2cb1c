"""The runs that compare language models on a text: a configuration for each row, and the plan they come from.

    model    a short convolution and the mixer under test, twice, with MLPs; kernels with D^2 features have narrow keys
    data     every mixer sees the same windows in the same order at the same seed

A folder holds one comparison: rows may differ only in mixer, learning rate and seed (`settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ...errors import unknown
from ...models import ModelConfig
from ...train import TrainConfig
from .language_text import BYTES, Text, called, files_of

EXPERIMENT = "recall-text"
NARROW = ("based", "taylor", "taylor_full", "zero_floor", "rebased", "polynomial")  # kernels with D^2 features


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """One model on one text; its dict is the key of its row."""

    mixer: str = "rebased"
    text: str = ""  # its name in tables
    data: str = ""  # fingerprint of the text, its tokens and the held-out part
    vocab_size: int = 2048  # 256: bytes; more: a byte-level BPE of that size
    rare: float = 0.5  # share of the training text that counts as rare bigrams
    seq_len: int = 256
    d_model: int = 128
    n_layers: int = 4  # half of them are convolutions
    n_heads: int = 4
    key_dim: int = 16  # for kernels with D^2 features; other keys are as wide as the values
    steps: int = 600
    batch_size: int = 16
    lr: float = 3e-3
    weight_decay: float = 0.1
    chosen_on: int = 64  # held-out windows that only choose the learning rate
    windows: int = 512  # at most this many held-out windows after them for the results
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("vocab_size", BYTES), ("n_layers", 2), ("chosen_on", 1), ("windows", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)!r}; accepted: a whole number, {low} or more")
        if not 0 < self.rare <= 1:
            raise ValueError(f"rare is {self.rare!r}; accepted: a number above 0, up to 1, the share of rare bigrams")
        self.model(self.vocab_size)
        self.training()

    def replace(self, **changes: Any) -> TextConfig:
        names = [f.name for f in fields(self)]
        for name in changes:
            if name not in names:
                raise unknown("field of TextConfig", name, names)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return {"experiment": EXPERIMENT, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TextConfig:
        return cls().replace(**{name: value for name, value in values.items() if name != "experiment"})

    def settings(self) -> dict[str, Any]:
        """Return what the rows of one comparison have in common."""
        return {name: value for name, value in asdict(self).items() if name not in ("mixer", "lr", "seed")}

    def model(self, vocab_size: int) -> ModelConfig:
        return ModelConfig(
            mixer=("conv", self.mixer),
            config_version=1,  # the mixer defaults with which the committed rows were measured
            n_layers=self.n_layers,
            d_model=self.d_model,
            n_heads=self.n_heads,
            key_dim=self.key_dim if self.mixer in NARROW else None,
            vocab_size=vocab_size,
        )

    def training(self) -> TrainConfig:
        return TrainConfig(
            steps=self.steps,
            batch_size=self.batch_size,
            lr=self.lr,
            warmup=self.steps // 20,
            betas=(0.9, 0.98),
            weight_decay=self.weight_decay,
            seed=self.seed,
            log_every=self.steps,
            autocast="none",
        )


@dataclass(frozen=True)
class Unit:
    """One run, in a form that can be sent to another process."""

    config: TextConfig
    text: Text

    def __str__(self) -> str:
        return f"{self.config.mixer} on {self.config.text}, rate {self.config.lr:g}, seed {self.config.seed}"

    def missing(self) -> list[dict[str, Any]]:
        return [self.config.to_dict()]


@dataclass(frozen=True)
class Plan:
    """The requested runs; wrong values are refused before anything runs."""

    text: tuple[str, ...] = ("auto",)
    mixers: tuple[str, ...] = ("softmax", "based", "rebased")
    rates: tuple[float, ...] = (3e-3,)
    seeds: int = 3
    base: TextConfig = field(default_factory=TextConfig)

    def __post_init__(self) -> None:
        for name in ("mixers", "rates"):
            if not getattr(self, name):
                raise ValueError(f"{name} has no value; give one or more")
        if self.seeds < 1:
            raise ValueError(f"seeds is {self.seeds}; accepted: 1 or more")
        files_of(self.text)
        self.configs()

    @property
    def name(self) -> str:
        """Return the name of the text."""
        return called(self.text)

    def configs(self) -> list[TextConfig]:
        """Return every mixer at every rate with every seed, the slowest first."""
        configs = [
            self.base.replace(mixer=mixer, lr=rate, seed=seed)
            for seed in range(self.seeds)
            for rate in dict.fromkeys(self.rates)
            for mixer in dict.fromkeys(self.mixers)
        ]
        return sorted(configs, key=lambda config: -cost(config.to_dict()))

    def units(self, text: Text) -> list[Unit]:
        """Return one unit per configuration, for a tokenized text."""
        held = text.windows("valid", self.base.seq_len)
        if held.length <= self.base.chosen_on:
            raise ValueError(
                f"{self.name} has {held.length} held-out windows of {self.base.seq_len} tokens; accepted: more than "
                f"chosen_on ({self.base.chosen_on}); use a longer text or a shorter seq_len"
            )
        return [Unit(config.replace(text=self.name, data=held.fingerprint), text) for config in self.configs()]


def cost(config: Mapping[str, Any]) -> float:
    """Return the relative duration of a run."""
    tokens = float(config["steps"] * config["batch_size"] * config["seq_len"])
    return tokens * config["d_model"] * config["n_layers"] * (1.5 if config["mixer"] == "softmax" else 1.0)


# Fields of a Plan, of its base under "base". "smoke" needs neither the data folder nor the package tokenizers.
BUDGETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "text": ("shipped",),
        "seeds": 1,
        "base": {"vocab_size": BYTES, "seq_len": 32, "d_model": 16, "n_heads": 2, "key_dim": 4, "n_layers": 2}
        | {"steps": 3, "batch_size": 4, "chosen_on": 2, "windows": 8},
    },
    "quick": {"base": {}},
    "hour": {"rates": (1e-3, 3e-3), "seeds": 5, "base": {}},
}


def make_plan(budget: str, base: Mapping[str, Any], **changes: Any) -> Plan:
    """Return the plan of a budget with these values replaced."""
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)
    values = dict(BUDGETS[budget])
    config = TextConfig(**{**values.pop("base"), **base})
    return Plan(**{**values, **changes}, base=config)
