"""Row by row through the native library: norms, activations, rotation, cross entropy, convolution; no autograd here.

Every function is one sweep over contiguous float32 rows on the cpu, with the same bits on any number of threads. What
the kernels trust (shapes, dtypes, targets below the vocabulary) is checked by the caller, `ops`.
R rows, N columns of a row, D width of a head, P rows of the table of a rotation, K taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import ROWS, STATUS, library
from .memory import empty

NORM, NORM_BACKWARD, ACTIVATION, ACTIVATION_BACKWARD, ROTATE, CROSS_ENTROPY, COLUMN_SUMS, TAPS, TAPS_BACKWARD = range(9)
TENSORS = ("out", "out2", "sum", "sum2", "x", "y", "weight", "bias", "stat", "index")
SIZES = ("width", "period", "first", "x_stride", "out_stride", "kind")
ACTIVATIONS = {"relu": 0, "gelu": 1, "swiglu": 2}


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, rms: bool) -> tuple[Tensor, Tensor]:
    """y [R,N], and mean and 1 / deviation of every row, [R,2]."""
    out, stat = empty(*x.shape), torch.empty(x.shape[0], 2)
    _run(NORM, x.shape[0], x.shape[1], out=out, out2=stat, x=x, weight=weight, bias=bias, kind=rms, eps=eps)
    return out, stat


def norm_backward(
    g: Tensor, x: Tensor, weight: Tensor | None, stat: Tensor, rms: bool, with_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """dx [R,N], dweight [N] unless there is no weight, dbias [N] when asked for."""
    dx, dweight = empty(*x.shape), None if weight is None else torch.zeros(x.shape[1])
    dbias = torch.zeros(x.shape[1]) if with_bias else None
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
    dweight, dbias = torch.zeros_like(weight), torch.zeros(x.shape[1])
    given = {"x": x, "y": g, "stat": gate, "weight": weight, "bias": bias, "width": weight.shape[0], "period": length}
    _run(TAPS_BACKWARD, x.shape[0], x.shape[1], out=dx, out2=dgate, sum=dweight, sum2=dbias, **given)
    return dx, dweight, dbias, dgate


def _run(function: int, rows: int, cols: int, **given: Any) -> None:
    """Packs linnet_rows (csrc/linnet.h) and makes the call. The caller's names keep the tensors alive meanwhile."""
    tensors = map(given.get, TENSORS)
    pointers = [0 if t is None else t.data_ptr() for t in tensors]
    sizes = (int(given.get(name, 0)) for name in SIZES)
    lib = library()
    assert lib is not None
    call = ROWS.pack(*pointers, rows, cols, *sizes, torch.get_num_threads(), given.get("eps", 0.0))
    status = lib.linnet_run_rows(call, function)
    if status:
        raise RuntimeError(f"linnet_run_rows({function}) refused the call: {STATUS.get(status, status)}")
