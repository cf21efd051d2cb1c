"""The row kernels beyond what tests/ops compares: every instruction set, every width, threads, and refused calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from linnet.native import library, nn
from tests.ops.rows import close, draw, needs_library, one_thread_or_more

pytestmark = needs_library
TOLERANCE = 2e-6  # float32 against float64 on single rows, of the largest number
WIDTHS = (1, 3, 8, 16, 31, 100, 257)


@pytest.fixture(params=library.info()["isas"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = library.info()["isa"]
    library.use_isa(request.param)
    yield request.param
    library.use_isa(before)


def rows(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    return [t for t in draw(*shapes, seed=seed) if t is not None]


def norms(n: int, R: int = 70) -> list[Tensor]:
    x, g, weight, bias = rows((R, n), (R, n), (n,), (n,))
    y, stat = nn.norm(x, weight, bias, 1e-5, False)
    r, rstat = nn.norm(x, weight, None, 1e-5, True)
    first, second = (
        nn.norm_backward(g, x, weight, stat, False, True),
        nn.norm_backward(g, x, weight, rstat, True, False),
    )
    return [y, r, *(t for t in (*first, *second) if t is not None)]


def activations(kind: str, n: int, R: int = 70) -> list[Tensor]:
    wide = 2 * n if kind == "swiglu" else n
    hidden, bias, g = rows((R, wide), (wide,), (R, n))
    out, again, dh, db = torch.empty(R, n), torch.empty(R, n), torch.empty(R, wide), torch.zeros(wide)
    nn.activation(kind, hidden, bias, out)
    nn.activation_backward(kind, g, hidden, dh, again, db)
    assert torch.equal(out, again)
    return [out, dh, db]


def entropies(n: int, R: int = 70) -> list[Tensor]:
    (scores,) = rows((R, n))
    losses = torch.empty(R)
    nn.cross_entropy(scores, torch.arange(R) % n, losses, gradient=True)
    return [losses, scores]


def convolutions(n: int, gated: bool, R: int = 70, length: int = 10) -> list[Tensor]:
    x, g, weight, bias, gate = rows((R, n), (R, n), (3, n), (n,), (R, n))
    around = gate if gated else None
    out = nn.causal_conv(x, weight, bias, around, length)
    return [out, *(t for t in nn.causal_conv_backward(g, x, weight, bias, around, length) if t is not None)]


@pytest.mark.parametrize("n", WIDTHS)
def test_norms_of_every_width(isa: str, n: int) -> None:
    x, g, weight, bias = (t.double().requires_grad_() for t in rows((70, n), (70, n), (n,), (n,)))
    y = F.layer_norm(x, (n,), weight, bias)
    r = F.rms_norm(x, (n,), weight, 1e-5)
    want = [y, r, *torch.autograd.grad(y, (x, weight, bias), g), *torch.autograd.grad(r, (x, weight), g)]
    # a row of one or three numbers may have next to no variance, which magnifies rounding
    close(norms(n), want, TOLERANCE if n > 3 else 1e-3)


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("kind", nn.ACTIVATIONS)
def test_activations_of_every_width(isa: str, kind: str, n: int) -> None:
    wide = 2 * n if kind == "swiglu" else n
    hidden, bias, g = (t.double().requires_grad_() for t in rows((70, wide), (wide,), (70, n)))
    h = hidden + bias
    plain = {"relu": F.relu, "gelu": F.gelu, "swiglu": lambda h: F.silu(h[:, :n]) * h[:, n:]}
    out = plain[kind](h)
    close(activations(kind, n), [out, *torch.autograd.grad(out, (hidden, bias), g)], TOLERANCE)


@pytest.mark.parametrize("n", WIDTHS)
def test_cross_entropy_of_every_width(isa: str, n: int) -> None:
    scores, at = rows((70, n))[0].double().requires_grad_(), torch.arange(70) % n
    losses = F.cross_entropy(scores, at, reduction="none")
    close(entropies(n), [losses, torch.autograd.grad(losses.sum(), scores)[0]], TOLERANCE)


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("gated", [True, False])
def test_convolutions_of_every_width(isa: str, gated: bool, n: int) -> None:
    x, g, weight, bias, gate = (t.double().requires_grad_() for t in rows((70, n), (70, n), (3, n), (n,), (70, n)))
    before = F.pad(x.unflatten(0, (7, 10)), (0, 0, 2, 0))  # two rows of zeros before each of 7 sequences of 10
    conv = bias + sum(weight[j] * before[:, 2 - j : 12 - j] for j in range(3)).flatten(0, 1)
    out = conv * gate + x if gated else conv
    given = (x, weight, bias, gate) if gated else (x, weight, bias)
    close(convolutions(n, gated), [out, *torch.autograd.grad(out, given, g)], TOLERANCE)


@pytest.mark.parametrize("half", [1, 3, 8, 20])
def test_rotation_there_and_back(isa: str, half: int) -> None:
    packed, angle = rows((30, 5 * 2 * half + 3), (10, half))
    x, table, out = packed[:, : 4 * half], (angle.cos(), angle.sin()), torch.zeros(30, 4 * half + 5)[:, : 4 * half]
    nn.rotate(out, x, table, 7)
    pairs = torch.view_as_complex(x.unflatten(1, (-1, 2, half)).transpose(-1, -2).contiguous())
    turned = pairs * torch.polar(torch.ones(()), angle)[(7 + torch.arange(30)) % 10][:, None]
    close([out], [torch.view_as_real(turned).transpose(-1, -2).reshape(30, -1)], TOLERANCE)
    before = packed.clone()
    nn.rotate(out, out, table, 7, back=True)
    close([out], [x], TOLERANCE)
    assert torch.equal(packed, before)  # what stands beside the heads is not touched
    nn.rotate(out, x, None)
    assert torch.equal(out, x)


@pytest.mark.parametrize("R", [1000, 4096])
def test_the_number_of_threads_changes_no_bit(R: int) -> None:
    def call() -> list[Tensor]:
        sums = torch.zeros(64)
        nn.column_sums(rows((R, 100))[0][:, :64], sums)
        convolved = [t for gated in (True, False) for t in convolutions(48, gated, R, R // 8)]
        rest = [*activations("gelu", 128, R), *activations("swiglu", 64, R), *entropies(100, R), sums]
        return [*norms(256, R), *convolved, *rest]

    one_thread_or_more(call)


def test_sums_are_added_to_what_is_there() -> None:
    (x,) = rows((77, 20))
    into = torch.ones(9)
    nn.column_sums(x[:, 4:13], into)
    close([into], [1 + x[:, 4:13].double().sum(0)], TOLERANCE)


def test_no_rows_and_refused_calls() -> None:
    empty = torch.empty(0, 16)
    assert nn.norm(empty, None, None, 1e-5, False)[0].shape == (0, 16)
    with pytest.raises(RuntimeError, match="an argument out of range"):
        nn.cross_entropy(torch.zeros(2, 5), torch.tensor([0, 5]), torch.zeros(2), gradient=False)
    with pytest.raises(RuntimeError, match="an argument out of range"):  # sequences of 3 do not make 10 rows
        nn.causal_conv(torch.zeros(10, 8), torch.zeros(3, 8), None, None, 3)
    with pytest.raises(RuntimeError, match="an argument out of range"):  # heads of 6 do not make 16
        nn.rotate(torch.zeros(2, 16), torch.zeros(2, 16), (torch.zeros(2, 3), torch.zeros(2, 3)))
