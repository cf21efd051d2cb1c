"""The in-context regression transformer: attention without softmax, feature map, MLP or norm, read as an optimiser.

    tokens e_i = (x_i, y_i), i = 1..n; the query is (x_t, 0)                              E = d + 1
    e_i <- e_i + sum_k sum_{j<=n} (e_jᵀ Q_k e_i) P_k e_j  =  (I + G) e_i,  G = sum_k P_k S Q_k,  S = sum_{j<=n} e_j e_jᵀ
    the prediction is minus the last number of the query token

    FULL   P, Q [E,E] free         DIAG   P = diag(p_x I, p_y), Q = diag(q_x I, q_y)        GD++   DIAG with q_y = 0

Vladymyrov et al. 2024 (arXiv:2402.14180). The Gram form needs S alone: S <- (I+G) S (I+G)ᵀ, and the answer to a query
x_t is <w, x_t> with w = -(last row of the product of all I + G)[:d], whatever the depth.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import brief, unknown, whole
from ..json_file import parse_json
from ..models.tensor_file import VERSIONS, note_if_plain, read_tensors, unsealed, write_sealed

KINDS = ("full", "diag", "gd++")
FORMAT = "linnet-icl"
INIT_SCALE = 0.002  # of the authors' earlier code: variance 0.002 / layers per input


@dataclass(frozen=True)
class ICLConfig:
    """Configuration; `n` is the number of examples the weights were trained for (see `ICLTransformer.weights`)."""

    kind: str = "full"
    layers: int = 4
    d: int = 10
    n: int = 20
    heads: int = 1
    made: dict[str, Any] = field(default_factory=dict)  # how it was trained: noise, recipe, seed, loss

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of model", self.kind, KINDS)
        for name in ("layers", "d", "n", "heads"):
            whole(name, getattr(self, name), 1)
        if not isinstance(self.made, dict):
            raise ValueError(f"made is {self.made!r}; accepted: names and values, such as {{'noise': 'U5'}}")

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of p and q: [layers, heads, ...]."""
        lead = (self.layers, self.heads)
        if self.kind == "full":
            return (*lead, self.d + 1, self.d + 1), (*lead, self.d + 1, self.d + 1)
        return (*lead, 2), (*lead, 2 if self.kind == "diag" else 1)


class ICLTransformer(nn.Module):
    """`p`, `q`: FULL [L,K,E,E]; DIAG [L,K,2] (x part, y part); GD++ q [L,K,1]. float64 by default."""

    def __init__(
        self, config: ICLConfig, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        self.config = config
        std = (INIT_SCALE / config.layers / (config.d + 1)) ** 0.5
        for name, shape in zip("pq", config.shapes, strict=True):
            value = torch.randn(shape, generator=generator, dtype=dtype) * std
            self.register_parameter(name, nn.Parameter(value))

    p: nn.Parameter
    q: nn.Parameter

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Return P, Q [L,K,E,E] for any kind."""
        if self.config.kind == "full":
            return self.p, self.q
        return diagonal(self.p, self.config.d), diagonal(self.q, self.config.d)

    def omega(self) -> Tensor:
        """Return [L,2,2] of DIAG and GD++: [[xx, xy], [yx, yy]], sums over heads of p_row q_column."""
        if self.config.kind == "full":
            raise ValueError("a FULL model has no omegas; linnet.labs.icl.nearest_diag gives the nearest ones")
        q = self.q if self.config.kind == "diag" else torch.cat([self.q, torch.zeros_like(self.q)], dim=-1)
        return torch.einsum("lki,lkj->lij", self.p, q)

    def tokens(self, x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        """Return every token before the first and after each layer, [L+1,B,n+m,E]: the form of the paper.

        x [B,n,d], y [B,n], query [B,m,d].
        """
        self._check_tokens(x, y, query)
        n = x.shape[-2]
        e = torch.cat([torch.cat([x, query], -2), torch.cat([y, y.new_zeros(query.shape[:-1])], -1).unsqueeze(-1)], -1)
        states = [e]
        for p, q in zip(*self.matrices(), strict=True):
            context = e[..., :n, :]
            change = [(e @ q_k.mT @ context.mT) @ context @ p_k.mT for p_k, q_k in zip(p, q, strict=True)]
            e = e + sum(change)
            states.append(e)
        return torch.stack(states)

    def _check_tokens(self, x: Tensor, y: Tensor, query: Tensor) -> None:
        d = self.config.d
        valid = x.dim() >= 2 and query.dim() == x.dim() and y.shape == x.shape[:-1] and x.shape[-2] >= 1
        if not (valid and x.shape[-1] == query.shape[-1] == d and x.shape[:-2] == query.shape[:-2]):
            raise ValueError(
                f"x is {list(x.shape)}, y {list(y.shape)} and the query {list(query.shape)}; accepted: x [B,n,{d}], "
                f"y [B,n] and query [B,m,{d}], n of 1 or more"
            )
        if not all(bool(torch.isfinite(value).all()) for value in (x, y, query)):
            raise ValueError("x, y or the query holds NaN or infinity; leave such examples out or fill them in first")

    def forward(self, x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        """Return answers [B,m] to the queries [B,m,d], computed on tokens."""
        return -self.tokens(x, y, query)[-1, ..., x.shape[-2] :, -1]

    def maps(self, s: Tensor, count: Tensor | int | None = None) -> Tensor:
        """Return G of every layer, [L,...,E,E], from the sums s [...,E,E] of the examples."""
        if s.dim() < 2 or s.shape[-1] != s.shape[-2]:
            raise ValueError(f"the sums are {list(s.shape)}; accepted: [...,E,E], E = d + 1, such as Gram.s")
        if s.shape[-1] != self.config.d + 1:
            raise ValueError(f"the sums are of {s.shape[-1] - 1} features; this model has d = {self.config.d}")
        if s.dtype != self.p.dtype:
            raise ValueError(f"the sums are {s.dtype} and the weights {self.p.dtype}; make them the same with .to")
        if count is not None:
            if bool((torch.as_tensor(count) <= 0).any()):
                raise ValueError(f"the count is {count}; accepted: more than 0 examples")
            s = s * (self.config.n / torch.as_tensor(count, dtype=s.dtype, device=s.device))[..., None, None]
        return layer_maps(s, *self.matrices())

    def weights(self, s: Tensor, count: Tensor | int | None = None, layerwise: bool = False) -> Tensor:
        """Return w [...,d] with answer <w, x_t> from the sums s [...,E,E]; layerwise [L+1,...,d], starting with w = 0.

        The model's weights are for config.n examples, as in the paper. If `count` is given, s is scaled by
        config.n / count, a 1/n in the attention, so that any number of examples works.
        """
        g = self.maps(s, count)
        if layerwise:
            t = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device).expand(s.shape)
            rows = [t[..., -1, :-1]]
            for g_l in g:
                t = t + g_l @ t
                rows.append(t[..., -1, :-1])
            return -torch.stack(rows)
        return answer(g)

    def parameter_count(self) -> int:
        return self.p.numel() + self.q.numel()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, atomically, with the configuration and a checksum in the header."""
        header = {"format": FORMAT, "config": json.dumps(asdict(self.config), sort_keys=True)}
        tensors = {"p": self.p.detach().contiguous(), "q": self.q.detach().contiguous()}
        write_sealed(path, tensors, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ICLTransformer:
        """Load a model that `save` wrote; raise ValueError for any other file."""
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"{path} is not a file; accepted: a model that linnet icl wrote")
        header, tensors = read_tensors(path)
        config = _read_config(path, header)
        tensors = unsealed(path, header, tensors)
        wanted = dict(zip("pq", config.shapes, strict=True))
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        if shapes != wanted:
            raise ValueError(f"{path} holds {shapes} and its configuration wants {wanted}; copy it again")
        if {value.dtype for value in tensors.values()} not in ({torch.float32}, {torch.float64}):
            types = sorted(str(value.dtype) for value in tensors.values())
            raise ValueError(f"{path} holds {' and '.join(types)}; accepted: both float32 or both float64")
        if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
            raise ValueError(f"{path} holds NaN or infinity in its weights; train it again")
        model = cls(config, torch.Generator(), tensors["p"].dtype)  # leaves torch's global generator alone
        model.load_state_dict(tensors)
        note_if_plain(path, header)
        return model


def diagonal(value: Tensor, d: int) -> Tensor:
    """Return diag(x, .., x, y) [...,E,E] of [...,2], or with y = 0 of [...,1]."""
    y = value[..., 1:] if value.shape[-1] == 2 else torch.zeros_like(value)
    return torch.diag_embed(torch.cat([value[..., :1].expand(*value.shape[:-1], d), y], dim=-1))


def layer_maps(s: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Return G of every layer, [L,...,E,E], from sums [...,E,E] and matrices P, Q [L,K,E,E]."""
    eye = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
    maps = []
    for p_l, q_l in zip(p, q, strict=True):
        g = (p_l @ s.unsqueeze(-3) @ q_l).sum(-3)
        maps.append(g)
        s = (eye + g) @ s @ (eye + g).mT
    return torch.stack(maps)


def answer(g: Tensor) -> Tensor:
    """Return w [...,d] from G of every layer: minus the last row of the product of all I + G, last layer first."""
    v = torch.eye(g.shape[-1], dtype=g.dtype, device=g.device)[-1].expand(*g.shape[1:-1])
    for g_l in reversed(g.unbind(0)):
        v = v + (v.unsqueeze(-2) @ g_l).squeeze(-2)
    return -v[..., :-1]


def _read_config(path: Path, header: Mapping[str, str]) -> ICLConfig:
    if header.get("format") != FORMAT:
        kind = header.get("format", "unknown")
        raise ValueError(f"{path} is a file of format {brief(kind)}, not {FORMAT!r}; accepted: a model of linnet icl")
    if header.get("version") not in VERSIONS:
        version, read = header.get("version"), " and ".join(VERSIONS)
        raise ValueError(f"{path} has version {brief(version)} and this linnet reads {read}; update linnet")
    try:
        values = parse_json(header["config"], "the header's config", "copy it again")
        known = {one.name for one in fields(ICLConfig)}
        if not isinstance(values, dict) or not known >= set(values):
            raise ValueError(f"fields {sorted(values)}")
        return ICLConfig(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has a damaged configuration ({error}); copy it again") from None
