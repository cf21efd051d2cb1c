"""Argument errors: one sentence for people, fields for programs."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from linnet.errors import ArgumentError, Option, OptionError, is_number, is_whole, number, whole


def test_argument_error_is_a_sentence_with_fields() -> None:
    error = ArgumentError("top_p", 1.5, "a number from 0 to 1", "leave it out to draw from all tokens")
    assert isinstance(error, ValueError)
    assert str(error) == "top_p is 1.5; accepted: a number from 0 to 1; leave it out to draw from all tokens"
    assert (error.name, error.value, error.accepted) == ("top_p", 1.5, "a number from 0 to 1")
    assert str(ArgumentError("form", "quick", "'fast' or 'slow'")) == "form is 'quick'; accepted: 'fast' or 'slow'"


def test_argument_error_survives_a_process_boundary() -> None:
    error = ArgumentError("steps", -1, "0 or more", "see the guide")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ArgumentError
    assert str(again) == str(error)
    assert again.as_dict() == error.as_dict()


@pytest.mark.parametrize("value", [3, True, None, "x", 1.5, [1, 2], float("nan"), float("inf"), object(), np.int64(3)])
def test_fields_of_any_value_are_json(value: object) -> None:
    fields = ArgumentError("n", value, "1 or more", "a hint").as_dict()
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields
    assert list(fields) == ["name", "value", "accepted", "hint"]
    plain = value is None or (isinstance(value, str | int | float) and value == value and value != float("inf"))
    assert fields["value"] == (value if plain else repr(value))


@pytest.mark.parametrize("value", [0, 1, 5, 2**70])
def test_whole_returns_an_integer_within_bounds(value: int) -> None:
    assert whole("n", value, 0) == value
    assert is_whole(value, 0)


@pytest.mark.parametrize("value", [-1, True, False, 1.0, "1", None, np.int64(1)])
def test_whole_refuses_everything_else(value: object) -> None:
    assert not is_whole(value, 0)
    with pytest.raises(ArgumentError) as caught:
        whole("n", value, 0, hint="leave it out")
    assert str(caught.value) == f"n is {value!r}; accepted: a whole number, 0 or more; leave it out"


def test_whole_has_an_upper_bound() -> None:
    assert whole("n", 7, 1, 7) == 7
    with pytest.raises(ArgumentError, match=r"^n is 8; accepted: a whole number from 1 to 7$"):
        whole("n", 8, 1, 7)


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (0, 2**64 - 1, "from 0 to 2**64 - 1"),
        (-(2**63), 2**40, "from -2**63 to 2**40"),
        (-7, 2**20, "from -7 to 1048576"),
        (3, 2**40 + 1, "from 3 to 1099511627777"),
    ],
)
def test_large_bounds_are_written_as_powers(least: int, most: int, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        whole("n", None, least, most)
    assert caught.value.accepted == f"a whole number {words}"


@pytest.mark.parametrize("value", [0, 1, 0.5, 10**400, np.float64(0.25)])
def test_number_returns_a_finite_number_within_bounds(value: float) -> None:
    assert number("x", value, 0) == value
    assert is_number(value)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 1j, [0.5]])
def test_number_refuses_everything_else(value: object) -> None:
    assert not is_number(value)
    with pytest.raises(ArgumentError) as caught:
        number("x", value, hint="leave it out")
    assert str(caught.value) == f"x is {value!r}; accepted: a finite number; leave it out"


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "accepted"),
    [
        ({"least": 0}, 0, -1e-9, "a number of 0 or more"),
        ({"most": 1}, 1, 1.5, "a number up to 1"),
        ({"above": 0}, 1e-9, 0, "a number above 0"),
        ({"below": 1}, 0.999, 1, "a number below 1"),
        ({"least": 0, "most": 1}, 1, 2, "a number from 0 to 1"),
        ({"above": 0, "below": 1}, 0.5, 1.0, "a number between 0 and 1"),
        ({"least": 0, "below": 1}, 0, 1, "a number of 0 or more, below 1"),
        ({"above": 0, "most": 0.5}, 0.5, 0, "a number above 0, up to 0.5"),
    ],
)
def test_number_has_bounds(bounds: dict[str, float], inside: float, outside: float, accepted: str) -> None:
    assert number("x", inside, **bounds) == inside
    with pytest.raises(ArgumentError) as caught:
        number("x", outside, **bounds)
    assert caught.value.accepted == accepted


def test_option_error_names_the_options_that_help() -> None:
    drop = Option("missing", "drop", "leave such rows out")
    error = OptionError("a.csv has gaps", Option("fill", True, "repeat values"), drop, otherwise="choose other columns")
    ways = "pass fill=True to repeat values, missing='drop' to leave such rows out, or choose other columns"
    assert str(error) == f"a.csv has gaps; {ways}"
    flags = error.sentence(lambda name, value: f"--{name} {value}")
    assert "pass --fill True to repeat values, --missing drop to leave" in flags
    assert str(OptionError("it is damaged")) == "it is damaged"
    assert str(OptionError("it is damaged", otherwise="copy it again")) == "it is damaged; copy it again"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
