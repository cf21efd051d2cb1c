"""Packed weights times a few vectors: integer sums exact, float sums close, and the same bits in any batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from linnet.native import library
from linnet.native.matmul import KINDS, MATMUL, MOST_INT8, Packed, matmul, pack, unpack
from tests.ops.rows import needs_library

pytestmark = needs_library
ROUND = 2.0**-24  # relative error of one float32 operation; a sum of K products takes at most K + 2 of them
INPUTS, OUTPUTS = (1, 3, 64, 255, 256, 1024), (1, 31, 32, 33, 768)
BATCHES = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15, 64)
ROWS = 256


@pytest.fixture(params=library.info()["isas"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = library.info()["isa"]
    library.use_isa(request.param)
    yield request.param
    library.use_isa(before)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def given(K: int, N: int, kind: str, rows: int = ROWS) -> tuple[Packed, Tensor]:
    return pack(draw(N, K), draw(N, seed=1), kind), draw(rows, K, seed=2)


def integers(packed: Packed) -> Tensor:
    """The weights of an int8 matrix as integers [N,K]."""
    panels = packed.w.view(torch.int8).view(-1, -(-packed.inputs // 4), 32, 4)  # [panel,K/4,32,4]
    return panels.transpose(1, 2).reshape(-1, 4 * panels.shape[1])[: packed.outputs, : packed.inputs]


def int8_model(packed: Packed, x: Tensor) -> Tensor:
    """What int8 means, in numpy: round x, add up integers, then three roundings in float32."""
    assert packed.scale is not None
    assert packed.bias is not None
    X, scale, bias = x.numpy(), packed.scale[: packed.outputs].numpy(), packed.bias[: packed.outputs].numpy()
    top = np.abs(X).max(1, keepdims=True)
    q = np.rint(X * (np.float32(127) / top)).astype(np.int64)
    total = q @ integers(packed).numpy().astype(np.int64).T
    return torch.from_numpy(total.astype(np.float32) * (scale * (top / np.float32(127))) + bias)


@pytest.mark.parametrize("K", INPUTS)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_sums_of_float64(isa: str, kind: str, K: int) -> None:
    for N in OUTPUTS:
        packed, x = given(K, N, kind)
        w, bias = unpack(packed).double(), draw(N, seed=1).double()
        limit = (K + 2) * ROUND * (x.double().abs() @ w.abs().T + bias.abs())
        assert ((matmul(packed, x) - (x.double() @ w.T + bias)).abs() <= limit).all(), N


@pytest.mark.parametrize("K", INPUTS)
def test_int8_is_its_formula_bit_for_bit(isa: str, K: int) -> None:
    for N in OUTPUTS:
        packed, x = given(K, N, "int8")
        assert torch.equal(matmul(packed, x), int8_model(packed, x)), N


def test_int8_rounds_a_product_before_it_rounds_to_an_integer(isa: str) -> None:
    half = (torch.arange(127) + 0.5) / 127
    x = torch.cat([half, half.nextafter(torch.zeros(())), half.nextafter(torch.ones(()))])
    product = x * 127  # in a row whose largest number is 1
    up, beyond = product.round() - product, x.double() * 127 - product.double()
    x = torch.cat([x[(up.abs() == 0.5) & (up.double() * beyond < 0)], torch.ones(1)])  # the exact ones round elsewhere
    assert len(x) > 8
    packed = pack(torch.eye(len(x)), torch.zeros(len(x)), "int8")
    assert torch.equal(matmul(packed, x[None]), int8_model(packed, x[None]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("K", [3, 255, 256])
def test_a_row_is_the_same_bits_in_any_batch_and_on_any_threads(isa: str, kind: str, K: int) -> None:
    for N in (33, 300):
        packed, x = given(K, N, kind)
        whole = matmul(packed, x)
        for B in BATCHES:
            assert torch.equal(matmul(packed, x[7 : 7 + B]), whole[7 : 7 + B]), (N, B)
        for threads in (2, 3, 16):
            assert torch.equal(matmul(packed, x[:5], threads), whole[:5]), (N, threads)
            assert torch.equal(matmul(packed, x, threads), whole), (N, threads)


@pytest.mark.skipif(not {"avx2", "avx512"} <= set(library.info()["isas"]), reason="needs both AVX2 and AVX-512")
def test_instruction_sets_with_fused_sums_agree_bit_for_bit() -> None:
    before, found = library.info()["isa"], []
    packed = [given(255, 100, kind) for kind in KINDS]
    for name in ("avx2", "avx512"):
        library.use_isa(name)
        found.append(torch.cat([matmul(p, x) for p, x in packed]))
    library.use_isa(before)
    assert torch.equal(*found)


@pytest.mark.parametrize("N", [32, 33, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_only_y_is_written(isa: str, kind: str, N: int) -> None:
    for B in (1, 2, 4, 14, 20):
        packed, x = given(64, N, kind, B)
        y = torch.full((B * N + 64,), 7.5)
        MATMUL.call(y=y[: B * N].view(B, N), x=x, matrix=packed.struct(), rows=B, threads=1)
        assert torch.equal(y[: B * N].view(B, N), matmul(packed, x))
        assert y[B * N :].eq(7.5).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_not_finite_spoils_itself_alone(isa: str, kind: str, bad: float) -> None:
    packed, x = given(100, 40, kind, 17)
    clean = matmul(packed, x)
    x[[0, 9], 50] = bad
    y = matmul(packed, x)
    others = [i for i in range(17) if i not in (0, 9)]
    assert torch.equal(y[others], clean[others])
    spoilt = y[[0, 9]]
    if kind == "int8" or bad != bad:
        assert spoilt.isnan().all()
    else:
        assert torch.equal(spoilt, (unpack(packed)[:, 50] * bad).expand(2, -1))  # the infinity with each weight's sign


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_give_the_bias(isa: str, kind: str) -> None:
    weight, bias = draw(40, 30), draw(40, seed=1)
    weight[5] = 0
    x = draw(4, 30, seed=2)
    x[1] = 0
    y = matmul(pack(weight, bias, kind), x)
    assert torch.equal(y[1], bias)
    assert torch.equal(y[:, 5], bias[5].expand(4))
    assert not torch.equal(y[0], bias)
    x[1] = 1e-36
    tiny = matmul(pack(weight, bias * 0, kind), x)[1]
    assert tiny[5] == 0
    assert (tiny == 0).all() == (kind == "int8")  # int8 takes so small a row for zeros, the others multiply it


@pytest.mark.parametrize("K", [70_000, MOST_INT8])
def test_the_largest_integer_sums(isa: str, K: int) -> None:
    sign = torch.tensor([1.0, -1.0])
    packed, x = pack(sign[:, None].expand(2, K), torch.zeros(2), "int8"), sign[:, None].repeat(1, K)
    y = matmul(packed, x)
    assert torch.equal(y, int8_model(packed, x))
    assert torch.allclose(y, K * sign[:, None] * sign)


def test_no_rows_and_no_bias(isa: str) -> None:
    packed = pack(draw(5, 8))
    assert matmul(packed, torch.empty(0, 8)).shape == (0, 5)
    x = draw(3, 8, seed=2)
    assert torch.allclose(matmul(packed, x), x @ draw(5, 8).T, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (31, 3), (32, 4), (65, 7)])
def test_packed_weights_mean_what_was_packed(shape: tuple[int, int]) -> None:
    weight = draw(*shape)
    assert torch.equal(unpack(pack(weight)), weight)
    assert torch.equal(unpack(pack(weight, kind="bfloat16")), weight.bfloat16().float())
    packed = pack(weight, kind="int8")
    assert packed.scale is not None
    assert packed.sums is not None
    scale = packed.scale[: shape[0], None]
    assert ((unpack(packed) - weight).abs() <= 0.5001 * scale).all()
    assert torch.equal(scale[:, 0], weight.abs().amax(1) / 127)
    assert torch.equal(packed.sums[: shape[0]].long(), integers(packed).long().sum(1))
    for kind in KINDS:
        found = pack(weight, draw(shape[0]), kind)
        assert found.w.data_ptr() % 64 == 0
        matrix = found.struct()
        assert (matrix.out, getattr(matrix, "in"), matrix.kind) == (*shape, KINDS[kind])


def test_packing_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(ValueError, match="unknown kind of weights 'int4'; accepted: float32, bfloat16, int8"):
        pack(draw(4, 4), kind="int4")
    with pytest.raises(ValueError, match=r"weight must be floats of shape \[N,K\], not torch.float32 \(4,\)"):
        pack(draw(4))
    with pytest.raises(ValueError, match=r"not torch.float32 \(0, 4\)"):
        pack(draw(0, 4))
    with pytest.raises(ValueError, match=r"bias must have shape \(4,\) like the rows of weight, not \(5,\)"):
        pack(draw(4, 3), draw(5))
    with pytest.raises(ValueError, match=f"at most {MOST_INT8} inputs, not {MOST_INT8 + 1}"):
        pack(torch.zeros(1, MOST_INT8 + 1), kind="int8")
    with pytest.raises(ValueError, match="int8 weights must be finite"):
        pack(torch.tensor([[1.0, float("nan")]]), kind="int8")


def test_x_must_fit() -> None:
    packed = pack(draw(4, 8))
    for x in (draw(3, 7), draw(8), draw(3, 8).double()):
        with pytest.raises(ValueError, match=r"x must be float32 \[B,8\] on the cpu, not"):
            matmul(packed, x)
    assert torch.equal(matmul(packed, draw(8, 3).T), matmul(packed, draw(8, 3).T.contiguous()))


def test_a_sweep_reads_every_float(isa: str) -> None:
    lib, ones, sink = library.library(), torch.ones(3 * 4096), torch.zeros(3)
    assert lib is not None
    assert lib.linnet_read(ones.data_ptr(), 4 * ones.numel(), 3, sink.data_ptr()) == 0
    assert sink.tolist() == [4096.0] * 3
