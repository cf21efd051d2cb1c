"""The JSON reader and the schema: every error is one sentence with the file, the field and what is accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linnet.errors import StateError
from linnet.json_file import parse_json, read_json, read_lines, read_object
from linnet.limits import LIMITS
from linnet.schema import Accepts, Each, Flag, Maybe, Number, Record, Table, Text, Whole, check

DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * DEEP, "nested deeper than 64 levels"),
        ('{"a":' * DEEP, "nested deeper than 64 levels"),
        ("[" * 70 + "]" * 70, "nested deeper than 64 levels"),
        ('{"a": 1, "a": 2}', "the name 'a' twice"),
        ("[NaN]", "NaN is not finite"),
        ("[1e999]", "1e999 is not finite"),
        ("[" + "9" * 30 + "]", "does not fit in 64 bits"),
        ("[" + "9" * 5000 + "]", "does not fit in 64 bits"),
        ("", "Expecting value"),
        ('["\\ud800"]', "a lone surrogate"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str | bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(StateError) as caught:
        read_json(path, "copy it again", refuse=StateError)
    message = str(caught.value)
    assert message.startswith(f"{path} is not JSON that can be read (")
    assert why in message
    assert message.endswith("; copy it again")
    assert "\n" not in message


def test_sizes_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "JSON_BYTES", 100)
    monkeypatch.setattr(LIMITS, "JSON_ITEMS", 10)
    (tmp_path / "long").write_text(json.dumps("a" * 200))
    with pytest.raises(ValueError, match="long has 202 bytes; accepted: JSON of 100 at most; shorten it"):
        read_json(tmp_path / "long", "shorten it")
    with pytest.raises(ValueError, match=r"it has 21 values, and at most 10 are accepted"):
        parse_json("[" + "1," * 19 + "1]", "a", "shorten it")
    with pytest.raises(ValueError, match=r"gone cannot be read .No such file"):
        read_json(tmp_path / "gone", "look for it")


def test_valid_json_round_trips() -> None:
    value = {"a": [1, -2.5, None, True, "é", "\U0001f426"], "b": {"c": {}}, "d": -(2**63), "e": 2**63 - 1}
    assert parse_json(json.dumps(value), "a", "") == value
    assert str(parse_json("[NaN, -Infinity]", "a", "", nan=True)) == "[nan, -inf]"


def test_read_object_accepts_only_an_object(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[1]")
    with pytest.raises(ValueError, match="a holds a JSON array; accepted: an object; fetch it again"):
        read_object(tmp_path / "a", "fetch it again")


def test_a_damaged_line_affects_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "LINE_BYTES", 1 << 12)
    (tmp_path / "a").write_bytes(b'{"a": 1}\n' + b"[" * 3000 + b'\n{"b\n\xff\n"' + b"x" * 9000 + b'"\n[2]\n{"torn": ')
    lines = list(read_lines(tmp_path / "a"))
    assert [(line.number, line.value) for line in lines if not line.problem] == [(1, {"a": 1}), (6, [2])]
    assert [line.number for line in lines if line.problem] == [2, 3, 4, 5]


SCHEMA = Record(
    {"step": Whole(1, 9), "runs": Each(Record({"seconds": Number(0)}, {"name": Text("a", "b")}))},
    {"loss": Maybe(Number()), "on": Flag(), "more": Table(Accepts())},
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 0}, "f.json: step is 0; accepted: a whole number from 1 to 9; copy it"),
        ({"step": True}, "step is True; accepted: a whole number"),
        ({"step": 1.0}, "step is 1.0; accepted: a whole number"),
        ({"runs": {}}, "runs is {}; accepted: an array"),
        ({"runs": [{"seconds": -1}]}, "runs[0].seconds is -1; accepted: a number of 0 or more"),
        ({"runs": [{"seconds": 1}, {}]}, "runs[1].seconds is missing; accepted: a number"),
        ({"runs": [{"seconds": 1, "name": "c"}]}, "runs[0].name is 'c'; accepted: 'a' or 'b'"),
        ({"loss": "low"}, "loss is 'low'; accepted: a number, or null"),
        ({"loss": float("nan")}, "loss is nan; accepted: a number, or null"),
        ({"on": 1}, "on is 1; accepted: true or false"),
        ({"more": 1}, "more is 1; accepted: an object"),
        ({"strange": 1}, "strange is 1; accepted: only step, runs, loss, on, more"),
        ({"step": "x" * 500}, f"step is '{'x' * 76}...; accepted"),
    ],
)
def test_the_field_that_does_not_match_is_named(change: dict[str, Any], message: str) -> None:
    good = {"step": 1, "runs": [{"seconds": 0.5}], "loss": None, "on": False, "more": {"a": []}}
    assert check(good, SCHEMA, "f.json", "copy it") == good
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        check(good | change, SCHEMA, "f.json", "copy it")
    assert message in str(caught.value)
