"""One meaning: every form and backend gives the reference's output, final state and gradients, however it is cut.

The matrix is form x backend x feature map x causal x normalised x length x padding x packing x how the past arrives.
Every day a set of cases runs in which each pair of values meets (`pairs`); `-m slow` runs the whole product over the
axes that interact most. Padding is filled with NaN, so anything that leaks is seen.
"""

from __future__ import annotations

import copy
import random
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import linnet
from linnet import feature_maps as maps
from linnet.native.library import info
from linnet.ops.linear.forms import FORMS
from tests.ops import reference

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}  # of the largest entry, or of FLOOR if that is larger
FLOOR = {torch.float64: 0.1, torch.float32: 0.5}  # gradients are differences of terms of order 1 and may cancel
B, H, D, V = 2, 2, 4, 3

MAPS: dict[str, Any] = {
    "elu": lambda: maps.Elu(D),
    "relu": lambda: maps.Relu(D),
    "relu2": lambda: maps.SquaredRelu(D),
    "exp": lambda: maps.Exp(D),
    "identity": lambda: maps.Identity(D),
    "polynomial2": lambda: maps.Polynomial(D, degree=2, bias=0.5),
    "polynomial3": lambda: maps.Polynomial(D, degree=3, bias=0.5),
    "taylor": lambda: maps.Taylor(D),
    "taylor_full": lambda: maps.TaylorFull(D),
    "rebased": lambda: maps.ReBased(D, n_heads=H),
    "rebased_joint": lambda: maps.ReBased(D, n_heads=H, norm_scope="joint"),
    "favor": lambda: maps.Favor(D, num_features=8),
    "random_fourier": lambda: maps.RandomFourier(D, num_features=64),
    "hedgehog": lambda: maps.Hedgehog(D, n_heads=H),
    "dpfp": lambda: maps.DPFP(D),
    "t2r": lambda: maps.T2R(D, n_heads=H),
    "softmax_features": lambda: maps.SoftmaxFeatures(D),
}
SIGNED = ("identity", "polynomial3", "random_fourier")  # kernels that can be negative: positive inputs keep sums off 0
SPARSE = ("relu", "relu2", "t2r", "dpfp", "rebased", "rebased_joint")  # scores can be 0: 1 / eps must stay moderate
NATIVE = ("chunked", "native", torch.float32)
WHERE = [
    *((form, "torch", torch.float64) for form in FORMS),
    ("chunked", "torch", torch.float32),
    NATIVE,
    ("auto", "auto", torch.float32),
]
WIDTHS = [
    (1, 1, "elu", "exp", "taylor"),
    (3, 7, "elu", "exp", "taylor"),
    (16, 64, "elu", "exp", "taylor"),
    (17, 33, "elu", "exp", "taylor"),
    (64, 64, "elu", "exp"),
    (128, 40, "elu", "exp"),
]
AXES: dict[str, list[Any]] = {
    "where": WHERE,
    "map": list(MAPS),
    "causal": [True, False],
    "normalize": [True, False],
    "length": [0, 1, 2, 63, 64, 65, 257, 1000],
    "padding": ["none", "left", "right", "middle"],
    "packed": [False, True],
    "past": ["none", "given", "split"],
}


class Case(NamedTuple):
    where: tuple[str, str, torch.dtype]
    map: str
    causal: bool
    normalize: bool
    length: int
    padding: str
    packed: bool
    past: str

    @property
    def impossible(self) -> bool:
        return self.where == NATIVE and self.map == "polynomial3"  # the native kernels stop at degree 2

    def __str__(self) -> str:
        form, backend, dtype = self.where
        words = (f"{form}.{backend}.{str(dtype)[6:]}", self.map, "causal" if self.causal else "bidirectional")
        more = ("normalised" if self.normalize else "plain", f"T{self.length}", f"pad-{self.padding}")
        return "-".join((*words, *more, "packed" if self.packed else "batch", f"past-{self.past}"))


class Inputs(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    s0: Tensor
    z0: Tensor
    mask: Tensor | None
    offsets: list[int] | None


def pairs() -> list[Case]:
    """A small set of cases in which every two values of every two axes meet; the same set every time."""
    rng, names = random.Random(0), list(AXES)
    missing = {(a, b, x, y) for a, b in combinations(names, 2) for x, y in product(*map(_size, (a, b)))}
    missing.remove(("where", "map", WHERE.index(NATIVE), list(MAPS).index("polynomial3")))
    cases = []
    while missing:
        a, b, x, y = min(missing)
        best: tuple[int, dict[str, int]] = (-1, {})
        for _ in range(30):
            row = {name: rng.randrange(len(AXES[name])) for name in names} | {a: x, b: y}
            if Case(*(AXES[name][row[name]] for name in names)).impossible:
                row["where" if a != "where" else "map"] = 0
            met = sum((m, n, row[m], row[n]) in missing for m, n in combinations(names, 2))
            best = max(best, (met, row), key=lambda found: found[0])
        row = best[1]
        missing -= {(m, n, row[m], row[n]) for m, n in combinations(names, 2)}
        cases.append(Case(*(AXES[name][row[name]] for name in names)))
    return cases


def _size(name: str) -> range:
    return range(len(AXES[name]))


def draw(case: Case, seed: int) -> Inputs:
    """Random inputs; padded tokens hold NaN."""
    g = torch.Generator().manual_seed(seed)
    dtype, batch, T = case.where[2], 1 if case.packed else B, case.length
    Tq = T if case.causal or case.packed else 2 * T // 3 + 1
    offsets = [0, T // 3, T // 3, T] if case.packed else None
    rows = 3 if offsets else batch
    F = MAPS[case.map]().feature_dim
    q, k = (torch.randn(batch, n, H, D, generator=g) * 0.5 for n in (Tq, T))
    q, k = (q.abs() + 0.1, k.abs() + 0.1) if case.map in SIGNED else (q, k)
    v = torch.randn(batch, T, H, V, generator=g)
    s0, z0 = torch.randn(rows, H, F, V, generator=g), torch.rand(rows, H, F, generator=g) + 0.5
    mask = padding(case.padding, batch, T, g)
    if mask is not None:
        k, v = (x.masked_fill(~mask[..., None, None], float("nan")) for x in (k, v))
        q = q.masked_fill(~mask[..., None, None], float("nan")) if case.causal else q
    # float32 values in either dtype, so that the reference starts from the very same numbers
    return Inputs(*(x.to(dtype) for x in (q, k, v, s0, z0)), mask, offsets)


def padding(where: str, batch: int, T: int, g: torch.Generator) -> Tensor | None:
    if where == "none":
        return None
    mask = torch.ones(batch, T, dtype=torch.bool)
    for row in mask:
        a, b = sorted(torch.randint(0, T + 1, (2,), generator=g).tolist())
        row[slice(0, a) if where == "left" else slice(b, T) if where == "right" else slice(a, b)] = False
    return mask


def options(case: Case) -> dict[str, Any]:
    eps = 0.1 if case.map in SPARSE else 1e-6
    return {"causal": case.causal, "normalize": case.normalize, "scale": 0.7, "eps": eps}


def by_reference(case: Case, x: Inputs, phi: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, s0, z0, mask, offsets = x
    if mask is not None:
        keep = mask[..., None, None]
        k, v = torch.where(keep, k, 0.0), torch.where(keep, v, 0.0)
        q = torch.where(keep, q, 0.0) if case.causal else q
    core = phi.core
    phi_q, phi_k = (reference.features(core.kind, core.coeffs, y) for y in (phi.prepare_q(q), phi.prepare_k(k)))
    if case.past == "none":
        s0, z0 = torch.zeros_like(s0), torch.zeros_like(z0)
    if offsets is not None:
        return reference.packed(phi_q, phi_k, v, s0, z0, offsets, mask=mask, **options(case))
    return reference.attention(phi_q, phi_k, v, s0, z0, mask=mask, **options(case))


def by_linnet(
    case: Case, x: Inputs, phi: Any, cuts: list[int], chunk_size: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The op as a user calls it: at once, or in pieces that hand the state on."""
    form, backend, _ = case.where
    how = {**options(case), "feature_map": phi, "form": form, "backend": backend, "chunk_size": chunk_size}
    state = None if case.past == "none" else linnet.State(x.s0, x.z0)
    pieces = piece_indices(x, cuts if case.past == "split" else [])
    outs = []
    for number, at in enumerate(pieces):
        tokens = torch.cat(at)
        cu = None if x.offsets is None else torch.tensor([0, *(len(i) for i in at)]).cumsum(0)
        q = x.q[:, tokens] if case.causal or x.offsets else x.q if number == len(pieces) - 1 else x.q[:, :0]
        mask = None if x.mask is None else x.mask[:, tokens]
        past = {"initial_state": state, "output_final_state": True}
        out, state = linnet.linear_attention(q, x.k[:, tokens], x.v[:, tokens], mask=mask, cu_seqlens=cu, **past, **how)
        outs.append(out)
    assert state is not None
    order = torch.cat([torch.cat(at) for at in pieces]).argsort()
    out = torch.cat(outs, dim=1)
    return (out[:, order] if case.causal or x.offsets else out), state.s, state.z


def piece_indices(x: Inputs, cuts: list[int]) -> list[list[Tensor]]:
    """Token numbers of each piece, one list per sequence; packed sequences are all cut at the same fractions."""
    T = x.k.shape[1]
    spans = list(pairwise(x.offsets or [0, T]))
    fractions = [0.0, *(c / max(T, 1) for c in sorted(cuts)), 1.0]
    edge = lambda lo, hi, f: lo + round((hi - lo) * f)  # noqa: E731
    return [[torch.arange(edge(lo, hi, f), edge(lo, hi, g)) for lo, hi in spans] for f, g in pairwise(fractions)]


def compare(case: Case, seed: int = 0, chunk_size: int | None = None, cuts: list[int] | None = None) -> None:
    """Output, final state and every gradient against the reference."""
    if case.where[1] == "native" and not info()["loaded"]:
        pytest.skip(f"no native backend: {info()['reason']}")
    if not case.causal and case.packed and case.past == "split":
        case = case._replace(past="given")  # cutting a packed self-attention would change what its queries see
    rng = random.Random(seed)
    cuts = sorted(rng.randint(0, case.length) for _ in range(2)) if cuts is None else cuts
    x = draw(case, seed)
    phi = MAPS[case.map]().to(case.where[2])
    for p in phi.parameters():
        torch.nn.init.normal_(p, 0.5, 0.2, generator=torch.Generator().manual_seed(seed))
    wide, wide_x = copy.deepcopy(phi).double(), Inputs(*(y.to(torch.float64, copy=True) for y in x[:5]), *x[5:])
    for y in (*x[:5], *wide_x[:5]):
        y.requires_grad_()
    got = with_gradients(by_linnet(case, x, phi, cuts, chunk_size), x, phi, seed)
    want = with_gradients(by_reference(case, wide_x, wide), wide_x, wide, seed)
    names = ("out", "s", "z", "dq", "dk", "dv", "ds0", "dz0", *(f"d {n}" for n, _ in phi.named_parameters()))
    for i, (name, a, b) in enumerate(zip(names, got, want, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, case.where[2]), f"{case}: {name}"
        limit = TOLERANCE[a.dtype]
        if (
            error(a, b) > limit and a.dtype == torch.float32
        ):  # phi(q) next to 0: the dense equation in float32 is as far
            limit = 1.5 * error(with_gradients(by_reference(case, x, phi), x, phi, seed)[i], b)
        assert error(a, b) <= limit, f"{case}: {name}: error {error(a, b):.1e}"
    if x.mask is not None:
        for a in (*got[4:6], *((got[0], got[3]) if case.causal else ())):
            assert (a[~x.mask] == 0).all(), f"{case}: padding is not exactly 0"


def with_gradients(result: tuple[Tensor, ...], leaves: Inputs, phi: Any, seed: int) -> list[Tensor]:
    """The result, then the gradients of a random sum over output and final state."""
    g = torch.Generator().manual_seed(seed + 1)
    weights = [torch.randn(y.shape, generator=g).to(y.dtype) for y in result]
    total = sum((w * y).sum() for w, y in zip(weights, result, strict=True))
    wanted = [*leaves[:5], *phi.parameters()]
    return [*result, *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)]


def error(a: Tensor, b: Tensor) -> float:
    if a.numel() == 0:
        return 0.0
    b = b.detach().double()
    return float((a.detach().double() - b).abs().max() / b.abs().max().clamp(min=FLOOR[a.dtype]))


@pytest.mark.parametrize("case", pairs(), ids=str)
def test_every_pair_of_choices(case: Case) -> None:
    compare(case, seed=len(str(case)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("where", WHERE, ids=lambda w: f"{w[0]}.{w[1]}.{str(w[2])[6:]}")
def test_every_length(where: tuple[str, str, torch.dtype], name: str) -> None:
    """All lengths with all kinds of attention; padding, packing and past take turns."""
    turns = list(product(AXES["padding"], AXES["packed"], AXES["past"]))
    turn = WHERE.index(where) + list(MAPS).index(name)
    for causal, normalize, length in product(AXES["causal"], AXES["normalize"], AXES["length"]):
        turn += 5  # prime to 24: every combination comes up
        case = Case(where, name, causal, normalize, length, *turns[turn % len(turns)])
        if not case.impossible:
            compare(case, seed=turn)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("where", WHERE, ids=lambda w: f"{w[0]}.{w[1]}.{str(w[2])[6:]}")
def test_every_layout(where: tuple[str, str, torch.dtype], name: str) -> None:
    """The whole product of padding, packing and past, over a few chunks of 4 tokens."""
    others = (AXES[axis] for axis in ("causal", "normalize", "padding", "packed", "past"))
    for seed, (causal, normalize, *layout) in enumerate(product(*others)):
        case = Case(where, name, causal, normalize, 11, *layout)
        if not case.impossible:
            compare(case, seed=seed, chunk_size=4)


@settings(max_examples=300, derandomize=True, database=None)
@given(data=st.data())
def test_any_split_and_padding(data: st.DataObject) -> None:
    """The state handed on at any cuts, with any padding, in chunks of any size, is the whole sequence at once."""
    T = data.draw(st.integers(0, 40))
    available = [w for w in WHERE if w[0] != "recurrent" and (w[1] != "native" or info()["loaded"])]
    where = data.draw(st.sampled_from(available))
    name = data.draw(st.sampled_from(["elu", "taylor", "rebased", "identity"]))
    packed, normalize = data.draw(st.booleans()), data.draw(st.booleans())
    case = Case(where, name, True, normalize, T, data.draw(st.sampled_from(AXES["padding"])), packed, "split")
    cuts = data.draw(st.lists(st.integers(0, T), max_size=4))
    compare(case, seed=data.draw(st.integers(0, 10_000)), chunk_size=data.draw(st.integers(1, 48)), cuts=cuts)


@pytest.mark.parametrize(("name", "d", "v"), [(name, d, v) for d, v, *names in WIDTHS for name in names])
def test_any_width(name: str, d: int, v: int) -> None:
    """Odd widths, one token more than a block, a state before and after: what a vector kernel gets wrong first."""
    g = torch.Generator().manual_seed(d)
    q, k = (torch.randn(2, 67, 3, d, generator=g) / d**0.5 for _ in range(2))
    inputs = [q, k, torch.randn(2, 67, 3, v, generator=g)]
    phi = maps.resolve(name, d)
    mapped = [reference.features(phi.core.kind, phi.core.coeffs, x.double()) for x in inputs[:2]]
    zeros = torch.zeros(2, 3, phi.feature_dim, v, dtype=torch.float64)
    out, s, z = reference.attention(*mapped, inputs[2].double(), zeros, zeros[..., 0])
    got, state = linnet.linear_attention(*inputs, feature_map=name, output_final_state=True)
    assert state is not None
    for a, b, what in ((got, out, "out"), (state.s, s, "s"), (state.z, z, "z")):
        assert error(a, b) <= TOLERANCE[torch.float32], what


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_reference_itself_by_finite_differences(causal: bool, normalize: bool) -> None:
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, n, 2, 3, generator=g, dtype=torch.float64) for n in (4 if causal else 3, 4))
    rest = (torch.randn(*n, generator=g, dtype=torch.float64) for n in ((1, 4, 2, 2), (1, 2, 9, 2), (1, 2, 9)))
    inputs = [x.requires_grad_() for x in (q, k, *rest)]
    mask = torch.tensor([[True, False, True, True]])

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor, z0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        phi_q, phi_k = (reference.features("polynomial", (0.0, 1.0, 0.5), x) for x in (q, k))
        how = {"mask": mask, "causal": causal, "normalize": normalize, "scale": 0.7, "eps": 0.1}
        return reference.attention(phi_q, phi_k, v, s0, z0.exp(), **how)

    assert torch.autograd.gradcheck(run, inputs)
