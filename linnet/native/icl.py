"""In-context regression transformers in native code: answers, gradients, Jacobians and Adam (csrc/regress.h).

    gradient(source, p, q) -> Sums                  losses and gradients summed over the sequences
    answers(source, p, q), jacobian(source, p, q)   of stored sequences
    Adam(p, q).train(source, p, q, rates)           steps on fresh sequences, p and q changed in place

p, q float64: FULL [L,K,E,E], or [L,K,2], the x part and the y part of diagonal matrices; E = d + 1 for d features.
Sequences are sums S [E,E] with a target: Stored in memory, or Fresh from a stream of random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import gate, structs
from .call import Function
from .gate import T
from .library import library
from .memory import fresh as empty

GRADIENT, TRAIN = Function(structs.IclGradient), Function(structs.IclTrain)
ANSWERS, JACOBIAN = Function(structs.IclAnswers), Function(structs.IclJacobian)
TARGETS = ("query", "weights", "ridge", "posterior")  # in the order of csrc/icl_fields.h
ANY = 1e30  # larger losses, and NaN, are left out


@dataclass(frozen=True)
class Stored:
    """Sequences in memory: `data` [blocks, E(E+1)/2 + d, lanes], made by `pack`."""

    data: Tensor
    samples: int
    d: int


@dataclass(frozen=True)
class Fresh:
    """Sequences `first` to `first + samples` of the stream `seed`, drawn as they are needed."""

    d: int
    n: int
    samples: int
    sigma: Tensor  # [choices] float64, or [1], the top of a uniform distribution
    uniform: bool
    seed: int
    first: int = 0
    target: str = "posterior"  # one of TARGETS
    grid: Tensor | None = None  # [points] float64 of sigma, for the target "posterior"
    log_weight: Tensor | None = None
    augmented: int = 0  # every how many blocks one is drawn wider than the problem says
    augmented_x: float = 1.0  # inputs times this
    augmented_w: float = 1.0  # weights times this
    augmented_weight: float = 1.0  # and how much such a block counts in the gradient


class Sums(NamedTuple):
    loss: float
    left_out: int  # sequences whose loss was over the limit
    dp: Tensor
    dq: Tensor


def available() -> bool:
    return library() is not None


def pack(s: Tensor, target: Tensor, wide: bool) -> Stored:
    """Pack sums s [N,E,E] and targets [N,d] in the kernel's order; float64 when wide, else float32."""
    lib = library()
    assert lib is not None
    lanes = int(lib.linnet_icl_lanes(wide))
    width = s.shape[-1]
    rows, columns = torch.triu_indices(width, width)
    flat = torch.cat([s[:, rows, columns], target], dim=-1).to(torch.float64 if wide else torch.float32)
    flat = torch.nn.functional.pad(flat, (0, 0, 0, -len(flat) % lanes))
    return Stored(flat.view(-1, lanes, flat.shape[-1]).transpose(1, 2).contiguous(), len(s), width - 1)


def gradient(
    source: Stored | Fresh, p: Tensor, q: Tensor, *, threads: int = 1, limit: float = ANY, temper: float = 0.0
) -> Sums:
    """Return losses and gradients, summed. temper: where a loss is above it, the gradient is that of its logarithm."""
    dp, dq, loss = _zeros(p.shape), _zeros(q.shape), _zeros((2,))
    sizes = _sizes(source, p, q, threads)
    stored, fresh = (source, None) if isinstance(source, Stored) else (None, source)
    if stored is None or stored.samples:  # otherwise every sum is 0
        GRADIENT.call(
            dp=dp, dq=dq, loss=loss, p=_doubles(p), q=_doubles(q), **sizes, **_stored(stored), **_fresh(fresh),
            limit=limit, temper=temper,
        )  # fmt: skip
    return Sums(float(loss[0]), int(loss[1]), dp, dq)


def answers(source: Stored, p: Tensor, q: Tensor, *, threads: int = 1) -> Tensor:
    """Return w [N,d]."""
    return _read(ANSWERS, source, p, q, source.d, threads)


def jacobian(source: Stored, p: Tensor, q: Tensor, *, threads: int = 1) -> tuple[Tensor, Tensor]:
    """Return w [N,d] and dw/d(matrix entries) [N,d,M]: M = 2 L K E² of P and Q, or 4 L of omega for diagonal models."""
    entries = 4 * p.shape[0] if p.dim() == 3 else 2 * p.numel()
    flat = _read(JACOBIAN, source, p, q, source.d * (1 + entries), threads)
    return flat[:, : source.d], flat[:, source.d :].view(-1, source.d, entries)


def _read(function: Function, source: Stored, p: Tensor, q: Tensor, outputs: int, threads: int) -> Tensor:
    """Return `outputs` numbers of every stored sequence, [N,outputs]."""
    blocks, _, lanes = source.data.shape
    out = empty(blocks, outputs, lanes, dtype=source.data.dtype)
    sizes = _sizes(source, p, q, threads)
    if source.samples:
        function.call(out=out, p=_doubles(p), q=_doubles(q), outputs=outputs, **sizes, **_stored(source))
    return out.transpose(1, 2).reshape(-1, outputs)[: source.samples]


class Adam:
    """Adam's averages for p and q, and how many steps they have seen; `frozen` parameters stay as they are."""

    def __init__(self, p: Tensor, q: Tensor, frozen: Tensor | None = None, beta2: float = 0.999) -> None:
        self.m, self.v = (_zeros((p.numel() + q.numel(),)) for _ in range(2))
        self.frozen, self.beta2, self.done = frozen, beta2, 0

    def train(
        self,
        source: Fresh,
        p: Tensor,
        q: Tensor,
        rates: Tensor,
        *,
        threads: int = 1,
        temper: float = 0,
        clip: float = 0,
    ) -> tuple[Tensor, int]:
        """Step once for each learning rate, in place; return losses [steps] (NaN: step skipped) and left out."""
        curve, loss = empty(len(rates), dtype=torch.float64), _zeros((2,))
        sizes, new_p, new_q = _sizes(source, p, q, threads), _doubles(p), _doubles(q)
        frozen = None if self.frozen is None else self.frozen.detach()
        if frozen is not None:
            frozen = gate.dense(frozen, torch.bool if frozen.dtype == torch.bool else torch.uint8)
        TRAIN.call(
            p=new_p, q=new_q, dp=_zeros(p.shape), dq=_zeros(q.shape), loss=loss, m=self.m, v=self.v, curve=curve,
            rate=_doubles(rates), frozen=frozen, **sizes, steps=len(rates), done=self.done, **_fresh(source),
            limit=ANY, temper=temper, beta1=0.9, beta2=self.beta2, eps=1e-8, clip=clip,
        )  # fmt: skip
        self.done += len(rates)
        with torch.no_grad():  # where p and q do not lie as the kernel reads them, a copy was trained
            p.copy_(new_p)
            q.copy_(new_q)
        return curve, int(loss[1])


def _sizes(source: Stored | Fresh, p: Tensor, q: Tensor, threads: int) -> dict[str, int]:
    """Return the sizes that every call takes, or raise ValueError for matrices of another shape or dtype."""
    width = source.d + 1
    wanted = (*p.shape[:2], *((2,) if p.dim() == 3 else (width, width)))
    if not p.shape == q.shape == wanted or p.dtype != torch.float64 or q.dtype != torch.float64:
        got = f"p {p.dtype} {list(p.shape)} and q {q.dtype} {list(q.shape)}"
        raise ValueError(f"{got}; accepted: float64 of shape {list(wanted)} both, for {source.d} features")
    rows, cols = (2, 1) if p.dim() == 3 else (width, width)
    sizes = {"L": p.shape[0], "K": p.shape[1], "E": width, "p_rows": rows, "p_cols": cols}
    return sizes | {"samples": source.samples, "threads": threads}


def _stored(source: Stored | None) -> dict[str, Any]:
    """Return the fields of stored sequences; None: there are none."""
    if source is None:
        return {"data": None, "blocks": 0, "packed": 0, "lanes": 0, "wide": False}
    blocks, packed, lanes = source.data.shape
    wide = source.data.dtype == torch.float64
    data = gate.dense(source.data, torch.float64 if wide else torch.float32).detach()
    return {"data": data, "blocks": blocks, "packed": packed, "lanes": lanes, "wide": wide}


def _fresh(source: Fresh | None) -> dict[str, Any]:
    """Return the fields of fresh sequences; None: there are none, and the target is the stored one."""
    if source is None:
        source = Fresh(0, 1, 0, empty(0, dtype=torch.float64), True, 0, target="weights")
    return {
        "sigma": _doubles(source.sigma), "grid": _doubles(source.grid), "log_weight": _doubles(source.log_weight),
        "n": source.n, "choices": source.sigma.numel(), "uniform": source.uniform,
        "points": 0 if source.grid is None else source.grid.numel(), "seed": source.seed, "first": source.first,
        "target": TARGETS.index(source.target), "augmented": source.augmented, "augmented_x": source.augmented_x,
        "augmented_w": source.augmented_w, "augmented_weight": source.augmented_weight,
    }  # fmt: skip


def _doubles(x: T) -> T:
    return None if x is None else gate.dense(x, torch.float64).detach()


def _zeros(shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64, device=gate.CPU)
