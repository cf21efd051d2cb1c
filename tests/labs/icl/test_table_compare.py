"""Ours beside the paper's: what counts as better, which seed is shown, what the document holds."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from linnet.labs.core import Row, make_row
from linnet.labs.icl.table_compare import compare, document, half_unit

EXACT = 1e-12


def metrics(sharp: float, se: float = 0.0, query_se: float = 0.0, count: int = 100_000) -> dict[str, Any]:
    result = {"sharp": sharp, "sharp_se": se, "query_se": query_se, "count": count, "loss": sharp, "se": se}
    return result | {"median": sharp, "trimmed": sharp, "diverged": 0.0, "oracle": 1.0}


def cell(kind: str, layers: int, noise: str, sharp: float, seed: int = 0, **more: Any) -> Row:
    config = {"experiment": "icl-table", "kind": kind, "layers": layers, "noise": noise, "seed": seed, "recipe": "fast"}
    return make_row({**config, "sequences": 100_000}, metrics(sharp, **more), 1.5)


def rule(kind: str, noise: str, sharp: float) -> Row:
    config = {"experiment": "icl-table", "kind": kind, "noise": noise, "sequences": 100_000}
    return make_row(config, metrics(sharp), 0.5, {"c": 1.3})


@pytest.mark.parametrize(
    ("printed", "half"), [(0.047, 5e-4), (1.768, 5e-4), (0.0, 5e-4), (0.002, 5e-4), (1.19e-4, 5e-7), (2.65e-12, 5e-15)]
)
def test_rounding_is_half_a_unit_of_the_last_digit_printed(printed: float, half: float) -> None:
    assert half_unit(printed) == pytest.approx(half, rel=EXACT)


def test_z_counts_both_errors_and_the_rounding() -> None:
    error = math.sqrt(0.003**2 + 0.004**2 + 0.0005**2 / 3)
    z, mark = compare(metrics(0.36, 0.003, 0.004), 0.35)
    assert z == pytest.approx(0.01 / error, rel=EXACT)
    assert mark == "equal"


def test_the_error_of_the_paper_is_that_of_100_000_sequences() -> None:
    few, _ = compare(metrics(0.36, 0.0, 0.04, count=1_000), 0.35)
    many, _ = compare(metrics(0.36, 0.0, 0.004), 0.35)
    assert few == pytest.approx(many, rel=EXACT)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(0.3379, "better"), (0.3381, "equal"), (0.3619, "equal"), (0.3621, "worse")],
)
def test_two_errors_make_a_difference(ours: float, expected: str) -> None:
    assert compare(metrics(ours, 0.006), 0.35)[1] == expected


def test_an_error_that_hides_everything_does_not_make_equal() -> None:
    assert compare(metrics(8.0, 7.9), 0.35)[1] == "unclear"
    assert compare(metrics(0.02, 0.3), 0.35)[1] == "equal"  # below the paper's: no claim is made by it
    assert compare({**metrics(0.0), "sharp": None, "sharp_se": None}, 0.35) == (math.inf, "worse")


def test_exactly_the_papers_value_and_no_value() -> None:
    assert compare(metrics(0.0), 0.0) == (0.0, "equal")
    assert compare(metrics(0.1), None) == (None, None)


def test_the_best_seed_is_shown_and_all_are_kept() -> None:
    rows = [cell("diag", 3, "U5", value, seed) for seed, value in enumerate((0.12, 0.111, math.inf))]
    (result,) = document(rows, 1.0)["cells"]
    assert (result["seed"], result["sharp"], result["paper"], result["mark"]) == (1, 0.111, 0.118, "better")
    assert [(one["seed"], one["sharp"]) for one in result["seeds"]] == [(0, 0.12), (1, 0.111), (2, None)]


def test_a_value_no_model_can_have_is_not_held_against_ours() -> None:
    rows = [cell("gd++", 3, "U5", 0.361), cell("diag", 3, "U5", 0.361), cell("gd++", 3, "U3", 0.161)]
    impossible, equal, worse = document(rows, 1.0)["cells"]
    assert (impossible["model"], impossible["mark"]) == ("gd++", "impossible")
    assert "ConstRR" in impossible["reason"]
    assert (worse["mark"], worse["reason"], equal["mark"]) == ("worse", None, "equal")
    assert document(rows, 1.0)["counts"] == {"better": 0, "equal": 1, "worse": 1, "unclear": 0, "impossible": 1}


def test_the_document_is_strict_json_in_the_order_of_the_paper() -> None:
    rows = [cell("full", 2, "U5", 0.2), cell("gd++", 2, "U5", math.inf), cell("diag", 1, "U5", 0.9)]
    rows += [rule("tuned_rr", "U5", 0.05), rule("bayes", "U5", 0.04), cell("diag", 8, "=2", 0.1)]
    result = json.loads(json.dumps(document(rows, 12.345), allow_nan=False))
    assert (result["minutes"], result["recipe"], result["sequences"]) == (12.35, "fast", 100_000)
    assert {"machine", "versions", "commit"} <= result.keys()
    shown = [(one["layers"], one["model"]) for one in result["cells"]]
    assert shown == [(1, "diag"), (2, "gd++"), (2, "full"), (8, "diag")]
    assert result["cells"][1]["mark"] == "worse"
    assert (result["cells"][3]["paper"], result["cells"][3]["mark"]) == (None, None)
    tuned, bayes = result["baselines"]
    assert (tuned["model"], tuned["paper"], tuned["mark"], tuned["info"]) == ("tuned_rr", 0.049, "worse", {"c": 1.3})
    assert (bayes["paper"], bayes["mark"]) == (None, None)
