"""One sentence per layer: each rule says its clause on one side of its threshold and is silent on the other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from linnet.labs.icl.explain_layers import AtSigma, Layer, read_layers, run_at
from linnet.labs.icl.explain_words import describe
from tests.labs.icl.explained import solution

STILL = AtSigma(
    sigma=0.0, condition=6.0, condition_after=6.0, spectrum=(1.0, 1.0, 1.0), step=0.02, momentum=0.0, rescale=1.0,
    adapt=1.0, moved=0.5, a=1.0, u=0.0, w=1.0, m=0.0, gap=0.1,
)  # fmt: skip


def said(number: int = 2, dead: tuple[str, ...] = (), low: dict[str, Any] | None = None, **high: Any) -> str:
    """The sentence of a layer with these numbers at sigma = 5, and `low` at sigma = 0."""
    at = (replace(STILL, **(low or {})), replace(STILL, sigma=5.0, **high))
    return describe(Layer(number, (0.0, 0.0, 0.0, 0.0), dead, None, None, at))


def step_of(text: str) -> float:
    """The step that a sentence names: its last digit belongs to the processor, so it is read as a number."""
    match = re.search(r"step of ([0-9.]+[0-9])", text)
    assert match, text
    return float(match[1])


def test_a_plain_step() -> None:
    assert said() == "Takes a step of 0.02."
    assert said(step=0.0215) == "Takes a step of 0.02."
    assert said(step=0.01) == "Takes a step of 0.02 when sigma = 0 but 0.01 when sigma = 5."
    assert said(low={"moved": 0.01}, moved=0.019) == "Hardly moves the answer."
    assert said(low={"moved": 0.01}, moved=0.021) == "Takes a step of 0.02."


def test_steps_back() -> None:
    assert said(step=-0.06) == "Takes a step of 0.02 when sigma = 0 but steps back by 0.06 when sigma = 5."
    assert (
        said(low={"step": -0.02}, step=0.03)
        == "Steps back by 0.02 when sigma = 0 but takes one of 0.03 when sigma = 5."
    )
    assert said(low={"step": -0.02}, step=-0.02) == "Steps back by 0.02."


def test_bowl() -> None:
    assert said(low={"condition_after": 2.3}) == "Rounds the bowl (condition 6 -> 2.3), and takes a step of 0.02."
    assert said(low={"condition_after": 9.0}).startswith("Stretches the bowl (condition 6 -> 9)")
    assert "bowl" not in said(low={"condition_after": 5.5})
    assert "bowl" not in said(low={"condition_after": 2.3}, dead=("xx", "xy"))


def test_momentum() -> None:
    assert said(momentum=-0.02, step=0.02) == "Takes a step of 0.02 (momentum takes back 50 % of it when sigma = 5)."
    assert said(momentum=0.01, step=0.02) == "Takes a step of 0.02 (momentum adds 100 % of it when sigma = 5)."
    assert "(momentum turns it round when sigma = 5)" in said(momentum=-0.08, step=-0.02)
    assert "momentum" not in said(momentum=0.0009)


def test_rescaling() -> None:
    noisy = said(low={"rescale": 0.98}, rescale=0.88)
    want = "shrinks the answer by 12 % when sigma = 5 but 2 % when sigma = 0, because the labels look noisy."
    assert noisy == f"Takes a step of 0.02, and {want}"
    assert "shrinks the labels by 12 %" in said(number=1, low={"rescale": 0.98}, rescale=0.88)
    assert said(low={"rescale": 0.89}, rescale=0.88).endswith("and shrinks the answer by 12 %.")
    assert said(low={"rescale": 1.1}, rescale=1.3).endswith(
        "enlarges the answer by 30 % when sigma = 5 but 10 % when sigma = 0."
    )
    both = "shrinks the answer by 10 % when sigma = 5 but enlarges it by 10 % when sigma = 0, because"
    assert both in said(low={"rescale": 1.1}, rescale=0.9)
    assert "answer" not in said(rescale=0.995)
    assert "shrinks" not in said(rescale=0.8, dead=("xx", "xy", "yy"))


def test_later_steps() -> None:
    text = said(low={"adapt": 0.95}, adapt=0.7)
    assert text.endswith("and shortens the steps to come by 30 % when sigma = 5 but 5 % when sigma = 0.")
    assert "lengthens the steps to come by 10 %" in said(low={"adapt": 1.1}, adapt=1.1)
    text = said(low={"adapt": 0.75}, adapt=-0.08)
    assert text.endswith("turns the steps to come round when sigma = 5 but shortens them by 25 % when sigma = 0.")
    assert "to come" not in said(adapt=0.985)
    assert "to come" not in said(adapt=0.7, dead=("xx", "xy"))


def test_the_spec_solution_in_words() -> None:
    model = solution("U5")
    first, second, last = (
        describe(layer) for layer in read_layers(model, [run_at(model, s, 400, 0) for s in (0.0, 5.0)])
    )
    for word in ("Rounds the bowl", "shrinks the labels", "because the labels look noisy", "shortens"):
        assert word in first
    assert step_of(first) == pytest.approx(0.0155, rel=0.05)
    assert "shrinks the answer" in second
    assert last.startswith("Takes a step of ")
    assert step_of(last) == pytest.approx(0.06, rel=0.1)
    assert "momentum takes back" in last
    assert "enlarges the answer" in last


@pytest.mark.parametrize("number", [1, 2])
def test_one_noise_level_is_told_once(number: int) -> None:
    at = (replace(STILL, rescale=0.9),)
    text = describe(Layer(number, (0.0, 0.0, 0.0, 0.0), (), None, None, at))
    assert text == f"Takes a step of 0.02, and shrinks the {'labels' if number == 1 else 'answer'} by 10 %."
