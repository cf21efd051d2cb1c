"""The scans beyond what tests/ops compares: every instruction set and width, threads, numbers at the edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.native import gate, library, scan
from linnet.ops.gated import naive
from tests.ops.rows import close, needs_library, one_thread_or_more

pytestmark = needs_library
TOLERANCE = 2e-5  # float32 against float64, of the largest number
SIZES = [(2, 5, 1, 1), (1, 40, 16, 16), (1, 33, 40, 4), (2, 18, 17, 7), (1, 20, 150, 9)]  # B, T, E, N
Call = Callable[..., tuple[Any, ...]]


@pytest.fixture(params=library.info()["isas"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = library.info()["isa"]
    library.use_isa(request.param)
    yield request.param
    library.use_isa(before)


@pytest.fixture(autouse=True)
def checking() -> Iterator[None]:
    before = gate.set_check(True)
    yield
    gate.set_check(before)


def mamba(B: int, T: int, E: int, N: int) -> list[Tensor]:
    """x, dt, a, b, c, s."""
    g = torch.Generator().manual_seed(E)
    x, b, c, s = (torch.randn(shape, generator=g) for shape in ((B, T, E), (B, T, N), (B, T, N), (B, E, N, 1)))
    dt, a = torch.rand(B, T, E, generator=g), torch.rand(E, N, generator=g)
    return [x, dt, -4 * a - 0.01, b, c, s]


def rwkv(B: int, T: int, E: int, _: int) -> list[Tensor]:
    """k, v, decay, bonus, s."""
    g = torch.Generator().manual_seed(E)
    k, v, n, d, p = (torch.randn(shape, generator=g) for shape in ((B, T, E), (B, T, E), (B, E), (B, E), (B, E)))
    decay, bonus = torch.rand(E, generator=g) + 0.1, torch.randn(E, generator=g)
    return [k, v, decay, bonus, torch.stack([n, 1 + d.abs(), p], dim=1)[:, None]]


def answers(forward: Call, backward: Call, given: list[Tensor], places: scan.Places) -> list[Tensor]:
    out, s, kept = forward(*given, places, True, True)
    g, gs = (torch.arange(x.numel()).double().cos().float().view(x.shape) for x in (out, s))
    return [out, s, *backward(g, gs, *given, places, kept)]


def scan_answers(given: list[Tensor], places: scan.Places) -> list[Tensor]:
    return answers(scan.selective_scan, scan.selective_scan_backward, given, places)


def wkv_answers(given: list[Tensor], places: scan.Places) -> list[Tensor]:
    return answers(scan.wkv, scan.wkv_backward, given, places)


def average(*given: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The equation of RWKV-4 with the exponent that the kernel takes, the largest one."""
    *inputs, s = given
    out, sums = naive.wkv(*inputs, s[:, :, :2] * s[:, :, 2:].exp(), mask)
    k, _, w, _ = inputs
    p = s[:, 0, 2]
    for t in range(k.shape[1]):
        p = p if mask is None else torch.where(mask[:, t, None], torch.maximum(p - w, k[:, t]), p)
    p = p.detach()[:, None, None]
    return out, torch.cat([sums * (-p).exp(), p], dim=2)


def equation(truth: Call, given: list[Tensor], mask: Tensor) -> list[Tensor]:
    leaves = [x.double().requires_grad_() for x in given]
    outs = truth(*leaves, mask=mask)
    grads = [torch.arange(x.numel()).double().cos().view(x.shape) for x in outs]
    used = [(x, g) for x, g in zip(outs, grads, strict=True) if x.requires_grad]
    return [*outs, *torch.autograd.grad([x for x, _ in used], leaves, [g for _, g in used])]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_size(isa: str, sizes: tuple[int, ...]) -> None:
    mask = torch.rand(sizes[:2], generator=torch.Generator().manual_seed(1)) > 0.2
    places = scan.Places(mask)
    close(scan_answers(mamba(*sizes), places), equation(naive.selective_scan, mamba(*sizes), mask), TOLERANCE)
    close(wkv_answers(rwkv(*sizes), places), equation(average, rwkv(*sizes), mask), TOLERANCE)


def test_the_number_of_threads_changes_no_bit(isa: str) -> None:
    """Enough work for threads, and more sequences and groups of channels than threads."""
    offsets = scan.Places(cu_seqlens=torch.tensor([0, 30, 30, 101]))
    scanned, averaged = mamba(1, 101, 150, 16), rwkv(1, 200, 150, 0)
    scanned[-1] = scanned[-1].expand(3, -1, -1, -1)
    one_thread_or_more(lambda: scan_answers(scanned, offsets))
    one_thread_or_more(lambda: wkv_answers(averaged, scan.Places()))


def test_numbers_at_the_edges(isa: str) -> None:
    """Steps of 0 keep every bit, infinite rates forget, and what overflows or is no number stays in its channel."""
    x, dt, a, b, c, s = mamba(1, 3, 20, 4)
    _, kept, _ = scan.selective_scan(x, torch.zeros_like(dt), a, b, c, s, scan.Places())
    assert torch.equal(kept, s)
    _, forgot, _ = scan.selective_scan(x, dt + 0.1, torch.full_like(a, -inf), b, c, s, scan.Places())
    assert forgot is not None
    close([forgot[0, :, :, 0]], [(dt[0, 2] + 0.1)[:, None] * x[0, 2, :, None] * b[0, 2]], TOLERANCE)
    for rate, want in ((-1e4, 0.0), (1e4, inf)):
        _, end, _ = scan.selective_scan(
            0 * x, torch.ones_like(dt), torch.full_like(a, rate), b, c, s.abs(), scan.Places()
        )
        assert end is not None
        assert (end == want).all()
    for odd in (torch.nan, inf, torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32).item()):
        a[3, 1] = odd
        y, end, _ = scan.selective_scan(x, dt, a, b, c, s, scan.Places())
        assert end is not None
        bad = end.isfinite().logical_not().nonzero().tolist()
        assert bad == [[0, 3, 1, 0]]
        assert y.isfinite().logical_not().any(1)[0].nonzero().tolist() == [[3]]


def test_keys_and_rates_at_the_edges(isa: str) -> None:
    """An infinite rate forgets all but the last token; no key at all keeps nothing; one too many spoils the rest."""
    k, v, decay, bonus, s = rwkv(1, 4, 20, 0)
    decay[2] = inf
    k[0, 1, 3], k[0, 1, 4], k[0, 1, 5] = -inf, inf, torch.nan
    out, end, _ = scan.wkv(k, v, decay, bonus, s, scan.Places())
    assert end is not None
    want, _ = naive.wkv(*(x.double() for x in (k, v, decay, bonus)), s[:, :, :2] * s[:, :, 2:].exp())
    assert torch.equal(out.isfinite(), want.isfinite())
    close([out.nan_to_num()], [want.nan_to_num()], TOLERANCE)
    out, end, _ = scan.wkv(torch.full_like(k, -inf), v, decay, bonus, None, scan.Places())
    assert end is not None
    assert not end.any()


def test_rounding_does_not_add_up_in_the_exponent(isa: str) -> None:
    """One large key, then a thousand small ones: its share decays by a rate that the digits of the exponent cut off."""
    T = 1000
    k, v = torch.zeros(1, T, 5), torch.zeros(1, T, 5)
    k[:, 0], v[:, 0] = 7.9, 1.0
    decay, bonus = torch.full((5,), 1.3e-3), torch.zeros(5)
    want, _ = naive.wkv(k, v, decay, bonus)
    out, _, _ = scan.wkv(k, v, decay, bonus, None, scan.Places())
    close([out], [want], 5e-6)


def test_calls_that_do_not_fit_are_refused() -> None:
    x, dt, a, b, c, s = mamba(1, 6, 5, 4)
    for offsets in ([0, 4], [1, 6], [0, 5, 4, 6]):
        places, starts = scan.Places(cu_seqlens=torch.tensor(offsets)), s.expand(len(offsets) - 1, -1, -1, -1)
        with pytest.raises(RuntimeError, match="cu_seqlens that do not rise from 0 to T"):
            scan.selective_scan(x, dt, a, b, c, starts, places)
    sizes = scan.Places().sizes(x, 4, scan.SCAN_CHUNK)
    inputs = scan._scan_inputs(x, dt, a, b, c, s)
    for wrong in ({"chunk": 0}, {"chunk": 65}, {"E": 0}, {"threads": 0}, {"S": 2}, {"width": 32}):
        gate.set_check(False)
        with pytest.raises(RuntimeError, match="refused the call: an argument out of range"):
            scan.SELECTIVE_SCAN.call(
                y=torch.empty_like(x),
                s_out=None,
                kept=torch.empty(sizes["slots"], sizes["width"]),
                **inputs,
                **sizes | wrong,
            )
