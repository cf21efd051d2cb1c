"""LINNET_CHECK: every call that tells a kernel of more memory than there is, or of memory that lies otherwise, says so.

And nothing but the gate turns a tensor into an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.errors import StateError
from linnet.generate.decoder.engine import NativeEngine
from linnet.generate.decoder.packed_model import PackedModel
from linnet.native import gate, icl, nn
from linnet.native import linear_attention as attention
from linnet.native.decode_check import verify_model
from linnet.native.library import info, library, use_isa
from linnet.native.matmul import matmul, pack
from linnet.native.sample import choose
from tests.generate.engines import KINDS, VOCAB, language
from tests.ops.lying import LYING

needs_library = pytest.mark.skipif(library() is None, reason="the native library is not built")
GATE = {"native/gate.py"}
IN_THE_LABORATORY = {"labs/claims/rnn/memory.py"}  # tells storages apart, and passes no address to a kernel


@pytest.fixture(autouse=True)
def checking() -> Iterator[None]:
    before = gate.set_check(True)
    yield
    gate.set_check(before)


def test_nothing_else_asks_for_addresses() -> None:
    package = Path(linnet.__file__).parent
    files = {p.relative_to(package).as_posix() for p in package.rglob("*.py") if "data_ptr" in p.read_text("utf-8")}
    assert files == GATE | (IN_THE_LABORATORY if (package / "labs").is_dir() else set())


def short(x: Tensor) -> Tensor:
    """Tells of as many numbers as x, and its storage ends before the last of them."""
    x = x.detach().clone()
    x.untyped_storage().resize_(x.untyped_storage().nbytes() - x.element_size())
    return x


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


ELU: Any = ("elu", (), True, True, 1.0, 1e-6)
Q, V, S, Z = (2, 3, 2, 4), (2, 3, 2, 5), (2, 2, 4, 5), (2, 2, 4)
R, N = 6, 8
CALLS: dict[str, Any] = {  # function, what it is given by name: shapes, or values
    "norm": (nn.norm, {"x": (R, N), "weight": (N,), "bias": (N,), "eps": 1e-5, "rms": False}),
    "norm_backward": (
        nn.norm_backward,
        {"g": (R, N), "x": (R, N), "weight": (N,), "stat": (R, 2), "rms": False, "with_bias": True},
    ),
    "activation": (nn.activation, {"kind": "swiglu", "hidden": (R, 2 * N), "bias": (2 * N,), "out": (R, N)}),
    "activation_backward": (
        nn.activation_backward,
        {"kind": "gelu", "g": (R, N), "hidden": (R, N), "dhidden": (R, N), "again": (R, N), "dbias": (N,)},
    ),
    "rotate": (nn.rotate, {"out": (R, N), "x": (R, N), "table": None}),
    "column_sums": (nn.column_sums, {"x": (R, N), "into": (N,)}),
    "cross_entropy": (nn.cross_entropy, {"scores": (R, N), "targets": [1] * R, "losses": (R,), "gradient": True}),
    "causal_conv": (nn.causal_conv, {"x": (R, N), "weight": (3, N), "bias": (N,), "gate": (R, N), "length": 3}),
    "causal_conv_backward": (
        nn.causal_conv_backward,
        {"g": (R, N), "x": (R, N), "weight": (3, N), "bias": (N,), "gate": (R, N), "length": 3},
    ),
    "choose": (choose, {"params": (R, 6), "uniforms": (R, 2), "levels": 4, "mixture": True}),
    "step": (
        lambda **given: attention.step(**given, kind="elu", coeffs=(), normalize=True, scale=1.0, eps=1e-6),
        {"q": (2, 2, 4), "k": (2, 2, 4), "v": (2, 2, 5), "s0": S, "z0": Z},
    ),
    "forward": (
        lambda q, k, v, s0, z0: attention.forward(q, k, v, None, None, s0, z0, *ELU),
        {"q": Q, "k": Q, "v": V, "s0": S, "z0": Z},
    ),
    "backward": (
        lambda g, q, k, v, s0, z0, out, inv: attention.backward(
            g, None, None, q, k, v, None, None, s0, z0, out, inv, *ELU
        ),
        {"g": V, "q": Q, "k": Q, "v": V, "s0": S, "z0": Z, "out": V, "inv": Q[:3]},
    ),
}


def made(name: str, what: Any) -> Any:
    if isinstance(what, tuple):
        return ones(*what, dtype=torch.float64 if name == "uniforms" else torch.float32) / 2
    return torch.tensor(what) if isinstance(what, list) else what


@needs_library
@pytest.mark.parametrize("name", CALLS)
def test_every_argument_that_is_too_short_is_named(name: str) -> None:
    call, shapes = CALLS[name]
    given = {key: made(key, what) for key, what in shapes.items()}
    call(**given)
    for key, x in given.items():
        if isinstance(x, Tensor):
            with pytest.raises(RuntimeError, match=r"needs (\d+) bytes from its address on, and its storage has \d+"):
                call(**given | {key: short(x)})


@needs_library
def test_masks_offsets_and_wrong_dtypes() -> None:
    q, v = ones(*Q), ones(*V)
    with pytest.raises(RuntimeError, match=r"linnet_forward: mask needs 6 bytes .* has 5"):
        attention.forward(q, q, v, short(torch.ones(2, 3, dtype=torch.bool)), None, None, None, *ELU)
    one = ones(1, 3, 2, 4)
    with pytest.raises(RuntimeError, match="linnet_forward: s0 needs"):
        attention.forward(one, one, one, None, torch.tensor([0, 1, 3]), ones(1, 2, 4, 4), ones(2, 2, 4), *ELU)
    with pytest.raises(RuntimeError, match=r" is torch.float64 on cpu; the kernel reads torch.float32"):
        nn.norm(ones(R, N, dtype=torch.float64), None, None, 1e-5, False)
    with pytest.raises(RuntimeError, match="x lies as"):
        nn.norm(ones(N, R).t(), None, None, 1e-5, False)


@needs_library
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
def test_packed_matrices(kind: str) -> None:
    packed = pack(ones(40, 7), ones(40), kind)
    matmul(packed, ones(2, 7))
    for name in ("w", "scale", "sums", "bias"):
        x = getattr(packed, name)
        if x is not None:
            cut = x[:-1].clone() if name == "w" else short(x)
            with pytest.raises(RuntimeError, match=f"matrix: {name} needs"):
                matmul(replace(packed, **{name: cut}), ones(2, 7))


@needs_library
def test_regression() -> None:
    p, q = (torch.rand(2, 1, 4, 4, dtype=torch.float64) for _ in range(2))
    stored = icl.pack(torch.rand(5, 4, 4, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64), wide=True)
    icl.answers(stored, p, q)
    with pytest.raises(RuntimeError, match="linnet_icl_answers: data needs"):
        icl.answers(replace(stored, data=short(stored.data)), p, q)
    with pytest.raises(RuntimeError, match="linnet_icl_gradient: p needs"):
        icl.gradient(stored, short(p), q)
    with pytest.raises(RuntimeError, match="linnet_icl_jacobian: q needs"):
        icl.jacobian(stored, p, short(q))
    fresh = icl.Fresh(3, 5, 8, torch.ones(1, dtype=torch.float64), True, seed=0, target="ridge")
    rates, frozen = torch.full((2,), 1e-3, dtype=torch.float64), torch.zeros(2 * p.numel(), dtype=torch.bool)
    icl.Adam(p, q, frozen).train(fresh, p, q, rates)
    with pytest.raises(RuntimeError, match="linnet_icl_train: frozen needs"):
        icl.Adam(p, q, frozen[:-1].clone()).train(fresh, p, q, rates)


@needs_library
@pytest.mark.skipif(len(info()["isas"]) < 2, reason="one instruction set only")
def test_sequences_packed_for_another_instruction_set_are_refused() -> None:
    p, q = (torch.rand(1, 1, 3, 3, dtype=torch.float64) for _ in range(2))
    stored = icl.pack(torch.rand(5, 3, 3), torch.rand(5, 2), wide=False)
    before = info()["isa"]
    other = next(isa for isa in reversed(info()["isas"]) if isa != before)
    use_isa(other)
    try:
        with pytest.raises(RuntimeError, match="linnet_icl_answers refused the call: an argument out of range"):
            icl.answers(stored, p, q)
    finally:
        use_isa(before)


@needs_library
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_packed_models(kind: str, weights: str) -> None:
    """Each address of a model's structs is found, and a size that asks for more is too."""
    packed = PackedModel(language(kind, torch.float32), weights)
    rooms = packed.weights.rooms
    verify_model(packed.struct, packed.layers, rooms)
    for at in rooms:
        cut = {key: size // 2 if key == at else size for key, size in rooms.items()}  # the rest is alignment
        with pytest.raises(RuntimeError, match=r"needs \d+ bytes"):
            verify_model(packed.struct, packed.layers, cut)
    for name in ("norm1", "bias1", "filter"):
        right = getattr(packed.layers[0], name)
        if right:
            setattr(packed.layers[0], name, right + 8)
            with pytest.raises(RuntimeError, match=f"linnet_layer 0: {name} .* belongs to no tensor"):
                verify_model(packed.struct, packed.layers, rooms)
            setattr(packed.layers[0], name, right)


@needs_library
@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind: str) -> None:
    engine = NativeEngine(language(kind, torch.float32))
    rows = engine.add(rows=2)
    tokens = torch.tensor([1, 2])
    engine.step(tokens, rows)
    call, slots = engine._calls.get(rows, 1), engine._slots
    for name, wrong in (("B", 3), ("stride", 1 << 40), ("count", 1 << 40)):
        right = getattr(call.fields, name)
        setattr(call.fields, name, wrong)
        with pytest.raises(RuntimeError, match=r"linnet_decode_step: \w+ needs \d+ bytes .* storage has"):
            engine.step(tokens, rows)
        setattr(call.fields, name, right)
    engine.step(tokens, rows)
    if engine.packed.cache_floats:
        slots.capacity[call.slots] *= 2
        with pytest.raises(RuntimeError, match=r"cache\[\d+\] needs"):
            engine.step(tokens, rows)


@needs_library
@pytest.mark.parametrize("how", ["every third number", "negated lazily"])
@pytest.mark.parametrize("kind", ["taylor", "conv, window and rebased", "grouped elu and softmax"])
def test_models_whose_weights_lie_apart(kind: str, how: str) -> None:
    """`load_state_dict(assign=True)` takes tensors as they lie; the answers are those of plain ones, bit for bit."""
    model = language(kind, torch.float32)
    other: Any = type(model)(model.config).eval().requires_grad_(False)
    lying = {k: LYING[how](x) if x.is_floating_point() else x for k, x in model.state_dict().items()}
    other.load_state_dict(lying, assign=True)
    tokens = torch.arange(300)[None] % VOCAB if model.config.positions != "learned" else torch.arange(150)[None] % VOCAB
    torch.testing.assert_close(other(tokens)[0], model(tokens)[0], rtol=1e-4, atol=1e-4)
    engines = [NativeEngine(m, threads=1) for m in (model, other)]
    rows = [engine.add() for engine in engines]
    for t in range(5):
        got = [engine.step(tokens[0, t : t + 1], row) for engine, row in zip(engines, rows, strict=True)]
        assert torch.equal(*got)


@needs_library
def test_an_engine_notices_weights_that_were_swapped() -> None:
    model = language("elu", torch.float32)
    other: Any = type(model)(model.config).eval().requires_grad_(False)
    other.load_state_dict(model.state_dict())

    def assigned() -> None:
        other.load_state_dict({k: x.clone() for k, x in model.state_dict().items()}, assign=True)

    def moved() -> None:
        weight = next(other.parameters())
        weight.data = weight.data.clone()

    def written() -> None:
        next(other.parameters()).mul_(2)

    for change in (assigned, moved, written):
        engine = NativeEngine(other)
        engine.add()
        change()
        with pytest.raises(StateError, match="weights have changed"):
            engine.add()
