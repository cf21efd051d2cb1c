"""Row by row through the native library: norms, activations, rotation, cross entropy, convolution; no autograd here.

Every function is one sweep over contiguous float32 rows on the cpu, with the same bits on any number of threads. Rows
come as the gate makes them (`gate.dense`); weights and biases may lie anyhow. Shapes, and targets below the vocabulary,
are checked by the caller, `ops`; LINNET_CHECK=1 verifies what every call says of its tensors.
R rows, N columns of a row, D width of a head, P rows of the table of a rotation, K taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import gate
from .library import ROWS, STATUS, library
from .memory import empty

NORM, NORM_BACKWARD, ACTIVATION, ACTIVATION_BACKWARD, ROTATE, CROSS_ENTROPY, COLUMN_SUMS, TAPS, TAPS_BACKWARD = range(9)
TENSORS = ("out", "out2", "sum", "sum2", "x", "y", "weight", "bias", "stat", "index")
SIZES = ("width", "period", "first", "x_stride", "out_stride", "kind")
WEIGHT, BIAS, STAT = 6, 7, 8  # in TENSORS: what comes from outside as it lies
EXTENTS = {  # what a function reads and writes: R rows, N columns, W = N or 2 N of swiglu, K taps, P by h of a table
    NORM: {"out": "RN", "out2": "R2", "x": "RN", "weight": "N", "bias": "N"},
    NORM_BACKWARD: {"out": "RN", "sum": "N", "sum2": "N", "x": "RN", "y": "RN", "weight": "N", "stat": "R2"},
    ACTIVATION: {"out": "RN", "out2": "RW", "bias": "W"},
    ACTIVATION_BACKWARD: {"out": "RW", "out2": "RN", "sum": "W", "x": "RW", "y": "RN"},
    ROTATE: {"out": "RN", "x": "RN", "weight": "Ph", "bias": "Ph"},
    CROSS_ENTROPY: {"out": "RN", "out2": "R", "index": "R"},
    COLUMN_SUMS: {"sum": "N", "x": "RN"},
    TAPS: {"out": "RN", "x": "RN", "y": "RN", "weight": "KN", "bias": "N"},
    TAPS_BACKWARD: {
        "out": "RN", "out2": "RN", "sum": "KN", "sum2": "N", "x": "RN", "y": "RN", "weight": "KN", "bias": "N",
        "stat": "RN",
    },
}  # fmt: skip
ACTIVATIONS = {"relu": 0, "gelu": 1, "swiglu": 2}


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, rms: bool) -> tuple[Tensor, Tensor]:
    """y [R,N], and mean and 1 / deviation of every row, [R,2]."""
    out, stat = empty(*x.shape), x.new_empty((x.shape[0], 2))
    _run(NORM, x.shape[0], x.shape[1], out=out, out2=stat, x=x, weight=weight, bias=bias, kind=rms, eps=eps)
    return out, stat


def norm_backward(
    g: Tensor, x: Tensor, weight: Tensor | None, stat: Tensor, rms: bool, with_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """dx [R,N], dweight [N] unless there is no weight, dbias [N] when asked for."""
    dx, dweight = empty(*x.shape), None if weight is None else x.new_zeros(x.shape[1])
    dbias = x.new_zeros(x.shape[1]) if with_bias else None
    given = {"x": x, "y": g, "weight": weight, "stat": stat}
    _run(NORM_BACKWARD, x.shape[0], x.shape[1], out=dx, sum=dweight, sum2=dbias, kind=rms, **given)
    return dx, dweight, dbias


def activation(kind: str, hidden: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """hidden += bias in place, out [R,N] = act(hidden); hidden is [R,2N] for swiglu, gate first."""
    _run(ACTIVATION, out.shape[0], out.shape[1], out=out, out2=hidden, bias=bias, kind=ACTIVATIONS[kind])


def activation_backward(
    kind: str, g: Tensor, hidden: Tensor, dhidden: Tensor, again: Tensor, dbias: Tensor | None
) -> None:
    """dhidden = g act'(hidden), which may be g itself unless swiglu; again [R,N] = act(hidden); dbias += its rows."""
    given = {"x": hidden, "y": g, "out": dhidden, "out2": again, "sum": dbias}
    _run(ACTIVATION_BACKWARD, g.shape[0], g.shape[1], kind=ACTIVATIONS[kind], **given)


def rotate(out: Tensor, x: Tensor, table: tuple[Tensor, Tensor] | None, first: int = 0, *, back: bool = False) -> None:
    """out [R,N] = x with the pairs (i, i + D/2) of each head turned by row (first + r) % P of cos, sin [P,D/2].

    Without a table a copy. The rows of both may lie apart, and out may be x.
    """
    cos, sin = table or (None, None)
    how = {} if cos is None else {"width": 2 * cos.shape[1], "period": cos.shape[0], "first": first}
    strides = {"x_stride": x.stride(0), "out_stride": out.stride(0)}
    _run(ROTATE, x.shape[0], x.shape[1], out=out, x=x, weight=cos, bias=sin, kind=back, **how, **strides)


def cross_entropy(scores: Tensor, targets: Tensor, losses: Tensor, *, gradient: bool) -> None:
    """losses [R] of scores [R,N] at targets [R] (negative: 0); with `gradient`, scores become softmax - onehot."""
    _run(CROSS_ENTROPY, scores.shape[0], scores.shape[1], out=scores, out2=losses, index=targets, kind=gradient)


def column_sums(x: Tensor, into: Tensor) -> None:
    """into [N] += the rows of x [R,N], which may lie apart."""
    _run(COLUMN_SUMS, x.shape[0], x.shape[1], sum=into, x=x, x_stride=x.stride(0))


def taps(x: Tensor, weight: Tensor, bias: Tensor | None, gate: Tensor | None, length: int) -> Tensor:
    """c = bias + sum_j weight[j] x_{t-j}, or c gate + x: rows x [R,N] of sequences of `length`, weight [K,N]."""
    out = empty(*x.shape)
    sizes = {"width": weight.shape[0], "period": length}
    _run(TAPS, x.shape[0], x.shape[1], out=out, x=x, y=gate, weight=weight, bias=bias, **sizes)
    return out


def taps_backward(
    g: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, gate: Tensor | None, length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """dx [R,N], dweight [K,N], dbias [N] whether there is a bias or not, dgate [R,N] if gated."""
    dx, dgate = empty(*x.shape), None if gate is None else empty(*x.shape)
    dweight, dbias = torch.zeros_like(weight), x.new_zeros(x.shape[1])
    given = {"x": x, "y": g, "stat": gate, "weight": weight, "bias": bias, "width": weight.shape[0], "period": length}
    _run(TAPS_BACKWARD, x.shape[0], x.shape[1], out=dx, out2=dgate, sum=dweight, sum2=dbias, **given)
    return dx, dweight, dbias, dgate


def _run(function: int, rows: int, cols: int, **given: Any) -> None:
    """Packs linnet_rows (csrc/linnet.h) and makes the call. The caller's names keep the tensors alive meanwhile."""
    tensors = [given.get(name) for name in TENSORS]
    for i in (WEIGHT, BIAS, STAT):
        t = tensors[i]
        if t is not None and (t.is_neg() or not t.is_contiguous()):
            tensors[i] = gate.dense(t)
    if gate.CHECK:
        _verify(function, rows, cols, given, tensors)
    sizes = (int(given.get(name, 0)) for name in SIZES)
    lib = library()
    assert lib is not None
    call = ROWS.pack(*gate.addresses(tensors), rows, cols, *sizes, torch.get_num_threads(), given.get("eps", 0.0))
    status = lib.linnet_run_rows(call, function)
    if status:
        raise RuntimeError(f"linnet_run_rows({function}) refused the call: {STATUS.get(status, status)}")


def _verify(function: int, rows: int, cols: int, given: dict[str, Any], tensors: list[Any]) -> None:
    """For LINNET_CHECK: every tensor is as long as the function reads it, and nothing else is given."""
    width, kind = given.get("width", 0), given.get("kind", 0)
    wide = 2 * cols if kind == ACTIVATIONS["swiglu"] else cols
    sizes = {"R": rows, "N": cols, "W": wide, "2": 2, "K": width, "P": given.get("period", 1), "h": width // 2}
    for name, x in zip(TENSORS, tensors, strict=True):
        where = f"linnet_run_rows({function}): {name}"
        if x is not None and name not in EXTENTS[function]:
            raise RuntimeError(f"{where} is given, and the function takes no such tensor")
        shape = [sizes[letter] for letter in EXTENTS[function].get(name, "")]
        step = given.get(f"{name}_stride")
        dtype = torch.int64 if name == "index" else torch.float32
        gate.verify(where, x, shape, dtype, None if step is None else (step, 1))
