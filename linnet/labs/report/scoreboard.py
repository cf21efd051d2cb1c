"""The scoreboard of `linnet reproduce` as plain strings, the same in the terminal, in the README and on the page.

    scoreboard_rows(document)   a line for each claim: outcome, statement, answer, deciding number, paper's, scope
    scoreboard(document)        that as a table for each paper, in Markdown
    evidence(document, link)    five lines of Markdown: the counts in all and for each paper
    markdown(document)          the tables, then a short block for each claim
    csv(document)               a line for each number, for a spreadsheet

The document comes from linnet/labs/claims/document.py; nothing is computed here.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from csv import writer
from typing import Any, NamedTuple

from .axes import readable
from .outcomes import SHOWN, agreements, in_words, slug
from .page import sentence

Document = Mapping[str, Any]
Claim = Mapping[str, Any]
TITLE = "Linear transformers: what the papers say, and what the evidence says"
WORK_TITLE = "What is missing, and what it would cost"
WORK_HEAD = ("claim", "stage", "rows", "core-hours spent", "core-hours left")
HEAD = ("", "Statement", "Outcome", "Answer", "What decides", "Here", "Paper", "Scope")
COLUMNS = (
    "claim paper number statement outcome answer scope deciding what paper_value ours low high of unit command".split()
)


class Headline(NamedTuple):
    """The deciding number of a claim as text, each field "" if there is none."""

    what: str = ""
    ours: str = ""
    paper: str = ""
    interval: str = ""  # "[0.61, 0.69]"
    of: str = ""  # "5 seeds"


class Line(NamedTuple):
    """One claim on the scoreboard."""

    name: str
    number: str
    statement: str
    outcome: str
    answer: str
    headline: Headline
    scope: str
    committed: str


def headline(claim: Claim) -> Headline:
    return as_text(claim["numbers"][0]) if claim["numbers"] else Headline()


def as_text(number: Mapping[str, Any]) -> Headline:
    """Return the parts of a number, rounded for people."""
    interval, _, of = ("" if number["spread"] == "-" else number["spread"]).partition(" of ")
    parts = (number["what"], number["shown"], number["paper"] or "", interval, of)
    return Headline(*map(readable, parts))


def scoreboard_rows(document: Document) -> list[tuple[Mapping[str, Any], list[Line]]]:
    """Return every paper with the lines of its claims."""
    return [(paper, [line(claim) for claim in of_paper(document, paper)]) for paper in document["papers"]]


def of_paper(document: Document, paper: Mapping[str, Any]) -> list[Claim]:
    return [claim for claim in document["claims"] if claim["paper"] == paper["key"]]


def line(claim: Claim) -> Line:
    fields = {name: claim[name] for name in ("name", "number", "statement", "outcome", "answer")}
    return Line(**fields, headline=headline(claim), scope=readable(claim["scope"]), committed=against_committed(claim))


def against_committed(claim: Claim) -> str:
    """Return the committed outcome and how this machine compares with it; "" where nothing is committed."""
    kept, agreement = claim.get("committed"), claim.get("agreement")
    if not kept or not agreement:
        return ""
    here = agreement["word"] + (f" ({agreement['reason']})" if agreement["reason"] else "")
    return f"committed: {', '.join(filter(None, (kept['outcome'], committed_number(kept))))} | here: {readable(here)}"


def committed_number(kept: Mapping[str, str]) -> str:
    """Return the deciding number of the committed run with its interval, "" if it has none."""
    interval = "" if kept["spread"] in ("", "-") else kept["spread"].partition(" of ")[0]
    return readable(" ".join(filter(None, (kept["shown"], interval))))


def titled(claim: Claim) -> str:
    """Return the number and the statement of a claim."""
    return " ".join(filter(None, (claim["number"], claim["statement"])))


def summary(document: Document) -> str:
    """Return what this is in one sentence."""
    claims, machine = len(document["claims"]), document["machine"]
    where = f"{machine['name']}, {machine['cores']} cores" if machine.get("name") else "no machine so far"
    others = sum(one["rows"] for one in document["other_machines"])
    apart = f"; {others:,} of {document['rows']:,} rows are from other machines" if others else ""
    return (
        f"{claims} statement{'' if claims == 1 else 's'} about linear transformers, each tested and judged by a rule "
        f"that is printed with it. Budget {document['budget']}, {document['minutes']:.0f} minutes on {where}{apart}."
    )


def compared(document: Document) -> str:
    """Return how this machine compares with the committed evidence, "" where there is none."""
    words = agreements(document["claims"])
    return f"This machine against the committed evidence: {words}." if words else ""


def provenance(document: Document) -> list[tuple[str, str]]:
    """Return where the numbers come from: machine, versions, commit, budget, data, time."""
    machine, versions = document["machine"], document["versions"]
    commits = [commit for commit in document["commits"] if commit != document["commit"]]
    origin = {
        "Machine": on_machine(machine),
        "Rows of other machines too": "; ".join(
            f"{one['rows']:,} on {on_machine(one)}" for one in document["other_machines"]
        ),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Commit": document["commit"] or "not in a repository",
        "Rows of other commits too": ", ".join(commits),
        "Budget": document["budget"],
        "Data": ", ".join(document["data"]) or "what ships with linnet",
        "Began": document["started"],
        "Time": f"{document['minutes']:.0f} minutes, {document['rows']:,} rows",
        "Lines left out": "; ".join(document.get("damaged", ())),
        "Repeat it": f"linnet reproduce all --budget {document['budget']}",
        "This page again, from its rows": "linnet report FOLDER",
    }
    return [(name, words) for name, words in origin.items() if words]


def work_summary(document: Document) -> str:
    """Return what the runs at the papers' sizes have cost so far, and what the rest would cost."""
    sums = {name: sum(line[name] for line in document["work"]) for name in ("rows", "wanted", "spent", "left")}
    return (
        f"{sums['rows']:,} of {sums['wanted']:,} rows at the papers' sizes exist and cost {sums['spent']:.2f} "
        f"core-hours; the others would cost {sums['left']:.1f}, by the speeds measured so far. A stage is a complete "
        "test; a later one adds sizes, and a row that two claims share counts for the first. `linnet reproduce "
        "--budget day --out FOLDER` continues where the rows of a folder end."
    )


def work_lines(document: Document) -> list[list[str]]:
    """Return a line for each stage of each claim of a day run."""
    lines = []
    for one in document["work"]:
        named, rows = " ".join(filter(None, (one["number"], one["claim"]))), f"{one['rows']} of {one['wanted']}"
        lines.append([named, str(one["stage"]), rows, f"{one['spent']:.2f}", f"{one['left']:.2f}"])
    return lines


def on_machine(machine: Mapping[str, Any]) -> str:
    return f"{machine.get('name', '')}, {machine.get('cores', '?')} cores, {machine.get('machine', '')}"


def markdown(document: Document) -> str:
    """Return the scoreboard and the finding of each claim."""
    about = [summary(document), f"{in_words(document['claims']).capitalize()}.", compared(document)]
    parts = [f"# {TITLE}", plain(" ".join(about)), scoreboard(document)]
    for paper in document["papers"]:
        parts.append(f"## {plain(paper['title'])}")
        parts += [_block(claim) for claim in of_paper(document, paper)]
    if document["work"]:
        lines = [WORK_HEAD, ["---"] * len(WORK_HEAD), *work_lines(document)]
        parts += [f"## {WORK_TITLE}", plain(work_summary(document))]
        parts.append("\n".join(f"| {' | '.join(map(plain, line))} |" for line in lines))
    parts.append("## Where the numbers come from")
    parts.append("\n".join(f"- {name}: {plain(words)}" for name, words in provenance(document)))
    return "\n\n".join(parts) + "\n"


def scoreboard(document: Document) -> str:
    """Return the tables alone, for a page of the documentation."""
    parts = []
    for paper, lines in scoreboard_rows(document):
        rows = [HEAD, ["---"] * len(HEAD), *map(_cells, lines)]
        parts.append(f"**{plain(paper['title'])}**")
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def evidence(document: Document, link: str) -> str:
    """Return the counts in all and for each paper, one line each. link: the report, seen from the file."""
    claims = document["claims"]
    lines = [f"- **{len(claims)} statements: {in_words(claims)}.** [Each with its evidence]({link})."]
    for paper in document["papers"]:
        ours = of_paper(document, paper)
        lines.append(f"- {plain(paper['title'])}, {len(ours)}: {in_words(ours)}.")
    return "\n".join(lines)


def _cells(line: Line) -> list[str]:
    first = line.headline
    ours = " ".join(filter(None, (first.ours, first.interval)))
    outcome = f'<span class="outcome {slug(line.outcome)}">{SHOWN[line.outcome].mark} {line.outcome}</span>'
    before, after = (line.number, line.statement), (line.answer, first.what, ours, first.paper, line.scope)
    return [*map(plain, before), outcome, *map(plain, after)]


def _block(claim: Claim) -> str:
    parts = [f"### {plain(titled(claim))}", f"**{claim['outcome'].capitalize()}.** {_answer(claim)}", _why(claim)]
    parts.append("\n".join(f"- {plain(number_text(one))}" for one in claim["numbers"]))
    parts.append("\n".join(f"- Error: {plain(error)}" for error in claim["errors"]))
    parts.append(plain(sentence(against_committed(claim))))
    parts.append(plain(sentence(readable(claim["meaning"]))))
    parts.append(f"Repeat: `{claim['command']}`")
    return "\n\n".join(filter(None, parts))


def _answer(claim: Claim) -> str:
    scope = f" ({readable(claim['scope'])})" if claim["scope"] else ""
    return plain(sentence(claim["answer"].removeprefix("Not tested: ") + scope))


def _why(claim: Claim) -> str:
    return plain(" ".join(sentence(readable(claim[name])) for name in ("sentence", "reason") if claim[name]))


def number_text(number: Mapping[str, Any]) -> str:
    """Return a number in a line: what it is, ours with its interval, the paper's."""
    one = as_text(number)
    ours = " ".join(filter(None, (one.ours, one.interval, one.of and f"of {one.of}")))
    return f"{one.what}: {ours}" + (f"; the paper: {one.paper}" if one.paper else "")


def plain(words: str) -> str:
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
        first = [claim[name] for name in ("name", "paper", "number", "statement", "outcome", "answer", "scope")]
        for index, number in enumerate(claim["numbers"] or [{}]):
            deciding = "yes" if number and index == 0 else ""
            rows.writerow([*first, deciding, *_fields(number), claim["command"]])
    return out.getvalue()


def _fields(number: Mapping[str, Any]) -> Sequence[Any]:
    return ["" if (v := number.get(name)) is None else v for name in "what paper ours low high of unit".split()]
