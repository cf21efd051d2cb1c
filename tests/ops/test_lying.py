"""However a tensor lies in memory, or pretends to, an op gives the numbers of a plain float64 copy, or one sentence.

Red before the gate: strided and expanded weights and biases, lazily negated q, k, v, x and gradients, another default
dtype or device, vmap and grad of linear attention, vmap of short convolution, batched gradients, traced graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap

from linnet.layers import build_mixer
from tests.ops.lying import LYING, OPS, close, drawn, plain_copy, tensors

EVERYDAY = ("layer_norm", "short_conv", "linear_attention", "linear_attention_step", "delta_rule")
LINEAR = ("linear_attention", "linear_attention_step")
ROWS = ("layer_norm", "rms_norm", "short_conv", "base_conv", "mlp gelu", "project", "cross_entropy")
NATIVE = [name for name in OPS if name not in ("softmax_attention", "sliding_window_attention")]


@pytest.mark.parametrize("name", OPS)
def test_the_numbers_of_a_plain_copy(name: str) -> None:
    """All tensors made to lie so, and one of them among plain ones, each kind another one."""
    op, drawn_ones = OPS[name][0], drawn(name)
    for i, (kind, make) in enumerate(LYING.items()):
        for at in ({i % len(drawn_ones)}, set(range(len(drawn_ones)))):
            given = [make(x) if j in at else x for j, x in enumerate(drawn_ones)]
            with torch.no_grad():
                close(op(*given), op(*map(plain_copy, given)), f"{name}, {kind}, tensors {at}")


def gradients(op: Any, given: list[Tensor], g: list[Tensor]) -> tuple[Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in given]
    outs = [out for out in tensors(op(*leaves)) if out.requires_grad]
    return torch.autograd.grad(outs, leaves, g[: len(outs)], materialize_grads=True)


@pytest.mark.parametrize("name", OPS)
def test_the_gradients_of_a_plain_copy(name: str) -> None:
    """Inputs that lie so, and then gradients that arrive so."""
    op, given, draw = OPS[name][0], drawn(name), torch.Generator().manual_seed(1)
    g = [torch.randn(out.shape, generator=draw) for out in tensors(op(*given))]
    for kind in ("every third number", "one row for all", "negated lazily, every third", "a subclass"):
        make = LYING[kind]
        odd = [make(x) if x.ndim else x for x in g]
        lying = [make(x) for x in given]
        want = gradients(op, [*map(plain_copy, lying)], [*map(plain_copy, g)])
        close(gradients(op, lying, g), want, f"{name}, {kind}", 1e-3)
        want = gradients(op, [*map(plain_copy, given)], [*map(plain_copy, odd)])
        close(gradients(op, given, odd), want, f"{name}, gradients {kind}", 1e-3)


@pytest.mark.parametrize("name", OPS)
def test_defaults_of_dtype_and_device_change_nothing(name: str) -> None:
    op, given = OPS[name][0], drawn(name)
    g = [torch.ones_like(out) for out in tensors(op(*given))]
    want, slopes = op(*given), gradients(op, given, g)
    torch.set_default_dtype(torch.float64)
    try:
        got, again = op(*given), gradients(op, given, g)
    finally:
        torch.set_default_dtype(torch.float32)
    assert [x.dtype for x in tensors(got)] == [x.dtype for x in tensors(want)]
    close(got, want, name)
    close(again, slopes, name)
    if name in NATIVE:
        with torch.device("meta"):
            close(op(*given), want, name)


@pytest.mark.parametrize("name", [n if n in EVERYDAY else pytest.param(n, marks=pytest.mark.slow) for n in OPS])
def test_function_transforms(name: str) -> None:
    """vmap over one tensor and over all, grad, jvp, and many gradients at once."""
    op, given = OPS[name][0], drawn(name)

    def total(*xs: Tensor) -> Tensor:
        return sum((out.square().sum() for out in tensors(op(*xs))), start=torch.zeros(()))

    other = drawn(name, seed=1)
    want = [tensors(op(*xs)) for xs in (given, [other[0], *given[1:]], other)]
    first = vmap(op, in_dims=(0, *[None] * (len(given) - 1)))(torch.stack((given[0], other[0])), *given[1:])
    every = vmap(op)(*map(torch.stack, zip(given, other, strict=True)))
    for i, (a, b) in enumerate(zip(tensors(first), tensors(every), strict=True)):
        close(a, torch.stack((want[0][i], want[1][i])), f"{name}: vmap over one")
        close(b, torch.stack((want[0][i], want[2][i])), f"{name}: vmap over all")
    leaves = [x.clone().requires_grad_() for x in given]
    slopes = torch.autograd.grad(total(*leaves), leaves, allow_unused=True, materialize_grads=True)
    close(grad(total)(*given), slopes[0], f"{name}: grad")
    close(jvp(total, tuple(given[:1]), tuple(other[:1]))[1] if len(given) == 1 else
          jvp(lambda x: total(x, *given[1:]), (given[0],), (other[0],))[1], (slopes[0] * other[0]).sum(),
          f"{name}: jvp", 1e-3)  # fmt: skip
    many = torch.randn(2, *want[0][0].shape, generator=torch.Generator().manual_seed(3))
    out = tensors(op(*leaves))[0]
    both = torch.autograd.grad(out, leaves[0], many, is_grads_batched=True, retain_graph=True)[0]
    close(both, torch.stack([torch.autograd.grad(out, leaves[0], g, retain_graph=True)[0] for g in many]), name)


@pytest.mark.slow  # imports the tracer of torch
@pytest.mark.parametrize(
    "name", ["layer_norm", "short_conv", "mlp swiglu", "linear_attention", "linear_attention_step"]
)
def test_a_recorded_graph_computes_and_holds_no_constants(name: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    op, given, other = OPS[name][0], drawn(name), drawn(name, seed=1)
    close(make_fx(lambda xs: op(*xs))(given)(other), op(*other), name)


def _freed(x: Tensor) -> Tensor:
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


FREED = ("layer_norm", "short_conv", "short_conv_step", *LINEAR, "softmax_attention", "delta_rule")


def _misaligned(x: Tensor) -> Tensor:
    return torch.frombuffer(bytearray(4 * x.numel() + 1), dtype=torch.float32, offset=1).view(x.shape).copy_(x)


STRANGE: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": Tensor.to_sparse,
    "mkldnn": Tensor.to_mkldnn,
    "meta": lambda x: x.to("meta"),
    "lazily zero": lambda x: torch._efficientzerotensor(tuple(x.shape)),
    "functional": torch._to_functional_tensor,
    "misaligned": _misaligned,
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "half": Tensor.half,
    "complex": lambda x: torch.complex(x, x),
    "a fake": lambda x: _mode().from_tensor(x),
}


LAYOUTS = {"sparse": "torch.sparse_coo", "mkldnn": "torch._mkldnn"}


def _mode() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kinds", [tuple(STRANGE)[:-1], pytest.param(("a fake",), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*ROWS, *LINEAR])
def test_strange_tensors_are_taken_right_or_refused(name: str, kinds: tuple[str, ...]) -> None:
    """A layout that is not strided gets our sentence, with the layout and the way out; the others any refusal."""
    for kind in kinds:
        _check_strange(name, kind)


def _check_strange(name: str, kind: str) -> None:
    op, given = OPS[name][0], drawn(name)
    for i in range(len(given) + 1):  # each in turn, then all
        odd = [STRANGE[kind](x) if i in (j, len(given)) else x for j, x in enumerate(given)]
        refused: Exception | None = None
        try:
            with torch.no_grad():
                found = tensors(op(*odd))
        except (ValueError, RuntimeError, NotImplementedError, TypeError, IndexError) as error:
            refused = error
        if refused is not None:
            ours = isinstance(refused, ValueError) and LAYOUTS.get(kind, "") in str(refused)
            assert kind not in LAYOUTS or (ours and "to_dense()" in str(refused)), f"{kind}, tensor {i}: {refused}"
            continue
        if any(out.is_meta or type(out).__name__ == "FakeTensor" or torch._is_functional_tensor(out) for out in found):
            continue  # shapes, and no numbers to be wrong
        if any(out.is_complex() for out in found):
            continue  # numbers of another kind, as torch would give them
        zero = kind == "lazily zero"
        same = [torch.zeros_like(x) if zero and i in (j, len(given)) else x for j, x in enumerate(given)]
        close([x.to_dense() if x.layout != torch.strided else x for x in found], op(*same), f"{name}, {kind}", 3e-2)


@pytest.mark.parametrize("name", FREED)
def test_memory_that_was_freed_is_refused(name: str) -> None:
    """Red before the check: torch reads a null pointer, and the process ends."""
    op, given = OPS[name][0], drawn(name)
    for i in range(len(given)):
        refused = False
        try:  # not pytest.raises: a report of the failure would print the tensor, and torch reads what is not there
            op(*(_freed(x) if i == j else x for j, x in enumerate(given)))
        except (ValueError, RuntimeError):
            refused = True
        assert refused, f"tensor {i}"


@pytest.mark.parametrize(
    "kind", ["elu", "taylor", "rebased", "favor", "hedgehog", "conv", "gated_conv", "retnet", "mamba"]
)
def test_layers_with_weights_that_lie_apart(kind: str) -> None:
    torch.manual_seed(0)
    layer: Any = build_mixer(kind, d_model=32, n_heads=2).eval()
    x = torch.randn(2, 80, 32)
    weights = dict(layer.named_parameters()) | dict(layer.named_buffers())
    with torch.no_grad():
        want = layer(x)[0]
        for name in ("every third number", "negated lazily"):
            odd = {key: LYING[name](w) if w.is_floating_point() else w for key, w in weights.items()}
            close(functional_call(layer, odd, (x,))[0], want, f"{kind}, {name}", 5e-4)
