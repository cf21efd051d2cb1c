"""Marked blocks of Markdown files, written from the rows: README and documentation show no other numbers of claims.

    <!-- scoreboard --> ... <!-- end -->            the table of every claim
    <!-- evidence --> ... <!-- end -->              the counts in five lines, with a link to the report
    <!-- number NAME 0 -->text<!-- end -->          numbers[0] of claim NAME with its interval, within a sentence
    <!-- value NAME 0 -->text<!-- end -->           the same without its interval
    <!-- outcome NAME -->text<!-- end -->           holds, does not hold, ...

What stands between backticks or in a fenced block is left alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from .scoreboard import Claim, Document, as_text, evidence, plain, scoreboard

KINDS = ("scoreboard", "evidence", "number", "value", "outcome")
END = "<!-- end -->"
REPORT = "report.md"
CODE = r"(?P<code>^```.*?^```|`[^`\n]*`)"
MARKER = rf"<!-- (?P<kind>{'|'.join(KINDS)})(?P<rest>(?: [^\s>]+)*) -->"
BLOCK = re.compile(rf"{CODE}|{MARKER}(?P<body>(?:(?!<!--).)*<!-- end -->)?", re.DOTALL | re.MULTILINE)


def with_blocks(path: Path, text: str, document: Document, folder: Path) -> str:
    """Return the text of a Markdown file with every block replaced. folder: of the report, for links from `path`."""
    link = Path(os.path.relpath(folder / REPORT, path.parent)).as_posix()
    count = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        if match["code"]:
            return match[0]
        count += 1
        marker = f"<!-- {match['kind']}{match['rest']} -->"
        if match["body"] is None:
            raise ValueError(f"{path}: {marker} is not followed by {END}; close the block")
        try:
            content = _content(match["kind"], match["rest"].split(), document, link)
        except ValueError as error:
            raise ValueError(f"{path}: {marker}: {error}") from None
        return f"{marker}{content}{END}"

    replaced = BLOCK.sub(replace, text)
    if not count:
        raise ValueError(f"{path} has no block such as <!-- scoreboard --> ... {END}; accepted: {', '.join(KINDS)}")
    return replaced


def has_blocks(text: str) -> bool:
    return any(match["kind"] for match in BLOCK.finditer(text))


def _content(kind: str, words: list[str], document: Document, link: str) -> str:
    expected = {"scoreboard": 0, "evidence": 0, "outcome": 1}.get(kind, 2)
    if len(words) != expected:
        follow = "1 word follows" if len(words) == 1 else f"{len(words)} words follow"
        raise ValueError(f"{follow} {kind!r}; accepted: {('none', 'a claim', 'a claim and an index')[expected]}")
    if kind == "scoreboard":
        return f"\n{scoreboard(document)}\n"
    if kind == "evidence":
        return f"\n{evidence(document, link)}\n"
    claim = _claim(words[0], document)
    if kind == "outcome":
        return str(claim["outcome"])
    number = as_text(_number(claim, words[1]))
    interval = f" {number.interval}" if kind == "number" and number.interval else ""
    return plain(number.ours + interval)


def _claim(name: str, document: Document) -> Claim:
    for claim in document["claims"]:
        if claim["name"] == name:
            return claim
    raise ValueError(f"this run has no claim {name!r}; `linnet reproduce --list` names them all")


def _number(claim: Claim, index: str) -> dict[str, Any]:
    numbers = claim["numbers"]
    if not index.isdecimal() or int(index) >= len(numbers):
        accepted = f"0 to {len(numbers) - 1}" if numbers else "none, it has no numbers"
        raise ValueError(f"{claim['name']} has no number {index!r}; accepted: {accepted}")
    return dict(numbers[int(index)])
