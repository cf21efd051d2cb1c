"""Docstrings, comments, messages and names use the words of the field: the worst tells of translated prose are refused.

PHRASES and NAMES list what is refused and what to write instead. A phrase is here only if it has no good use in this
package; for everything else read CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "linnet"
FROZEN = ("labs/claims", "labs/report/scoreboard.py")  # their strings are those of the committed report
KEPT = {("regress/model.py", "made")}  # fields of file formats

PHRASES = {  # pattern (words, any case) -> better
    r"anew": "again",
    r"as (it|they) comes?": "token by token, unbuffered",
    r"asked for": "requested",
    r"beside": "next to, compared with, in addition to",
    r"break(s|ing)? its word": "violates its contract",
    r"(go|goes|going|went) on": "continue",
    r"half-way": "halfway",
    r"hand(s|ed)? (it |them )?(on|back)": "pass on, return",
    r"(?<!there )is no (JSON|number|UTF-8|\w+ file|folder|option|tokenizer)": "is not a ...",
    r"looks? on": "observe",
    r"mend(s|ed)?": "correct",
    r"nobody": "name who",
    r"(of|on) (its|their|his) own": "its own, separate",
    r"on the way back": "in the backward pass",
    r"says? so": "report it",
    r"speaks? of": "describe",
    r"to be had": "available",
    r"(be|is|was|were|are|been) told": "receives, is passed",
    r"what came before": "the earlier tokens",
    r"what is to come out": "the output",
    r"whoever": "the caller, the reader",
}
NAMES = {  # of functions, arguments and variables -> better
    "aloud": "a verb that says what is returned",
    "found": "result, metrics, loaded: what it is",
    "heard": "decoded",
    "made": "what was created",
    "said": "message",
    "spelled": "formatted",
    "told": "message, report",
}
TELL = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)


def files(*left_out: str) -> list[str]:
    """The Python files of the package, relative to it."""
    paths = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    return [path for path in paths if not path.startswith(left_out)]


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string and every run of comments; {} stands for the values of an f-string."""
    inside = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            inside |= {id(part) for part in node.values}
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
    comments = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    for before, comment in zip([None, *comments], comments, strict=False):
        follows = before is not None and before.start == (comment.start[0] - 1, comment.start[1])
        yield comment.start[0], (f"{before.string} " if before and follows else "") + comment.string.lstrip("# ")


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of every function, argument and variable that a file defines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def better(tell: str) -> str:
    return next(words for pattern, words in PHRASES.items() if re.fullmatch(pattern, tell, re.IGNORECASE))


def test_prose_has_no_tells() -> None:
    tells = []
    for path in files(*FROZEN):
        for line, text in prose((PACKAGE / path).read_text(encoding="utf-8")):
            for match in TELL.finditer(" ".join(text.split())):
                tells.append(f"{path}:{line}: {match[0]!r}; write: {better(match[0])}")
    assert tells == []


def test_names_say_what_they_hold() -> None:
    tells = []
    for path in files():
        for line, name in names((PACKAGE / path).read_text(encoding="utf-8")):
            if (word := name.strip("_")) in NAMES and (path, name) not in KEPT:
                tells.append(f"{path}:{line}: {name}; better: {NAMES[word]}")
    assert tells == []


def test_a_tell_is_seen_in_strings_comments_and_names() -> None:
    """In an f-string, over a line break, and in a comment of two lines."""
    source = 'def told(x):\n    """It goes\n    on."""\n    raise ValueError(f"{x} is no JSON")  # as\n'
    source += "# what came\n# before\n"
    tells = [match[0] for _, text in prose(source) for match in TELL.finditer(" ".join(text.split()))]
    assert sorted(tells) == ["goes on", "is no JSON", "what came before"]
    assert [name for _, name in names(source) if name in NAMES] == ["told"]
    assert better("Goes on") == "continue"
