"""The worked example: every number is the spec's, and its three forms agree."""

from __future__ import annotations

import pytest

from linnet.labs.icl.explain_example import OMEGA, example_model, worked_example

EXACT = 1e-12
# A, b, c, d | M, u, a, w after | context x | context y | answer, from the spec's table
SPEC = [
    ((-0.5, -0.14, -0.7, -0.2), (0.5, -0.14, 0.8, 0.7), (0.36, 0.58), (0.1, 1.0), 0.7),
    (
        (-0.0932, -0.0308, -0.1848, -0.0505),
        (0.47496, -0.151592, 0.785472, 0.75705),
        (0.323368, 0.495144),
        (0.028422, 0.842316),
        0.75705,
    ),
]


def test_numbers_of_the_spec() -> None:
    document = worked_example()
    assert document["least squares"] == pytest.approx(1.4, abs=EXACT)
    assert document["residuals"] == pytest.approx([-0.4, 0.2], abs=EXACT)
    assert document["rho"] == pytest.approx(0.2, abs=EXACT)
    assert document["states"][0]["sums"] == {"Sigma": 5.0, "alpha": 7.0, "lambda": 10.0}
    assert document["states"][1]["sums"] == pytest.approx({"Sigma": 0.466, "alpha": 0.616, "lambda": 1.01}, abs=EXACT)
    for layer, state, omega, (maps, trace, x, y, answer) in zip(
        document["layers"], document["states"][1:], OMEGA, SPEC, strict=True
    ):
        assert tuple(layer["omega"].values()) == omega
        assert tuple(layer["map"].values()) == pytest.approx(maps, abs=EXACT)
        assert tuple(state["trace"].values()) == pytest.approx(trace, abs=EXACT)
        assert [token[0] for token in state["tokens"]] == pytest.approx(x, abs=EXACT)
        assert [token[1] for token in state["tokens"]] == pytest.approx(y, abs=EXACT)
        assert state["answer"] == pytest.approx(answer, abs=EXACT)


def test_tokens_trace_and_sums_agree() -> None:
    document = worked_example()
    for state in document["states"]:
        m, u, a, w = state["trace"].values()
        for (x, y), x0, y0 in zip(state["tokens"], document["x"], document["y"], strict=True):
            assert (x, y) == pytest.approx((m * x0 + y0 * u, a * y0 - w * x0), abs=EXACT)
        assert state["query"] == pytest.approx([m * document["query"], -w * document["query"]], abs=EXACT)
        sums = [sum(t[i] * t[j] for t in state["tokens"]) for i, j in ((0, 0), (0, 1), (1, 1))]
        assert list(state["sums"].values()) == pytest.approx(sums, abs=EXACT)
    assert example_model().config.d == 1
