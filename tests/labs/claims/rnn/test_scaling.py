"""T4: the rule's outcomes on times that are known, the numbers a reader sees, and one crossover for T4 and T13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from linnet.labs.claims.open import short
from linnet.labs.claims.open.crossover import SHAPE
from linnet.labs.claims.rnn import scaling, scaling_timing
from linnet.labs.claims.rnn.scaling_timing import FUSED, LINEAR, MATRIX
from linnet.labs.core.claim import OF_EVERY_CLAIM, Setting
from linnet.labs.core.verdicts import CLOSE, FAILS, HOLDS, UNTESTED

PARTS = {
    "short": {LINEAR: [64, 256, 512], FUSED: [64, 256, 512], MATRIX: [64, 256, 512]},
    "middle": {LINEAR: [1024, 2048, 4096], FUSED: [1024, 2048, 4096], MATRIX: [1024]},
    "long": {LINEAR: [4096, 8192, 16384]},
}
QUIET = (1.0, 1.1, 1.2, 1.0, 1.1)
NOISY = (1.0, 2.0, 4.0, 8.0, 16.0)


def rows(
    power: float = 1.0,
    steep: float = 2.0,
    cost: float = 128.0,
    linear_bytes: int | None = 100,
    memory: float = 1.0,
    parts: int = 3,
    pace: Sequence[float] = QUIET,
    bent: float = 0.0,
    cross: Sequence[float] = (2.0, 0.5, 0.25),
) -> list[dict[str, Any]]:
    """Linear takes cost T^power, softmax T^steep; bent: more of the power in the first round; cross: T13's ratios."""
    collected = []
    for part, variants in list(PARTS.items())[:parts]:
        measured: dict[str, Any] = {}
        for variant, lengths in variants.items():
            measured[variant] = {}
            for n in lengths:
                ms = cost * n**power if variant == LINEAR else n**steep
                sizes = {LINEAR: (linear_bytes or 0) * n * (n / 4096) ** (memory - 1), FUSED: 150 * n, MATRIX: n * n}
                times = [x * ms * ((n / 4096) ** bent if turn == 0 else 1) for turn, x in enumerate(pace)]
                measured[variant][str(n)] = {"ms": times, "bytes": sizes[variant] if linear_bytes else None}
        collected.append({"config": {"experiment": "scaling", "part": part}, "metrics": {"arms": measured}})
    return [*collected, *([crossing(cross)] if cross else [])]


def crossing(ratios: Sequence[float]) -> dict[str, Any]:
    """Return a row of T13: softmax takes a second at 16, 64 and 512 tokens, linear the ratio."""
    config = {"experiment": "short speed", "what": "op", "threads": 2, "lengths": [16, 64, 512], **SHAPE}
    metrics = {"linear": [[ratio] * 5 for ratio in ratios], "softmax": [[1.0] * 5 for _ in ratios]}
    return {"config": config, "metrics": metrics}


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, HOLDS),
        ({"power": 1.2}, FAILS),  # all of the interval beside 1
        ({"steep": 1.6, "cost": 1.0}, FAILS),
        ({"bent": 0.3}, CLOSE),  # one round of five with another slope
        ({"cost": 600.0}, FAILS),  # slower at 512
        ({"linear_bytes": 151}, FAILS),  # larger than fused softmax
        ({"memory": 1.2}, FAILS),
        ({"cross": (2.0, 2.0, 2.0)}, FAILS),  # no crossover up to 512
        ({"linear_bytes": None}, UNTESTED),
        ({"cross": ()}, UNTESTED),
        ({"pace": NOISY}, UNTESTED),
        ({"pace": NOISY, "power": 1.2}, UNTESTED),
        ({"pace": QUIET[:4]}, UNTESTED),
        ({"parts": 1}, UNTESTED),
        ({"parts": 2}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    finding = scaling.read(rows(**how))
    assert finding.outcome == outcome, finding.sentence


def test_numbers() -> None:
    finding = scaling.read(rows())
    linear, fused, _, even, lead, *memory = finding.numbers
    assert (linear.ours, fused.ours) == (pytest.approx(1), pytest.approx(2))
    assert lead.ours == pytest.approx(4096 / 128)
    assert even.ours == pytest.approx(32)
    assert [one.ours for one in memory] == [pytest.approx(x) for x in (1, 1, 2, 1.5, 1024 / 100)]
    assert "4,096 tokens" in lead.what
    assert (lead.of, lead.low) == ("5 rounds", pytest.approx(32))
    assert "from 32 tokens" in finding.meaning


@pytest.mark.parametrize("ratios", [(2.0, 0.5, 0.25), (0.9, 0.5, 0.25), (2.0, 2.0, 2.0)])
def test_the_crossover_is_that_of_t13(ratios: Sequence[float]) -> None:
    """The same row is read by the same function, and every budget measures it once for both claims."""
    row = crossing(ratios)
    step = {**row, "config": {**row["config"], "what": "step"}}
    assert short.read([row, step]).numbers[0] == scaling.read(rows(cross=ratios)).numbers[3]
    for budget in OF_EVERY_CLAIM:
        ours, theirs = (set(claim.keys(Setting(budget))) for claim in (scaling.CLAIM, short.CLAIM))
        assert len(ours & theirs) == 1


def test_lengths_below_the_paper_s_show_no_second_crossover() -> None:
    finding = scaling.read(rows())
    assert {row[0] for row in finding.tables[0].rows} == {"512", "1,024", "2,048", "4,096", "8,192", "16,384"}
    assert min(point[0] for chart in finding.charts for line in chart.series.values() for point in line) == 512  # type: ignore[union-attr]


def test_where_it_loses_is_said() -> None:
    assert "faster than softmax, fused at 512 tokens" in scaling.read(rows(cost=600.0)).sentence
    assert "smaller than softmax, fused at 4,096 tokens" in scaling.read(rows(linear_bytes=151)).sentence
    assert "this system does not say" in scaling.read(rows(linear_bytes=None)).sentence


def test_the_matrix_written_out_is_softmax() -> None:
    result = scaling_timing.race({"arms": {MATRIX: [33]}, "heads": 2, "width": 8, "tokens": 66, "rounds": 2})
    assert result["arms"][MATRIX]["33"]["error"] < 1e-5
    assert len(result["arms"][MATRIX]["33"]["ms"]) == 2


def test_a_variant_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_timing, "fused", lambda q, k, v: scaling_timing.matrix(q, 1.01 * k, v))
    with pytest.raises(RuntimeError, match="softmax, fused at 33 tokens: off by"):
        scaling_timing.race({"arms": {FUSED: [33]}, "heads": 2, "width": 8, "tokens": 66, "rounds": 2})
