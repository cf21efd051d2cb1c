"""The scoreboard of `linnet reproduce` as plain strings, the same in the terminal, in the README and on the page.

    scoreboard_rows(document)   a line for each claim: verdict, question, what was measured, ours, the paper's
    markdown(document)          that as a table for each paper, then a short block for each claim
    csv(document)               a line for each number, for a spreadsheet

The document comes from linnet/labs/claims/document.py; nothing is computed here.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from csv import writer
from typing import Any, NamedTuple

from .page import sentence

Document = Mapping[str, Any]
TITLE = "Linear transformers: what the papers say, and what this machine found"
MARKS = {"confirmed": "✓", "refuted": "✗", "unclear": "?", "not testable": "–", "error": "!"}
HEAD = ("", "Question", "Verdict", "What is measured", "Paper", "Here")
COLUMNS = "claim paper number question outcome what paper_value ours low high of unit command".split()


class Headline(NamedTuple):
    """The first number of a claim as text, each field "" if there is none."""

    what: str = ""
    ours: str = ""
    paper: str = ""
    spread: str = ""


class Line(NamedTuple):
    """One claim on the scoreboard."""

    name: str
    number: str
    question: str
    outcome: str
    headline: Headline


def headline(claim: Mapping[str, Any]) -> Headline:
    if not claim["numbers"]:
        return Headline()
    first = claim["numbers"][0]
    return Headline(
        first["what"], first["shown"], first["paper"] or "", "" if first["spread"] == "-" else first["spread"]
    )


def scoreboard_rows(document: Document) -> list[tuple[Mapping[str, Any], list[Line]]]:
    """Return every paper with the lines of its claims."""
    return [(paper, [line(claim) for claim in of_paper(document, paper)]) for paper in document["papers"]]


def of_paper(document: Document, paper: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [claim for claim in document["claims"] if claim["paper"] == paper["key"]]


def line(claim: Mapping[str, Any]) -> Line:
    return Line(claim["name"], claim["number"], claim["question"], claim["outcome"], headline(claim))


def titled(claim: Mapping[str, Any]) -> str:
    """Return the number and the question of a claim."""
    return " ".join(filter(None, (claim["number"], claim["question"])))


def summary(document: Document) -> str:
    """Return what this is in one sentence."""
    claims, machine = len(document["claims"]), document["machine"]
    where = f"{machine['name']}, {machine['cores']} cores" if machine.get("name") else "no machine so far"
    return (
        f"{claims} claim{'' if claims == 1 else 's'} about linear transformers, each put to the test on one machine "
        f"and judged by a rule that stands beside it. Budget {document['budget']}, "
        f"{document['minutes']:.1f} minutes on {where}."
    )


def counted(document: Document) -> str:
    """Return the number of each verdict in words."""
    return ", ".join(f"{count} {outcome}" for outcome, count in document["counts"].items() if count)


def provenance(document: Document) -> list[tuple[str, str]]:
    """Return where the numbers come from: machine, versions, commit, budget, data, time."""
    machine, versions = document["machine"], document["versions"]
    commits = [commit for commit in document["commits"] if commit != document["commit"]]
    origin = {
        "Machine": f"{machine.get('name', '')}, {machine.get('cores', '?')} cores, {machine.get('machine', '')}",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Commit": document["commit"] or "not in a repository",
        "Rows of other commits too": ", ".join(commits),
        "Budget": document["budget"],
        "Data": ", ".join(document["data"]) or "what ships with linnet",
        "Began": document["started"],
        "Time": f"{document['minutes']:.1f} minutes, {document['rows']:,} rows",
        "Lines that could not be read": "; ".join(document.get("damaged", ())),
        "Once more": f"linnet reproduce all --budget {document['budget']}",
        "This page again, from its rows": "linnet report FOLDER",
    }
    return [(name, words) for name, words in origin.items() if words]


def markdown(document: Document) -> str:
    """Return the scoreboard and the finding of each claim."""
    parts = [f"# {TITLE}", _plain(f"{summary(document)} {counted(document).capitalize()}."), scoreboard(document)]
    for paper in document["papers"]:
        parts.append(f"## {_plain(paper['title'])}")
        parts += [_block(claim) for claim in of_paper(document, paper)]
    parts.append("## Where the numbers come from")
    parts.append("\n".join(f"- {name}: {_plain(words)}" for name, words in provenance(document)))
    return "\n\n".join(parts) + "\n"


def scoreboard(document: Document) -> str:
    """Return the tables alone, for the README."""
    parts = []
    for paper, lines in scoreboard_rows(document):
        rows = [HEAD, ["---"] * len(HEAD), *map(_cells, lines)]
        parts.append(f"**{_plain(paper['title'])}**")
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def _cells(line: Line) -> list[str]:
    first = line.headline
    ours = " ".join(filter(None, (first.ours, first.spread)))
    verdict = f"{MARKS[line.outcome]} {line.outcome}"
    return [_plain(words) for words in (line.number, line.question, verdict, first.what, first.paper, ours)]


def _block(claim: Mapping[str, Any]) -> str:
    parts = [
        f"### {_plain(titled(claim))}",
        f"**{claim['outcome'].capitalize()}.** {_plain(sentence(claim['sentence']))}",
    ]
    parts.append("\n".join(f"- {_plain(number_text(one))}" for one in claim["numbers"]))
    parts.append("\n".join(f"- Error: {_plain(error)}" for error in claim["errors"]))
    parts.append(_plain(sentence(claim["meaning"])))
    parts.append(f"Repeat: `{claim['command']}`")
    return "\n\n".join(filter(None, parts))


def number_text(number: Mapping[str, Any]) -> str:
    ours = number["shown"] + ("" if number["spread"] == "-" else f" {number['spread']}")
    return f"{number['what']}: {ours}" + (f"; the paper: {number['paper']}" if number["paper"] else "")


def _plain(words: str) -> str:
    """Escape what Markdown would interpret."""
    for sign, harmless in (("\\", "\\\\"), ("|", "\\|"), ("*", "\\*"), ("<", "&lt;")):
        words = words.replace(sign, harmless)
    return " ".join(words.split())


def csv(document: Document) -> str:
    """Return one line for each number, and one for a claim without any."""
    out = io.StringIO(newline="")
    rows = writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for claim in document["claims"]:
        first = [claim[name] for name in ("name", "paper", "number", "question", "outcome")]
        for number in claim["numbers"] or [{}]:
            rows.writerow([*first, *_fields(number), claim["command"]])
    return out.getvalue()


def _fields(number: Mapping[str, Any]) -> Sequence[Any]:
    return ["" if (v := number.get(name)) is None else v for name in "what paper ours low high of unit".split()]
