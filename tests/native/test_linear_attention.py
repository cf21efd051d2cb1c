"""The native kernels beyond what tests/ops compares: every instruction set, threads, strides, odd widths, long sums."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.feature_maps.core import Core
from linnet.native import library
from linnet.native import linear_attention as native
from linnet.ops.linear.chunks import Batch, Rule
from linnet.ops.linear.forms import parallel

pytestmark = pytest.mark.skipif(not library.info()["loaded"], reason=f"no native library: {library.reason()}")

TOLERANCE = 2e-5  # float32 against float64, relative to the largest entry
CORES = [
    Core("identity"),
    Core("elu"),
    Core("relu"),
    Core("relu2"),
    Core("exp"),
    Core("polynomial", (1.0, 0.25, 0.03125)),
    Core("polynomial", (0.0, 0.0, 0.0625)),
    Core("polynomial", (0.5, 1.0)),
]
SHAPES = [(1, 17, 1, 3, 5), (2, 33, 2, 20, 24), (1, 40, 3, 16, 64), (2, 1, 2, 16, 16), (1, 65, 2, 48, 40)]
ISAS = library.info()["isas"]


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = library.info()["isa"]
    library.use_isa(request.param)
    yield request.param
    library.use_isa(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def tensors(B: int, T: int, H: int, D: int, V: int, core: Core, seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    q, k, v = (0.5 * torch.randn(B, T, H, n, generator=g) for n in (D, D, V))
    before = core.features(torch.randn(3, B, H, D, generator=g))  # a state some tokens could have left
    s0 = torch.einsum("nbhf,nbhv->bhfv", before, torch.randn(3, B, H, V, generator=g))
    g_out, gs = torch.randn(B, T, H, V, generator=g), torch.randn(s0.shape, generator=g)
    gz = torch.randn(s0.shape[:3], generator=g)
    return {"q": q, "k": k, "v": v, "s0": s0, "z0": before.sum(0), "g": g_out, "gs": gs, "gz": gz}


def run_native(
    t: dict[str, Tensor], core: Core, causal: bool, normalize: bool, mask: Tensor | None = None
) -> list[Any]:
    how = (core.kind, core.coeffs, causal, normalize, 0.7, 0.5)
    out, inv, s, z = native.forward(t["q"], t["k"], t["v"], mask, None, t["s0"], t["z0"], *how)
    assert inv is not None
    given = (t["q"], t["k"], t["v"], mask, None, t["s0"], t["z0"])
    return [out, s, z, *native.backward(t["g"], t["gs"], t["gz"], *given, out, inv, *how)]


def run_reference(t: dict[str, Tensor], core: Core, causal: bool, normalize: bool, mask: Tensor | None) -> list[Tensor]:
    """The quadratic form in float64, its gradients by autograd."""
    d = {name: x.double() for name, x in t.items()}
    inputs = [d[name].requires_grad_() for name in ("q", "k", "v", "s0", "z0")]
    q, k, v, s0, z0 = inputs
    out, _, s, z = parallel(Batch(q, k, v, mask, s0, z0), Rule(core, causal, normalize, 0.7, 0.5))
    grads = torch.autograd.grad([out, s, z], inputs, [d["g"], d["gs"], d["gz"]])
    return [out.detach(), s.detach(), z.detach(), *grads]


NAMES = ("out", "s", "z", "dq", "dk", "dv", "ds0", "dz0")


@pytest.mark.parametrize("core", CORES, ids=str)
def test_every_instruction_set_equals_the_quadratic_form(isa: str, core: Core) -> None:
    for i, shape in enumerate(SHAPES):
        for case in range(8):
            causal, normalize, masked = (bool(case & bit) for bit in (1, 2, 4))
            normalize &= core.kind != "identity" and core.coeffs != (0.5, 1.0)  # signed scores: den may be near 0
            t = tensors(*shape, core, seed=i)
            mask = torch.rand(shape[:2], generator=torch.Generator().manual_seed(case)) > 0.3 if masked else None
            got, want = run_native(t, core, causal, normalize, mask), run_reference(t, core, causal, normalize, mask)
            for name, a, b in zip(NAMES, got, want, strict=True):
                error = (a.double() - b).abs().max() / b.abs().max().clamp(min=0.5)
                assert error <= TOLERANCE, f"{name} at {shape}, causal {causal}, normalize {normalize}: {error:.1e}"


def test_the_instruction_sets_are_real_and_differ() -> None:
    assert ISAS[-1] == "base"
    assert library.info()["isa"] in ISAS
    with pytest.raises(ValueError, match=r"'mmx' cannot run here; available: .*base"):
        library.use_isa("mmx")


def test_the_environment_names_an_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = library.info()["isa"]
    try:
        for isa in ISAS:
            monkeypatch.setenv("LINNET_ISA", isa)
            library._load.__wrapped__()
            assert library.info()["isa"] == isa
        monkeypatch.setenv("LINNET_ISA", "mmx")
        with pytest.raises(ValueError, match=r"LINNET_ISA='mmx' cannot run here; available: .*base; or leave it unset"):
            library._load.__wrapped__()
    finally:
        library.use_isa(before)


@pytest.mark.parametrize(("B", "H", "T"), [(1, 1, 3000), (1, 3, 1000), (2, 4, 700)])
@pytest.mark.parametrize("core", [Core("elu"), Core("polynomial", (1.0, 0.25, 0.03125))], ids=str)
def test_the_number_of_threads_changes_no_bit(B: int, H: int, T: int, core: Core) -> None:
    before = torch.get_num_threads()
    t, results = tensors(B, T, H, 16, 64, core), []
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            results.append(run_native(t, core, True, True))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for name, a, b in zip(NAMES, results[0], other, strict=True):
            assert torch.equal(a, b), name


def test_a_row_does_not_depend_on_its_batch(two_threads: None) -> None:
    t = tensors(5, 200, 4, 32, 32, Core("elu"))
    whole = run_native(t, Core("elu"), True, True)
    one = run_native({name: x[2:3] for name, x in t.items()}, Core("elu"), True, True)
    for name, a, b in zip(NAMES, whole, one, strict=True):
        assert torch.equal(a[2:3], b), name


def test_calls_from_several_python_threads_do_not_meet(two_threads: None) -> None:
    """The library runs without the interpreter lock: scratch, pool and tasks must belong to one call each."""
    t = tensors(1, 700, 4, 32, 64, Core("elu"))
    want = run_native(t, Core("elu"), True, True)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: run_native(t, Core("elu"), True, True), range(24)):
            for name, a, b in zip(NAMES, got, want, strict=True):
                assert torch.equal(a, b), name


def test_strided_inputs_are_read_where_they_stand() -> None:
    """Packed q, k, v of one projection, head-major tensors and a broadcast batch: the bits of contiguous copies."""
    packed = torch.randn(2, 50, 3, 4, 32)
    views = [packed.unbind(2), [torch.randn(2, 4, 50, 32).transpose(1, 2) for _ in range(3)]]
    views.append([torch.randn(1, 50, 4, 32).expand(2, -1, -1, -1) for _ in range(3)])
    for q, k, v in views:
        assert not q.is_contiguous()
        how = (None, None, None, None, "elu", (), True, True, 1.0, 1e-6)
        a, b = native.forward(q, k, v, *how), native.forward(q.contiguous(), k.contiguous(), v.contiguous(), *how)
        for x, y in zip(a, b, strict=True):
            assert x is not None
            assert y is not None
            assert torch.equal(x, y)


@pytest.mark.parametrize("kind", ["elu", "relu", "exp"])
def test_nan_and_infinity_are_not_swallowed(isa: str, kind: str) -> None:
    q, k, v = torch.ones(3, 1, 20, 1, 16)
    k = k.clone()
    k[0, 5, 0, 3] = float("nan")
    out = native.forward(q, k, v, None, None, None, None, kind, (), True, True, 1.0, 1e-6)[0]
    assert out[0, 5:].isnan().all()
    k[0, 5, 0, 3] = float("-inf")
    out = native.forward(q, k, v, None, None, None, None, kind, (), True, True, 1.0, 1e-6)[0]
    assert out.isfinite().all()


@pytest.mark.parametrize("kind", ["elu", "exp"])
def test_the_exponential_is_exact_over_its_range(isa: str, kind: str) -> None:
    x = torch.linspace(-86.0, 88.0 if kind == "exp" else 30.0, 4096).view(1, 256, 1, 16)
    s = native.forward(x, x, torch.ones(1, 256, 1, 1), None, None, None, None, kind, (), False, False, 1.0, 0.0)[2]
    for i in range(0, 4096, 257):  # one value at a time through the state: phi(x) * 1
        one = torch.full((1, 1, 1, 1), x.flatten()[i].item())
        z = native.forward(one, one, torch.ones(1, 1, 1, 1), None, None, None, None, kind, (), False, False, 1.0, 0.0)[
            3
        ]
        assert z is not None
        want = Core(kind).features(one.double()).item()
        slack = 1.5e-8 * abs(one.item()) if kind == "elu" else 0.0  # where elu + 1 is next to nothing
        assert abs(z.item() - want) <= (2.5e-7 + slack) * abs(want), f"phi({one.item()})"
    assert s is not None
    assert s.isfinite().all()


def test_long_sums_keep_their_digits() -> None:
    """Rounding gathered over 100,000 tokens is given back: without it the error is five times as large."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 100_000, 1, 16, generator=g) for _ in range(3))
    how = ("elu", (), True, True, 1.0, 1e-6)
    s, z = native.forward(q, k, v, None, None, None, None, *how)[2:]
    phi = Core("elu").features(k.double())[0, :, 0]
    assert s is not None
    assert z is not None
    exact_s, exact_z = phi.T @ v.double()[0, :, 0], phi.sum(0)
    assert (s[0, 0] - exact_s).abs().max() / exact_s.abs().max() < 3e-7
    assert (z[0, 0] - exact_z).abs().max() / exact_z.abs().max() < 2e-7


def test_step_keeps_the_dtype_of_the_state(isa: str) -> None:
    for core in CORES:
        t = tensors(3, 1, 2, 12, 21, core)
        q, k, v = (t[name][:, 0] for name in ("q", "k", "v"))
        for dtype in (torch.float32, torch.float64):
            s0, z0 = t["s0"].to(dtype), t["z0"].to(dtype)
            out, s, z = native.step(q, k, v, s0, z0, core.kind, core.coeffs, False, 0.7, 0.5)
            want = run_reference(t, core, True, False, None)
            assert s.dtype == z.dtype == dtype
            assert out.dtype == torch.float32
            for a, b in zip((out[:, None], s, z), want[:3], strict=True):
                assert (a.double() - b).abs().max() / b.abs().max() <= TOLERANCE


@pytest.mark.parametrize(
    ("change", "words"),
    [({"cu": [0, 5, 3, 8]}, "do not rise"), ({"cu": [0, 4, 9]}, "do not rise"), ({"cu": [1, 8]}, "do not rise")],
)
def test_the_library_itself_refuses_bad_offsets(change: dict[str, list[int]], words: str) -> None:
    q, k, v = torch.randn(3, 1, 8, 1, 16)
    how = (None, None, "elu", (), True, True, 1.0, 1e-6)
    with pytest.raises(RuntimeError, match=words):
        native.forward(q, k, v, None, torch.tensor(change["cu"]), *how)
