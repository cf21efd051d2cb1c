"""In-context regression transformers in native code: answers, gradients, Jacobians and Adam (csrc/regress.h).

    gradient(source, p, q) -> Sums                  losses and gradients added up over the sequences
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

from . import gate
from .library import ICL, STATUS, library
from .memory import fresh as empty

TARGETS = ("query", "weights", "ridge", "posterior")  # in the order of csrc/linnet.h
GRADIENT, ANSWERS, JACOBIAN, TRAIN = range(4)
ANY = 1e30  # larger losses, and those that are no number, are left out


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
    wild: int = 0  # every how many blocks one is drawn wider than the problem says
    wild_x: float = 1.0  # inputs times this
    wild_w: float = 1.0  # weights times this
    wild_weight: float = 1.0  # and how much such a block counts in the gradient


class Sums(NamedTuple):
    loss: float
    left_out: int  # sequences whose loss was over the limit
    dp: Tensor
    dq: Tensor


def available() -> bool:
    return library() is not None


def pack(s: Tensor, target: Tensor, wide: bool) -> Stored:
    """Sums s [N,E,E] and targets [N,d] in the kernel's order; float64 when wide, else float32."""
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
    """Losses and gradients, added up. temper: where a loss is over it, the gradient is that of its logarithm."""
    dp, dq, loss = _zeros(p.shape), _zeros(q.shape), _zeros((2,))
    _call(source, GRADIENT, {"p": p, "q": q, "dp": dp, "dq": dq, "loss": loss}, threads, limit=limit, temper=temper)
    return Sums(float(loss[0]), int(loss[1]), dp, dq)


def answers(source: Stored, p: Tensor, q: Tensor, *, threads: int = 1) -> Tensor:
    """w [N,d]."""
    blocks, _, lanes = source.data.shape
    out = empty(blocks, source.d, lanes, dtype=source.data.dtype)
    _call(source, ANSWERS, {"p": p, "q": q, "out": out}, threads)
    return out.transpose(1, 2).reshape(-1, source.d)[: source.samples]


def jacobian(source: Stored, p: Tensor, q: Tensor, *, threads: int = 1) -> tuple[Tensor, Tensor]:
    """w [N,d] and dw/d(matrix entries) [N,d,M]: M = 2 L K E² of P and Q, or 4 L of omega for diagonal models."""
    blocks, _, lanes = source.data.shape
    entries = 4 * p.shape[0] if p.dim() == 3 else 2 * p.numel()
    out = empty(blocks, source.d * (1 + entries), lanes, dtype=source.data.dtype)
    _call(source, JACOBIAN, {"p": p, "q": q, "out": out}, threads)
    flat = out.transpose(1, 2).reshape(-1, source.d * (1 + entries))[: source.samples]
    return flat[:, : source.d], flat[:, source.d :].view(-1, source.d, entries)


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
        """A step for each learning rate, p and q changed in place -> losses [steps] (NaN: step skipped), left out."""
        curve, loss = empty(len(rates), dtype=torch.float64), _zeros((2,))
        tensors = {"p": p, "q": q, "dp": _zeros(p.shape), "dq": _zeros(q.shape), "loss": loss}
        tensors |= {"m": self.m, "v": self.v, "rate": rates, "curve": curve}
        if self.frozen is not None:
            tensors["frozen"] = self.frozen
        steps: dict[str, Any] = {"steps": len(rates), "done": self.done, "beta2": self.beta2}
        _call(source, TRAIN, tensors, threads, temper=temper, clip=clip, **steps)
        self.done += len(rates)
        for to, trained in zip((p, q), (tensors["p"], tensors["q"]), strict=True):
            if to is not trained:  # they did not lie as the kernel wants them
                with torch.no_grad():
                    to.copy_(trained)
        return curve, int(loss[1])


POINTERS = "dp dq loss out p q data sigma grid log_weight m v rate curve frozen".split()
IN_PLACE = ("dp", "dq", "loss", "out", "m", "v", "curve")  # written: made here, as the kernel wants them


def _call(
    source: Stored | Fresh, mode: int, tensors: dict[str, Tensor], threads: int, *,
    limit: float = ANY, temper: float = 0.0, clip: float = 0.0, steps: int = 0, done: int = 0, beta2: float = 0.999,
) -> None:  # fmt: skip
    """Make the call; `tensors` are replaced by what the kernel has read and, of p and q in training, written."""
    lib = library()
    assert lib is not None
    p, q, width = tensors["p"], tensors["q"], source.d + 1
    wanted = (*p.shape[:2], *((2,) if p.dim() == 3 else (width, width)))
    if not p.shape == q.shape == wanted or p.dtype != torch.float64 or q.dtype != torch.float64:
        got = f"p {p.dtype} {list(p.shape)} and q {q.dtype} {list(q.shape)}"
        raise ValueError(f"{got}; accepted: float64 of shape {list(wanted)} both, for {source.d} features")
    if isinstance(source, Stored) and source.samples == 0 and mode != TRAIN:
        return  # every sum is 0, and there are no answers
    if isinstance(source, Fresh):
        fresh, wide, target = source, False, TARGETS.index(source.target)
        given = {"sigma": source.sigma, "grid": source.grid, "log_weight": source.log_weight}
        tensors |= {name: x for name, x in given.items() if x is not None}
    else:
        fresh, wide, target = Fresh(source.d, 1, source.samples, empty(0), True, 0), _wide(source), 1
        tensors |= {"data": source.data}
    for name, x in tensors.items():
        if name not in IN_PLACE:
            tensors[name] = gate.dense(x, _dtype(name, x, wide)).detach()
    points = fresh.grid.numel() if fresh.grid is not None else 0
    if gate.CHECK:
        _verify(tensors, p.shape, fresh, mode, wide, steps, points)
    call = ICL.pack(
        *gate.addresses([tensors.get(name) for name in POINTERS]),
        *(p.shape[0], p.shape[1], width, fresh.n, fresh.samples, 0 if fresh.uniform else fresh.sigma.numel(), points),
        *(fresh.seed, fresh.first, target, p.dim() == 3, wide, mode, threads, steps, done, fresh.wild),
        *(limit, temper, fresh.wild_x, fresh.wild_w, fresh.wild_weight, 0.9, beta2, 1e-8, clip),
    )
    status = lib.linnet_run_icl(call)
    if status:
        raise RuntimeError(f"linnet_run_icl refused the call: {STATUS.get(status, status)}")


def _dtype(name: str, x: Tensor, wide: bool) -> torch.dtype:
    if name == "frozen":
        return torch.bool if x.dtype == torch.bool else torch.uint8
    return torch.float64 if wide or name != "data" else torch.float32


def _verify(
    tensors: dict[str, Tensor], shape: torch.Size, fresh: Fresh, mode: int, wide: bool, steps: int, points: int
) -> None:
    """For LINNET_CHECK: every tensor of linnet_icl is as long as its sizes say."""
    lib = library()
    assert lib is not None
    lanes, d, E, M = int(lib.linnet_icl_lanes(wide)), fresh.d, fresh.d + 1, shape.numel()
    blocks, entries = -(-fresh.samples // lanes), 4 * shape[0] if len(shape) == 3 else 2 * M
    out = d if mode == ANSWERS else d * (1 + entries)
    extents: dict[str, tuple[int, ...]] = dict.fromkeys(("p", "q", "dp", "dq"), (*shape,)) | {
        "loss": (2,), "out": (blocks, out, lanes), "data": (blocks, E * (E + 1) // 2 + d, lanes),
        "sigma": (fresh.sigma.numel(),), "grid": (points,), "log_weight": (points,), "m": (2 * M,),
        "v": (2 * M,), "rate": (steps,), "curve": (steps,), "frozen": (2 * M,),
    }  # fmt: skip
    for name, x in tensors.items():
        dtype = torch.float64 if name not in ("out", "data", "frozen") else x.dtype
        if name in ("out", "data"):
            dtype = torch.float64 if wide else torch.float32
        gate.verify(f"linnet_run_icl: {name}", x, extents[name], dtype)


def _zeros(shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64, device=gate.CPU)


def _wide(source: Stored) -> bool:
    return source.data.dtype == torch.float64
