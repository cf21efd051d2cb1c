"""T4: the rule's outcomes on times that are known, and the numbers a reader sees."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.labs.claims.rnn import scaling
from linnet.labs.claims.rnn.scaling import FUSED, LINEAR, MATRIX
from linnet.labs.core.claim import CONFIRMED, REFUTED, UNCLEAR, UNTESTED

PARTS = {
    "short": {LINEAR: [64, 256, 512], FUSED: [64, 256, 512], MATRIX: [64, 256, 512]},
    "middle": {LINEAR: [1024, 2048, 4096], FUSED: [1024, 2048, 4096], MATRIX: [1024]},
    "long": {LINEAR: [4096, 8192, 16384]},
}


def rows(
    power: float = 1.0, steep: float = 2.0, cost: float = 128.0, linear_bytes: int | None = 100, parts: int = 3
) -> list[dict[str, Any]]:
    """Linear takes cost T^power, softmax T^steep: equal at 128 tokens."""
    collected = []
    for part, variants in list(PARTS.items())[:parts]:
        measured: dict[str, Any] = {}
        for variant, lengths in variants.items():
            measured[variant] = {}
            for n in lengths:
                ms = cost * n**power if variant == LINEAR else n**steep
                size = {LINEAR: linear_bytes and linear_bytes * n, FUSED: linear_bytes and 150 * n, MATRIX: n * n}[
                    variant
                ]
                measured[variant][str(n)] = {"ms": [ms, 1.1 * ms, 1.2 * ms], "bytes": size if linear_bytes else None}
        collected.append({"config": {"part": part}, "metrics": {"arms": measured, "threads": 2}})
    return collected


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({}, CONFIRMED),
        ({"power": 1.2}, UNCLEAR),
        ({"steep": 1.6, "cost": 1.0}, UNCLEAR),
        ({"cost": 600.0}, UNCLEAR),  # slower at 512
        ({"linear_bytes": 151}, UNCLEAR),  # larger than fused softmax
        ({"linear_bytes": None}, UNCLEAR),
        ({"power": 1.75, "cost": 1.0}, REFUTED),
        ({"cost": 5000.0}, REFUTED),  # slower at the longest
        ({"parts": 1}, UNTESTED),
        ({"parts": 2}, UNTESTED),
    ],
)
def test_outcomes(how: dict[str, Any], outcome: str) -> None:
    finding = scaling.read(rows(**how))
    assert finding.outcome == outcome, finding.sentence


def test_numbers() -> None:
    even, linear, fused, lead, bytes_fused, bytes_matrix = scaling.read(rows()).numbers
    assert even.ours == pytest.approx(128)
    assert (linear.ours, fused.ours) == (pytest.approx(1), pytest.approx(2))
    assert lead.ours == pytest.approx(4096 / 128)
    assert bytes_fused.ours == pytest.approx(1.5)
    assert bytes_matrix.ours == pytest.approx(1024 / 100)
    assert "4,096 tokens" in lead.what
    assert (lead.of, lead.low) == ("3 rounds", pytest.approx(32))


def test_where_it_loses_is_said() -> None:
    assert "slower than softmax, fused at 512" in scaling.read(rows(cost=600.0)).sentence
    assert "larger than softmax, fused at 512, 1024, 2048, 4096" in scaling.read(rows(linear_bytes=151)).sentence
    assert scaling.read(rows(linear_bytes=None)).sentence.endswith("Memory was not measured: this system does not say.")


def test_never_slower_is_said_to_be_at_most_the_shortest() -> None:
    even = scaling.read(rows(cost=1.0)).numbers[0]
    assert even.ours == 64
    assert even.what.endswith("(or fewer: 64 was the shortest)")


def test_the_matrix_written_out_is_softmax() -> None:
    result = scaling.race({"arms": {MATRIX: [33]}, "heads": 2, "width": 8, "tokens": 66, "rounds": 2})
    assert result["arms"][MATRIX]["33"]["error"] < 1e-5
    assert len(result["arms"][MATRIX]["33"]["ms"]) == 2


def test_an_arm_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "fused", lambda q, k, v: scaling.matrix(q, 1.01 * k, v))
    with pytest.raises(RuntimeError, match="softmax, fused at 33 tokens: off by"):
        scaling.race({"arms": {FUSED: [33]}, "heads": 2, "width": 8, "tokens": 66, "rounds": 2})
