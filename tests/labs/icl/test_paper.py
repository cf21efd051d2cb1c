"""The paper's numbers: all there, spot values as printed, and the floors recomputed from their closed forms."""

from __future__ import annotations

import pytest
import torch

from linnet.labs.icl.noise import PAPER_NOISE, Noise
from linnet.labs.icl.paper import BASELINES, EXACT, LAYERS, NAMES, NOTES, TABLE1, D, N, floor, impossible

DRAWS = 20_000  # of Sigma, to recompute the floors
ERRORS = 4  # standard errors they may be off
KINDS = ("gd++", "diag", "full")
SUMS = {  # of U1 to {1,3,5}, by layers: what a slip of the pen would change
    "gd++": (9.605, 3.218, 2.484, 2.47, 2.478, 2.473, 2.473),
    "diag": (9.604, 1.996, 0.838, 0.423, 0.338, 0.313, 0.305),
    "full": (9.612, 2.041, 0.797, 0.418, 0.317, 0.286, 0.271),
}
BASELINE_SUMS = {"const_rr": 2.494, "ada_rr": 0.482, "tuned_rr": 0.324}


def test_every_cell_is_there() -> None:
    assert set(TABLE1) == {(kind, layers, name) for kind in KINDS for layers in LAYERS for name in NAMES}
    assert set(BASELINES) == {(row, name) for row in ("const_rr", "ada_rr", "tuned_rr") for name in NAMES}
    assert (len(TABLE1), len(BASELINES)) == (210, 30)
    assert set(EXACT) == set(NAMES)
    assert set(NOTES) <= set(TABLE1)


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        (("gd++", 1, "U0"), 1.768),
        (("diag", 1, "U5"), 0.906),
        (("gd++", 2, "U6"), 0.440),
        (("full", 2, "{1,3,5}"), 0.276),
        (("full", 3, "U3"), 0.075),
        (("diag", 4, "U0"), 1.19e-4),
        (("full", 6, "U5"), 0.044),
        (("full", 7, "U5"), 0.047),
        (("diag", 7, "{1,3}"), 0.018),
        (("full", 7, "{1,3,5}"), 0.035),
    ],
)
def test_spot_values(cell: tuple[str, int, str], printed: float) -> None:
    assert TABLE1[cell] == printed


def test_spot_baselines() -> None:
    cells = (("const_rr", "U5"), ("ada_rr", "U7"), ("tuned_rr", "{1,3}"), ("tuned_rr", "U0"))
    assert [BASELINES[cell] for cell in cells] == [0.365, 0.092, 0.021, 0.0]


def test_rows_add_up() -> None:
    for kind, sums in SUMS.items():
        result = [sum(TABLE1[kind, layers, name] for name in NAMES[1:]) for layers in LAYERS]
        assert result == pytest.approx(sums, abs=1e-9)
    assert {row: round(sum(BASELINES[row, name] for name in NAMES), 3) for row in BASELINE_SUMS} == BASELINE_SUMS
    least = [TABLE1[kind, layers, "U0"] for layers in (4, 5, 6, 7) for kind in KINDS]
    assert least == [9.91e-5, 1.19e-4, 1.63e-4, 1.14e-7, 1.81e-7, 1.79e-7, 2.37e-10, 2.57e-10, 2.71e-10, 2.65e-12,
                     2.50e-12, 2.50e-12]  # fmt: skip


def test_depth_helps_but_for_the_cells_where_it_does_not() -> None:
    """A column rises by more than its rounding only where the paper's does: GD++ at its floor, and FULL on U5."""
    rises = {
        (kind, layers, name)
        for kind, layers, name in TABLE1
        if layers > 1 and TABLE1[kind, layers, name] > TABLE1[kind, layers - 1, name] + 0.001
    }
    assert rises == {("gd++", 3, "U6"), ("gd++", 5, "U4"), ("full", 7, "U5")}


def test_baselines_are_in_order_and_models_with_q_y_beat_those_without() -> None:
    for name in NAMES:
        assert BASELINES["tuned_rr", name] <= BASELINES["ada_rr", name] <= BASELINES["const_rr", name]
        if name != "U0":
            for layers in LAYERS[2:]:
                assert max(TABLE1["diag", layers, name], TABLE1["full", layers, name]) < TABLE1["gd++", layers, name]


def test_the_cells_that_cannot_be_reached() -> None:
    cells = {(kind, layers, noise.name) for kind in KINDS for layers in LAYERS for noise in PAPER_NOISE
             if impossible(kind, layers, noise)}  # fmt: skip
    assert cells == {
        *(("gd++", layers, "U5") for layers in range(3, 8)),
        *(("gd++", layers, "{1,3,5}") for layers in range(3, 8)),
        ("gd++", 3, "U4"),
        ("gd++", 4, "U4"),
        ("gd++", 2, "U6"),
        *((kind, 1, name) for kind in KINDS for name in ("U0", "U1", "U2")),
    }


def test_the_reason_names_both_numbers() -> None:
    reason = impossible("gd++", 3, Noise.parse("U5"))
    assert reason is not None
    assert reason.startswith("printed 0.344, below the least possible 0.361: GD++ is a fixed filter")
    assert impossible("diag", 3, Noise.parse("U5")) is None
    assert impossible("gd++", 3, Noise.parse("U2.5")) is None
    assert impossible("gd++", 8, Noise.parse("U5")) is None


def test_no_noise_leaves_no_floor_but_that_of_one_layer() -> None:
    least = floor("full", 1, Noise.parse("U0"))
    assert least is not None
    assert least[0] == pytest.approx(5 * 11 / 31, rel=1e-12)
    assert [floor(kind, 4, Noise.parse("U0")) for kind in KINDS] == [(0.0, reason) for reason in _reasons()]


def _reasons() -> list[str]:
    return [result[1] for kind in KINDS if (result := floor(kind, 4, Noise.parse("U1")))]


@pytest.mark.parametrize("noise", PAPER_NOISE, ids=lambda noise: noise.name)
def test_oracle_and_const_rr_by_their_closed_forms(noise: Noise) -> None:
    """Given the eigenvalues v of Sigma: ½ sum s²/(v + s²), and ½ sum v (s² - c)² / ((v + c)² (v + s²)), c = E[s²]."""
    x = torch.randn(DRAWS, N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v = torch.linalg.eigvalsh(x.mT @ x)[:, None, :]  # [B,1,d]
    sigma, weight = noise.grid()
    s, c = sigma.square()[:, None], noise.mean_square  # [K,1]
    oracle = 0.5 * (s / (v + s)).sum(-1) @ weight
    const = 0.5 * (v * (s - c).square() / ((v + c).square() * (v + s))).sum(-1) @ weight
    for result, want in ((oracle, EXACT[noise.name].oracle), (const, EXACT[noise.name].const_rr)):
        error = float(result.std()) / DRAWS**0.5
        assert abs(float(result.mean()) - want) < ERRORS * error + 0.0001
        assert error < 0.001
