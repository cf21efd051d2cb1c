"""The document of `explain`: plain numbers, the same for the same seed, for every kind and shape of model."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from linnet.json_file import finite_or_none
from linnet.labs.icl.evaluate import evaluate_model
from linnet.labs.icl.explain import explain, trained_noise
from linnet.labs.icl.noise import Noise
from linnet.regress.model import ICLConfig, ICLTransformer
from tests.labs.icl.explained import small, solution

QUICK: dict[str, Any] = {"sequences": 40, "ablation": False}


@pytest.mark.parametrize(
    "shape",
    [
        {"kind": "diag"},
        {"kind": "full", "layers": 3, "heads": 1},
        {"kind": "gd++", "heads": 3, "noise": "1,3"},
        {"kind": "diag", "layers": 1, "noise": "=2"},
        {"kind": "diag", "d": 5, "n": 4, "noise": "U0"},
        {"kind": "diag", "d": 1, "n": 2},
    ],
)
def test_every_kind_and_shape(shape: dict[str, Any]) -> None:
    model = small(**shape)
    document = explain(model, **QUICK)
    json.dumps(document, allow_nan=False)
    layers = model.config.layers
    assert [layer["number"] for layer in document["layers"]] == list(range(1, layers + 1))
    assert all(layer["sentence"].endswith(".") and "nan" not in layer["sentence"] for layer in document["layers"])
    assert len(document["distances"]) == layers
    assert document["ablation"] is None
    assert document["noise"] == Noise.parse(shape.get("noise", "U2")).name
    full = shape["kind"] == "full"
    assert all((layer["nearest"] is not None) == full for layer in document["layers"])
    inside = [row["sigma"] for row in document["profile"] if row["inside"]]
    assert [min(inside), max(inside)] == [document["levels"][0], document["levels"][-1]]


def test_a_number_of_each_part() -> None:
    model = solution("U5")
    document = explain(model, Noise.parse("U5"), sequences=200, ablation=False)
    assert document["score"]["sharp"] == evaluate_model(model, Noise.parse("U5"), 2000).sharp
    assert document["layers"][1]["omega"]["xy"] == pytest.approx(-0.00293)
    assert document["layers"][2]["dead"] == ["xx", "xy"]
    assert document["profile"][0]["scores"]["AdaRR"]["mean"] < 1e-12 < document["profile"][0]["scores"]["model"]["mean"]
    assert document["distances"][0]["gd"] < 0.1 < document["distances"][2]["gd"]
    assert document["parameters"] == 24


def test_same_seed_same_document() -> None:
    received: list[tuple[str, float]] = []
    first = explain(small(), **QUICK, report=lambda what, part: received.append((what, part)))
    assert first == explain(small(), **QUICK)
    assert first["layers"] != explain(small(), **QUICK, seed=1)["layers"]
    assert {what for what, _ in received} == {"layers", "noise levels"}
    assert all(0 <= part <= 1 for _, part in received)


def test_float32_weights_are_explained_in_float64() -> None:
    model = small()
    wide, narrow = (explain(one, **QUICK)["distances"][0]["ridge"] for one in (model, small().float()))
    assert narrow == pytest.approx(wide, rel=1e-5)
    single = small().float()
    explain(single, **QUICK)
    assert single.p.dtype.itemsize == 4


def test_ablation_is_in_the_document() -> None:
    rows = explain(small(layers=1, heads=1), sequences=20)["ablation"]
    assert [row["without"] for row in rows] == ["nothing", "xx", "xy", "yx", "yy", "xy and yy"]
    assert rows[3]["refit"] is None
    assert set(rows[0]["plain"]) == {"mean", "se", "median", "trimmed", "diverged"}


def test_refused() -> None:
    nameless = ICLTransformer(ICLConfig("diag", 2))
    with pytest.raises(ValueError, match="does not record its training noise; give it, such as --noise U5"):
        explain(nameless, **QUICK)
    with pytest.raises(ValueError, match="1 sequences were requested; accepted: 2 or more"):
        explain(small(), sequences=1)
    with pytest.raises(ValueError, match="the seed is -1; accepted: 0 to"):
        explain(small(), seed=-1)
    assert trained_noise(small(noise="1,3")) == Noise.parse("1,3")


def test_what_is_not_finite_is_none() -> None:
    assert finite_or_none({"a": (1.0, math.inf, [math.nan, "x"]), "b": None}) == {
        "a": [1.0, None, [None, "x"]],
        "b": None,
    }
