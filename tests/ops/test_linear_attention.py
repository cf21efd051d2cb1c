"""The contract of `linnet.linear_attention` beyond equality with the reference (test_parity.py).

What it refuses and in which words, what it never touches, how much memory it takes, and how it behaves under autograd
twice, autocast, torch.compile and strange strides.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet import State, StateError, linear_attention, linear_attention_step
from linnet import feature_maps as maps
from linnet.native.library import info
from linnet.ops.forms import FORMS

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
RUNS = [*((form, "torch") for form in FORMS), *([("chunked", "native")] if info()["loaded"] else [])]
every_run = pytest.mark.parametrize(("form", "backend"), RUNS)


def qkv(*shape: int, value: int = 4, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    B, T, H, D = shape
    return tuple(torch.randn(B, T, H, n, generator=g).to(dtype) for n in (D, D, value))


def close(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    limit = TOLERANCE[dtype or a.dtype] * b.double().abs().max().clamp(min=1e-3)
    return bool(((a.double() - b.double()).abs() <= limit).all())


@every_run
def test_the_future_never_changes_the_past(form: str, backend: str) -> None:
    q, k, v = qkv(2, 50, 2, 8)
    out, _ = linear_attention(q, k, v, form=form, backend=backend, chunk_size=16)
    for t in (0, 1, 15, 16, 17, 49):
        later = [x.clone() for x in (q, k, v)]
        for x in later:
            x[:, t + 1 :] = x[:, t + 1 :].flip(0) * 3 - 1
        again, _ = linear_attention(*later, form=form, backend=backend, chunk_size=16)
        assert torch.equal(out[:, : t + 1], again[:, : t + 1])
        assert t == 49 or not torch.equal(out, again)


@every_run
@pytest.mark.parametrize("length", [0, 1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forked_state_is_never_altered(form: str, backend: str, length: int, dtype: torch.dtype) -> None:
    backend = "torch" if dtype == torch.float64 else backend
    _, state = linear_attention(*qkv(2, 30, 2, 8, dtype=dtype), output_final_state=True, form=form, backend=backend)
    assert state is not None
    kept = state.clone()
    how = {"initial_state": state, "output_final_state": True, "form": form, "backend": backend}
    first, one = linear_attention(*qkv(2, length, 2, 8, dtype=dtype, seed=1), **how)
    linear_attention(*qkv(2, length, 2, 8, dtype=dtype, seed=2), **how)
    again, two = linear_attention(*qkv(2, length, 2, 8, dtype=dtype, seed=1), **how)
    assert one is not None
    assert two is not None
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))
    assert torch.equal(first, again)
    one.s.zero_()  # the new state is its own memory, also after no token at all
    assert torch.equal(state.s, kept.s)
    assert not torch.equal(two.s, one.s)


@pytest.mark.parametrize("backend", sorted({backend for _, backend in RUNS}))
@pytest.mark.parametrize("phi", ["elu", "taylor", "dpfp", None])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_equal_the_whole(backend: str, phi: str | None, grad: bool) -> None:
    q, k, v = (x.abs().requires_grad_(grad) for x in qkv(2, 12, 3, 4))
    want, final = linear_attention(q, k, v, feature_map=phi, output_final_state=True, backend="torch")
    state, outs = None, []
    for t in range(12):
        out, state = linear_attention_step(q[:, t], k[:, t], v[:, t], state, feature_map=phi, backend=backend)
        outs.append(out)
    assert state is not None
    assert final is not None
    assert close(torch.stack(outs, 1), want)
    assert close(state.s, final.s)
    assert close(state.z, final.z)
    if grad:
        ours, theirs = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (torch.stack(outs, 1), want))
        assert all(close(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("phi", ["elu", "relu2", "exp", "taylor", maps.Polynomial(2, degree=3)], ids=str)
def test_double_backward(phi: Any, normalize: bool, causal: bool) -> None:
    g = torch.Generator().manual_seed(0)
    width = maps.resolve(phi, 2).feature_dim
    shapes = ((1, 4, 1, 2), (1, 4, 1, 2), (1, 4, 1, 2), (1, 1, width, 2), (1, 1, width))
    q, k, v, s0, z0 = (torch.rand(n, generator=g, dtype=torch.float64).requires_grad_() for n in shapes)
    mask = torch.tensor([[True, False, True, True]])

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor, z0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        how = {"feature_map": phi, "causal": causal, "normalize": normalize, "mask": mask, "chunk_size": 2}
        out, state = linear_attention(q, k, v, initial_state=State(s0, z0), output_final_state=True, **how)
        assert state is not None
        return out, *state

    assert torch.autograd.gradcheck(run, (q, k, v, s0, z0))
    assert torch.autograd.gradgradcheck(run, (q, k, v, s0, z0))


def test_double_backward_of_the_native_form() -> None:
    def second(backend: str) -> Tensor:
        q, k, v = (x.requires_grad_() for x in qkv(1, 40, 2, 4))
        out, _ = linear_attention(q, k, v, backend=backend)
        (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(dq.square().sum(), k)[0]

    assert close(second("auto"), second("torch"))


@pytest.mark.parametrize("step", [False, True])
def test_forward_mode_derivatives_are_not_lost(step: bool) -> None:
    q, k, v = qkv(1, 1 if step else 20, 2, 4)
    past = State(torch.rand(1, 2, 4, 4), torch.rand(1, 2, 4))  # without one, a single token's output is v whatever q is

    def tangent(**how: str) -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            x = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
            if step and not how:
                out, _ = linear_attention_step(x[:, 0], k[:, 0], v[:, 0], past)
            else:
                out, _ = linear_attention(x, k, v, initial_state=past, **how)
            return torch.autograd.forward_ad.unpack_dual(out).tangent

    assert close(tangent().view(v.shape), tangent(form="parallel"))


@pytest.mark.parametrize("shape", [(0, 5, 2, 4), (2, 5, 0, 4), (2, 0, 2, 4)])
@every_run
def test_nothing_at_all(form: str, backend: str, shape: tuple[int, ...]) -> None:
    """No rows, no heads or no tokens: empty outputs, a zero state, gradients that exist."""
    q, k, v = (x.requires_grad_() for x in qkv(*shape))
    out, state = linear_attention(q, k, v, output_final_state=True, form=form, backend=backend)
    assert state is not None
    assert out.shape == v.shape
    assert state.s.shape == (shape[0], shape[2], 4, 4)
    assert (state.s == 0).all()
    assert all(
        x.shape == y.shape
        for x, y in zip(
            torch.autograd.grad(out.sum(), (q, k, v), allow_unused=True, materialize_grads=True), (q, k, v), strict=True
        )
    )


@pytest.mark.parametrize("phi", ["elu", "taylor"])
@pytest.mark.parametrize("width", [3, 16])
def test_unwritten_memory_is_never_read(phi: str, width: int) -> None:
    """Freed memory full of NaN all around: a kernel that reads one entry of scratch too far shows it."""
    q, k, v = (x.requires_grad_() for x in qkv(2, 34, 2, 4, value=width))
    for _ in range(20):
        litter = [torch.full((2**n,), float("nan")) for n in range(6, 17) for _ in range(8)]
        del litter
        out, state = linear_attention(q, k, v, feature_map=phi, output_final_state=True)
        assert state is not None
        litter = [torch.full((2**n,), float("nan")) for n in range(6, 17) for _ in range(8)]
        del litter
        grads = torch.autograd.grad(out.sum() + state.s.sum(), (q, k, v))
        assert all(x.isfinite().all() for x in (out, *state, *grads))


@every_run
@pytest.mark.parametrize("phi", ["elu", "hedgehog"])
def test_autocast_lowers_nothing(form: str, backend: str, phi: str) -> None:
    q, k, v = qkv(1, 40, 2, 8)
    how = {"feature_map": maps.build(phi, 8, n_heads=2), "output_final_state": True, "form": form, "backend": backend}
    want, _ = linear_attention(q, k, v, **how)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, state = linear_attention(q, k, v, **how)
        low, _ = linear_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), **how)
    assert state is not None
    assert state.s.dtype == state.z.dtype == torch.float32
    assert torch.equal(got, want)
    assert low.dtype == torch.bfloat16
    assert close(low, want)


@every_run
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_and_out_with_a_float32_state(form: str, backend: str, dtype: torch.dtype) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(2, 70, 2, 8, dtype=dtype))
    out, state = linear_attention(q, k, v, output_final_state=True, form=form, backend=backend)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want, final = linear_attention(*wide, output_final_state=True)
    assert state is not None
    assert final is not None
    assert (out.dtype, state.s.dtype, state.z.dtype) == (dtype, torch.float32, torch.float32)
    assert close(out, want)
    assert close(state.s, final.s, torch.float32)  # summed in float32: only the inputs were rounded
    ours, theirs = torch.autograd.grad(out.sum(), (q, k, v)), torch.autograd.grad(want.sum(), wide)
    assert all(a.dtype == dtype and close(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_float64_state_is_kept() -> None:
    q, k, v = qkv(1, 10, 2, 4)
    start = State(torch.zeros(1, 2, 4, 4, dtype=torch.float64), torch.zeros(1, 2, 4, dtype=torch.float64))
    out, state = linear_attention(q, k, v, initial_state=start, output_final_state=True)
    _, wide = linear_attention(q.double(), k.double(), v.double(), output_final_state=True)
    assert state is not None
    assert wide is not None
    assert out.dtype == torch.float32
    assert state.s.dtype == torch.float64
    assert close(state.s, wide.s)


@every_run
def test_strides_do_not_matter(form: str, backend: str) -> None:
    packed = torch.randn(2, 30, 3, 2, 8, generator=torch.Generator().manual_seed(0))
    views = {
        "packed": packed.unbind(2),
        "head major": [x.transpose(1, 2).contiguous().transpose(1, 2) for x in packed.unbind(2)],
        "width not last": [x.transpose(2, 3).contiguous().transpose(2, 3) for x in packed.unbind(2)],
        "expanded": [x[:1].expand(2, -1, -1, -1) for x in packed.unbind(2)],
        "every second token": [x[:, ::2] for x in packed.unbind(2)],
        "backwards": [x.flip(1) for x in packed.unbind(2)],
    }
    for name, inputs in views.items():
        results = []
        for xs in (inputs, [x.contiguous() for x in inputs]):
            leaves = [x.detach().requires_grad_() for x in xs]
            out, _ = linear_attention(*leaves, form=form, backend=backend)
            weight = torch.ones((), dtype=out.dtype).expand(out.shape)  # a gradient of stride 0
            results.append([out, *torch.autograd.grad(out, leaves, weight)])
        assert all(close(a, b) for a, b in zip(*results, strict=True)), name


@every_run
def test_no_gradient_gives_the_same_bits(form: str, backend: str) -> None:
    q, k, v = qkv(2, 70, 2, 8)
    with torch.no_grad():
        quick, _ = linear_attention(q, k, v, form=form, backend=backend)
    with torch.inference_mode():
        quicker, _ = linear_attention(q, k, v, form=form, backend=backend)
    tracked, _ = linear_attention(q.requires_grad_(), k, v, form=form, backend=backend)
    assert torch.equal(quick, tracked)
    assert torch.equal(quicker, tracked)
    assert not quick.requires_grad
    assert tracked.requires_grad


def test_a_parameter_can_be_an_input() -> None:
    q, k, v = (torch.nn.Parameter(x) for x in qkv(1, 5, 2, 4))
    linear_attention(q, k, v)[0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (q, k, v))


def test_only_the_state_is_used() -> None:
    """A loss on the final state alone, and a state that alone asks for a gradient."""
    q, k, v = qkv(1, 9, 2, 4)
    s0, z0 = (torch.rand(n).requires_grad_() for n in ((1, 2, 4, 4), (1, 2, 4)))
    out, state = linear_attention(q, k, v, initial_state=State(s0, z0), output_final_state=True)
    assert state is not None
    (ds,) = torch.autograd.grad(state.s.sum(), s0, retain_graph=True)
    assert torch.equal(ds, torch.ones_like(ds))
    assert torch.autograd.grad(out.sum(), z0)[0].abs().sum() > 0


MEMORY = """
import resource, sys, torch, linnet
torch.set_num_threads(1)
T, phi, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def inputs(T):
    q, k, v = (torch.rand(1, T, 1, 16, requires_grad=True) for _ in range(3))
    return (q, k, v), torch.ones(1, T, 1, 16)
(q, k, v), g = inputs(300)  # whatever is loaded or cached at the first call
torch.autograd.grad(linnet.linear_attention(q, k, v, feature_map=phi, backend=backend)[0], (q, k, v), g)
(q, k, v), g = inputs(T)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out, _ = linnet.linear_attention(q, k, v, feature_map=phi, backend=backend)
torch.autograd.grad(out, (q, k, v), g)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("backend", sorted({backend for _, backend in RUNS}))
@pytest.mark.parametrize("phi", ["elu", "taylor"])
def test_memory_is_linear_in_time(phi: str, backend: str) -> None:
    """Forward and backward take out, dq, dk, dv and a little more: not T x F x V, not T x T, not even T x F."""
    T, floats = 150_000, 4 * 16
    command = [sys.executable, "-c", MEMORY, str(T), phi, backend]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    taken = int(run.stdout) * 1024 / (4 * T)  # in float32 per token
    assert taken < 1.3 * floats, f"{taken:.0f} floats per token; Taylor has 153 features, 153 x 16 state entries"


q4, k4, v4 = qkv(2, 6, 3, 4)
REFUSED: dict[str, tuple[Callable[[], Any], type[ValueError], list[str]]] = {
    "widths differ": (lambda: linear_attention(q4, k4[..., :3], v4), ValueError, ["[2, 6, 3, 3]", "width"]),
    "heads differ": (lambda: linear_attention(q4, k4, v4[:, :, :2]), ValueError, ["[2, 6, 2, 4]", "heads"]),
    "times differ": (lambda: linear_attention(q4[:, :5], k4, v4), ValueError, ["[2, 5, 3, 4]", "causal=False"]),
    "three axes": (lambda: linear_attention(q4[0], k4[0], v4[0]), ValueError, ["[6, 3, 4]", "four axes"]),
    "no width": (lambda: linear_attention(q4[..., :0], k4[..., :0], v4), ValueError, ["at least 1 wide"]),
    "integers": (lambda: linear_attention(q4.long(), k4, v4), ValueError, ["torch.int64", "q.float()"]),
    "all integers": (lambda: linear_attention(q4.long(), k4.long(), v4.long()), ValueError, ["torch.int64"]),
    "a list": (lambda: linear_attention(q4.tolist(), k4, v4), ValueError, ["list", "torch.as_tensor"]),  # type: ignore[arg-type]
    "two dtypes": (lambda: linear_attention(q4, k4.double(), v4), ValueError, ["torch.float64", "torch.float32"]),
    "another device": (lambda: linear_attention(q4, k4.to("meta"), v4), ValueError, ["meta", "cpu"]),
    "NaN in the mask": (
        lambda: linear_attention(q4, k4, v4, mask=torch.full((2, 6), float("nan"))),
        ValueError,
        ["NaN", "mask.bool()"],
    ),
    "an integer mask": (
        lambda: linear_attention(q4, k4, v4, mask=torch.ones(2, 6).long()),
        ValueError,
        ["torch.int64"],
    ),
    "a short mask": (
        lambda: linear_attention(q4, k4, v4, mask=torch.ones(2, 5, dtype=torch.bool)),
        ValueError,
        ["[2, 5]", "[2, 6]"],
    ),
    "a state of other heads": (
        lambda: linear_attention(q4, k4, v4, initial_state=State(torch.zeros(2, 4, 4, 4), torch.zeros(2, 4, 4))),
        StateError,
        ["[2, 4, 4, 4]", "[2, 3, 4, 4]"],
    ),
    "a state of another map": (
        lambda: linear_attention(
            q4, k4, v4, feature_map="taylor", initial_state=State(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4))
        ),
        StateError,
        ["[2, 3, 4, 4]", "[2, 3, 15, 4]"],
    ),
    "a narrow state": (
        lambda: linear_attention(
            q4, k4, v4, initial_state=State(torch.zeros(2, 3, 4, 4).half(), torch.zeros(2, 3, 4).half())
        ),
        StateError,
        ["torch.float16", "torch.float32"],
    ),
    "a state elsewhere": (
        lambda: linear_attention(
            q4, k4, v4, initial_state=State(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4)).to("meta")
        ),
        StateError,
        ["meta", "cpu"],
    ),
    "a state that is not one": (
        lambda: linear_attention(q4, k4, v4, initial_state=(v4, v4)),  # type: ignore[arg-type]
        StateError,
        ["tuple", "State"],
    ),
    "a map of another width": (lambda: linear_attention(q4, k4, v4, feature_map=maps.Elu(8)), ValueError, ["8", "4"]),
    "a map that learns": (
        lambda: linear_attention(q4, k4, v4, feature_map="hedgehog"),
        ValueError,
        ["linnet.feature_maps.Hedgehog(head_dim=4"],
    ),
    "an unknown map": (lambda: linear_attention(q4, k4, v4, feature_map="taylr"), ValueError, ["'taylr'", "'taylor'"]),
    "an unknown form": (lambda: linear_attention(q4, k4, v4, form="paralel"), ValueError, ["'paralel'", "'parallel'"]),
    "an unknown back end": (lambda: linear_attention(q4, k4, v4, backend="nativ"), ValueError, ["'nativ'", "'native'"]),
    "chunk size 0": (lambda: linear_attention(q4, k4, v4, chunk_size=0), ValueError, ["chunk_size is 0", ">= 1"]),
    "chunk size 1.5": (lambda: linear_attention(q4, k4, v4, chunk_size=1.5), ValueError, ["1.5"]),  # type: ignore[arg-type]
    "negative eps": (lambda: linear_attention(q4, k4, v4, eps=-1.0), ValueError, ["eps is -1.0", ">= 0"]),
    "scale NaN": (lambda: linear_attention(q4, k4, v4, scale=float("nan")), ValueError, ["scale is nan", "finite"]),
    "cu_seqlens too short": (
        lambda: linear_attention(q4[:1], k4[:1], v4[:1], cu_seqlens=torch.tensor([0, 3, 5])),
        ValueError,
        ["0 to 5", "length 6"],
    ),
    "cu_seqlens falls": (
        lambda: linear_attention(q4[:1], k4[:1], v4[:1], cu_seqlens=torch.tensor([0, 4, 3, 6])),
        ValueError,
        ["4 to 3"],
    ),
    "cu_seqlens with a batch": (
        lambda: linear_attention(q4, k4, v4, cu_seqlens=torch.tensor([0, 6])),
        ValueError,
        ["batch must be 1, not 2"],
    ),
    "cu_seqlens for cross attention": (
        lambda: linear_attention(q4[:1, :3], k4[:1], v4[:1], causal=False, cu_seqlens=torch.tensor([0, 6])),
        ValueError,
        ["3 tokens", "6"],
    ),
    "a step of two axes": (lambda: linear_attention_step(q4[0, 0], k4[0, 0], v4[0, 0]), ValueError, ["[3, 4]"]),
    "a step from another state": (
        lambda: linear_attention_step(
            q4[:, 0], k4[:, 0], v4[:, 0], State(torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 4))
        ),
        StateError,
        ["[1, 3, 4, 4]", "[2, 3, 4, 4]"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_clear_sentence(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def operator_arguments(**change: Any) -> tuple[Any, ...]:
    q, k, v = qkv(1, 9, 2, 4, dtype=torch.float64)
    rest = {"mask": None, "s0": None, "z0": None, "cu": None, "kind": "elu", "coeffs": [], "causal": True} | change
    if rest["s0"] is not None:
        q, k, v = (x.requires_grad_() for x in (q, k, v))
    return (q, k, v, *rest.values(), True, 0.7, 1e-3, 4, "torch")


OPERATOR = {
    "plain": operator_arguments(),
    "mask": operator_arguments(mask=torch.arange(9)[None] % 4 != 1),
    "bidirectional": operator_arguments(causal=False),
    "packed": operator_arguments(cu=torch.tensor([0, 4, 4, 9])),
    "closed kernel": operator_arguments(kind="polynomial", coeffs=[1.0, 0.5, 0.125]),
    "state and gradients": operator_arguments(
        s0=torch.rand(1, 2, 4, 4, dtype=torch.float64, requires_grad=True),
        z0=torch.rand(1, 2, 4, dtype=torch.float64, requires_grad=True),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATOR)
def test_the_operator_keeps_torch_rules(name: str) -> None:
    torch.library.opcheck(torch.ops.linnet.linear_attention.default, OPERATOR[name])


COMPILED: dict[str, dict[str, Any]] = {
    "causal": {},
    "bidirectional": {"causal": False},
    "mask": {"mask": torch.arange(24).view(2, 12) % 5 != 0},
    "state": {"initial_state": State(torch.rand(2, 2, 4, 4), torch.rand(2, 2, 4)), "output_final_state": True},
    "not normalised": {"normalize": False, "scale": 0.5},
    "torch": {"backend": "torch"},
    "parallel": {"form": "parallel"},
    "map with parameters": {"feature_map": maps.ReBased(4, n_heads=2)},
    **{f"map {name}": {"feature_map": name} for name in ("relu", "relu2", "exp", "polynomial", "taylor", "dpfp")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_without_graph_breaks(name: str) -> None:
    torch.compiler.reset()
    how = COMPILED[name]

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        out, state = linear_attention(q, k, v, **how)
        return (out, *state) if state is not None else (out,)

    whole = torch.compile(run, fullgraph=True, backend="aot_eager")
    results = []
    for f in (run, whole):
        leaves = [x.requires_grad_() for x in qkv(2, 12, 2, 4)]
        out = f(*leaves)
        results.append([*out, *torch.autograd.grad(sum(x.sum() for x in out), leaves)])
    assert all(close(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.slow
def test_compiled_packed_batch_and_step() -> None:
    torch.compiler.reset()
    q, k, v = qkv(1, 12, 2, 4)
    cu = torch.tensor([0, 5, 12])
    packed = torch.compile(
        lambda q, k, v: linear_attention(q, k, v, cu_seqlens=cu)[0], fullgraph=True, backend="aot_eager"
    )
    assert close(packed(q, k, v), linear_attention(q, k, v, cu_seqlens=cu)[0])
    step = torch.compile(lambda q, k, v, s: linear_attention_step(q, k, v, s), fullgraph=True, backend="aot_eager")
    _, state = linear_attention_step(q[:, 0], k[:, 0], v[:, 0])
    got, want = (f(q[:, 1], k[:, 1], v[:, 1], state) for f in (step, linear_attention_step))
    assert close(got[0], want[0])
    assert close(got[1].s, want[1].s)


@pytest.mark.slow
def test_exported() -> None:
    class Model(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return linnet.linear_attention(q, k, v)[0]

    inputs = qkv(1, 12, 2, 4)
    program = torch.export.export(Model(), inputs)
    assert any("linnet.linear_attention" in str(node.target) for node in program.graph.nodes)
    assert close(program.module()(*inputs), Model()(*inputs))
