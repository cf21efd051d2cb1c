"""Row by row through the native library: norms, activations, rotation, cross entropy, convolution; no autograd here.

Every function is one sweep over contiguous float32 rows on the cpu, with the same bits on any number of threads. Rows
come as the gate makes them (`gate.dense`); weights and biases may have any strides. Shapes, and targets below the
vocabulary, are checked by the caller, `ops`; LINNET_CHECK=1 compares every call with the shapes of structs.py.
R rows, N columns of a row, D width of a head, P rows of the table of a rotation, K kernel size of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, get_num_threads

from . import structs
from .call import Function
from .gate import T, dense
from .memory import empty

NORM, NORM_BACKWARD = Function(structs.Norm), Function(structs.NormBackward)
ACTIVATION, ACTIVATION_BACKWARD = Function(structs.Activation), Function(structs.ActivationBackward)
CAUSAL_CONV, CAUSAL_CONV_BACKWARD = Function(structs.CausalConv), Function(structs.CausalConvBackward)
GATE, GATE_BACKWARD = Function(structs.Gate), Function(structs.GateBackward)
MIXTURES, MIXTURES_BACKWARD = Function(structs.Mixtures), Function(structs.MixturesBackward)
ROTATE, CROSS_ENTROPY = Function(structs.Rotate), Function(structs.CrossEntropy)
COLUMN_SUMS = Function(structs.ColumnSums)
MOST_MIXTURES = 8
ACTIVATIONS = {"relu": 0, "gelu": 1, "swiglu": 2}


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, rms: bool) -> tuple[Tensor, Tensor]:
    """Return y [R,N], and mean and 1 / deviation of every row, [R,2]."""
    R, N = x.shape
    out, stat = empty(R, N), x.new_empty((R, 2))
    NORM.call(
        out=out, stat=stat, x=x, weight=_dense(weight), bias=_dense(bias),
        rows=R, cols=N, rms=rms, threads=get_num_threads(), eps=eps,
    )  # fmt: skip
    return out, stat


def norm_backward(
    g: Tensor, x: Tensor, weight: Tensor | None, stat: Tensor, rms: bool, with_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return dx [R,N], dweight [N] unless there is no weight, dbias [N] if `with_bias`."""
    R, N = x.shape
    dx, dweight = empty(R, N), None if weight is None else x.new_zeros(N)
    dbias = x.new_zeros(N) if with_bias else None
    NORM_BACKWARD.call(
        dx=dx, dweight=dweight, dbias=dbias, g=g, x=x, weight=_dense(weight), stat=_dense(stat),
        rows=R, cols=N, rms=rms, threads=get_num_threads(),
    )  # fmt: skip
    return dx, dweight, dbias


def activation(kind: str, hidden: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """hidden += bias in place, out [R,N] = act(hidden); hidden is [R,2N] for swiglu, gate first."""
    R, N = out.shape
    ACTIVATION.call(
        out=out, hidden=hidden, bias=_dense(bias),
        rows=R, cols=N, width=_width(kind, N), kind=ACTIVATIONS[kind], threads=get_num_threads(),
    )  # fmt: skip


def activation_backward(
    kind: str, g: Tensor, hidden: Tensor, dhidden: Tensor, again: Tensor, dbias: Tensor | None
) -> None:
    """dhidden = g act'(hidden), which may be g itself unless swiglu; again [R,N] = act(hidden); dbias += its rows."""
    R, N = g.shape
    ACTIVATION_BACKWARD.call(
        dhidden=dhidden, out=again, dbias=dbias, g=g, hidden=hidden,
        rows=R, cols=N, width=_width(kind, N), kind=ACTIVATIONS[kind], threads=get_num_threads(),
    )  # fmt: skip


def _width(kind: str, N: int) -> int:
    return 2 * N if kind == "swiglu" else N


def gate(x: Tensor, z: Tensor, u: Tensor | None, skip: Tensor | None) -> Tensor:
    """Return (x + skip u) silu(z) [R,N]; the rows of z and u may lie apart."""
    R, N = x.shape
    out = empty(R, N)
    GATE.call(
        out=out, x=x, z=z, u=u, skip=_dense(skip),
        rows=R, cols=N, z_stride=z.stride(0), u_stride=N if u is None else u.stride(0), threads=get_num_threads(),
    )  # fmt: skip
    return out


def gate_backward(
    g: Tensor, x: Tensor, z: Tensor, u: Tensor | None, skip: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return dx, dz [R,N] and, if there is u, du [R,N] and dskip [N]."""
    R, N = x.shape
    dx, dz, du = empty(R, N), empty(R, N), None if u is None else empty(R, N)
    dskip = None if u is None else x.new_zeros(N)
    GATE_BACKWARD.call(
        dx=dx, dz=dz, du=du, dskip=dskip, g=g, x=x, z=z, u=u, skip=_dense(skip),
        rows=R, cols=N, z_stride=z.stride(0), u_stride=N if u is None else u.stride(0), threads=get_num_threads(),
    )  # fmt: skip
    return dx, dz, du, dskip


def mixtures(x: Tensor, change: Tensor, share: Tensor) -> Tensor:
    """Return x + share[k] change, [K,R,N] from [R,N], [R,N] and [K,N]; K is at most MOST_MIXTURES."""
    (R, N), K = x.shape, len(share)
    out = empty(K, R, N)
    MIXTURES.call(out=out, x=x, change=change, share=share, rows=R, cols=N, count=K, threads=get_num_threads())
    return out


def mixtures_backward(grads: Sequence[Tensor | None], change: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return dx, dchange [R,N] and dshare [K,N] from the gradient of each mixture, None for zeros."""
    (R, N), K = change.shape, len(share)
    dx, dchange, dshare = empty(R, N), empty(R, N), torch.zeros_like(share)
    given = {f"g{k}": grads[k] if k < K else None for k in range(MOST_MIXTURES)}
    MIXTURES_BACKWARD.call(
        dx=dx, dchange=dchange, dshare=dshare, change=change, share=share, **given,
        rows=R, cols=N, count=K, threads=get_num_threads(),
    )  # fmt: skip
    return dx, dchange, dshare


def rotate(out: Tensor, x: Tensor, table: tuple[Tensor, Tensor] | None, first: int = 0, *, back: bool = False) -> None:
    """out [R,N] = x with the pairs (i, i + D/2) of each head turned by row (first + r) % P of cos, sin [P,D/2].

    Without a table a copy. The rows of both may lie apart, and out may be x.
    """
    R, N = x.shape
    cos, sin = (None, None) if table is None else (_dense(table[0]), _dense(table[1]))
    period, half = (1, 0) if cos is None else cos.shape
    ROTATE.call(
        out=out, x=x, cos=cos, sin=sin, rows=R, cols=N, out_stride=out.stride(0), x_stride=x.stride(0),
        period=period, half=half, first=first, back=back, threads=get_num_threads(),
    )  # fmt: skip


def cross_entropy(scores: Tensor, targets: Tensor, losses: Tensor, *, gradient: bool) -> None:
    """losses [R] of scores [R,N] at targets [R] (negative: 0); with `gradient`, scores become softmax - onehot."""
    R, N = scores.shape
    CROSS_ENTROPY.call(
        scores=scores, losses=losses, targets=targets, rows=R, cols=N, gradient=gradient, threads=get_num_threads()
    )


def column_sums(x: Tensor, into: Tensor) -> None:
    """into [N] += the rows of x [R,N], which may lie apart."""
    R, N = x.shape
    COLUMN_SUMS.call(sums=into, x=x, rows=R, cols=N, x_stride=x.stride(0), threads=get_num_threads())


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, gate: Tensor | None, length: int) -> Tensor:
    """Return c = bias + sum_j weight[j] x_{t-j}, or c gate + x: rows x [R,N] of sequences of `length`, weight [K,N]."""
    (R, N), K = x.shape, len(weight)
    out = empty(R, N)
    CAUSAL_CONV.call(
        out=out, x=x, weight=_dense(weight), bias=_dense(bias), gate=gate,
        rows=R, cols=N, kernel_size=K, length=length, threads=get_num_threads(),
    )  # fmt: skip
    return out


def causal_conv_backward(
    g: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, gate: Tensor | None, length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return dx [R,N], dweight [K,N], dbias [N] whether there is a bias or not, dgate [R,N] if gated."""
    (R, N), K = x.shape, len(weight)
    dx, dgate = empty(R, N), None if gate is None else empty(R, N)
    dweight, dbias = torch.zeros_like(weight), x.new_zeros(N)
    CAUSAL_CONV_BACKWARD.call(
        dx=dx, dgate=dgate, dweight=dweight, dbias=dbias,
        g=g, x=x, weight=_dense(weight), bias=_dense(bias), gate=_dense(gate),
        rows=R, cols=N, kernel_size=K, length=length, threads=get_num_threads(),
    )  # fmt: skip
    return dx, dweight, dbias, dgate


def _dense(x: T) -> T:
    """Return weights as the kernels read them; `x` itself wherever it lies so already."""
    return x if x is None or (x.is_contiguous() and not x.is_neg()) else dense(x)
