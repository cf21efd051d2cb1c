"""The section of one claim on the page of `linnet reproduce`.

In order: statement, outcome and answer, the deciding number, committed evidence next to this machine, why, what the
paper says, charts, advice, "Why we believe it" (controls, repeats, regime, cost, what would change it), and, folded,
further numbers, tables and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from ..core.verdicts import CLOSE, ERROR, UNTESTED
from . import chart
from .axes import readable
from .chart_lines import looks
from .outcomes import SHOWN, slug
from .page import prose, sentence, table
from .scoreboard import Headline, as_text, committed_number, headline

Claim = Mapping[str, Any]
EXACT = "Nothing is drawn at random, so nothing is repeated."
AGREES = {
    "agrees": "agrees with the committed evidence",
    "differs": "differs from the committed evidence",
    "adds nothing": "adds nothing to the committed evidence",
    "not run": "not run on this machine",
}


def anchor(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name)


def rich(words: str) -> str:
    """Return a sentence of a claim as HTML; text between backticks is code."""
    parts = re.split(r"`([^`]+)`", sentence(words))
    return "".join(f"<code>{escape(part)}</code>" if i % 2 else prose(readable(part)) for i, part in enumerate(parts))


def badge(outcome: str) -> str:
    """Return the outcome as mark, word and colour."""
    mark = f'<span aria-hidden="true">{SHOWN[outcome].mark}</span>'
    return f'<span class="badge {slug(outcome)}">{mark} {outcome}</span>'


def claim_section(claim: Claim) -> str:
    """Return the whole section."""
    name, number = anchor(claim["name"]), escape(claim["number"])
    title = (f'<a class="number" href="#{name}">{number}</a> ' if number else "") + prose(claim["statement"])
    answer = f'<p class="verdict">{badge(claim["outcome"])} <b>{prose(claim["answer"])}</b></p>'
    lead = f'<div class="lead">{_why(claim)}{_errors(claim)}{_source(claim)}{_meaning(claim)}</div>'
    shape = {0: "bare", 1: "one"}.get(len(claim["charts"]), "many")
    body = f'<div class="body {shape}">{lead}{_charts(claim)}<div class="rest">{_belief(claim)}</div></div>'
    opening = (
        f'<section class="claim" id="{name}" data-outcome="{slug(claim["outcome"])}" aria-labelledby="{name}-says">'
    )
    heading = f'<h3 id="{name}-says">{title}</h3>'
    return (
        f"{opening}{heading}{answer}{_deciding(claim)}{_compared(claim)}{body}{_details(claim)}{_foot(claim)}</section>"
    )


def _deciding(claim: Claim) -> str:
    """Return the number that the rule judges, with interval, paper's number and scope."""
    first = headline(claim)
    scope = f'<span class="scope">{prose(readable(claim["scope"]))}</span>' if claim["scope"] else ""
    if not first.ours:
        return f'<p class="deciding">{scope}</p>' if scope else ""
    return f'<p class="deciding">{_measured(first)}{scope}</p>'


def _measured(first: Headline) -> str:
    interval = f" {prose(unbroken(first.interval))}" if first.interval else ""
    of = f' <span class="soft">of {prose(first.of)}</span>' if first.of and interval else ""
    paper = f' <span class="soft">· paper: {prose(first.paper)}</span>' if first.paper else ""
    return f'<span class="what">{prose(first.what)}</span><b>{prose(first.ours)}</b>{interval}{of}{paper}'


def unbroken(interval: str) -> str:
    """Return an interval in which no line breaks."""
    return interval.replace(", ", ",\u00a0")


def _compared(claim: Claim) -> str:
    """Return the committed evidence next to what this machine adds, where both are known."""
    kept, agreement = claim.get("committed"), claim.get("agreement")
    if not kept or not agreement:
        return ""
    word, reason = agreement["word"], agreement["reason"]
    because = f" {rich(reason)}" if reason else ""
    left = _side("Committed evidence", kept["outcome"], kept["answer"], prose(committed_number(kept)), kept["scope"])
    first = headline(claim)
    ours = prose(" ".join(filter(None, (first.ours, first.interval))))
    right = _side("This machine", claim["outcome"], claim["answer"], ours, claim["scope"])
    verdict = f'<p class="agreement {slug(word)}"><b>{prose(sentence(AGREES.get(word, word)))}</b>{because}</p>'
    return f'<div class="compared">{left}{right}{verdict}</div>'


def _side(title: str, outcome: str, answer: str, number: str, scope: str) -> str:
    rest = "".join(f'<span class="what">{words}</span>' for words in (number, prose(readable(scope))) if words)
    return f"<div><b>{title}</b> {badge(outcome)} {prose(answer)}{rest}</div>"


def _why(claim: Claim) -> str:
    held_back = f' <span class="soft">{rich(claim["reason"])}</span>' if claim["reason"] else ""
    return f'<p class="why">{rich(claim["sentence"])}{held_back}</p>'


def _errors(claim: Claim) -> str:
    errors = "".join(f"<li>{prose(error)}</li>" for error in claim["errors"])
    return f'<div class="errors"><b>What failed</b><ul>{errors}</ul></div>' if errors else ""


def _source(claim: Claim) -> str:
    title = "Where it comes from" if claim["paper"] == "open" else "What the paper says"
    return f'<p class="says"><b>{title}.</b> {rich(claim["source"])}</p>' if claim["source"] else ""


def _charts(claim: Claim) -> str:
    """Return the charts of a claim; a series has the same look in all of them."""
    look = looks(name for one in claim["charts"] for name in one.get("series", {}))
    name = anchor(claim["name"])
    drawn = "".join(chart.figure(one, f"{name}-{i}", look) for i, one in enumerate(claim["charts"]))
    return f'<div class="plots">{drawn}</div>' if drawn else ""


def _meaning(claim: Claim) -> str:
    if not claim["meaning"]:
        return ""
    return f'<p class="meaning"><b>If you choose a model.</b> {rich(claim["meaning"])}</p>'


def _belief(claim: Claim) -> str:
    """Return what the outcome rests on."""
    undecided = claim["outcome"] in (UNTESTED, ERROR, CLOSE)
    title = "Why this is not decided" if undecided else "Why we believe it"
    rows = [("Controls", _controls(claim)), ("Repeats", _repeats(claim)), ("Sizes", _regime(claim["regime"]))]
    rows += [("Cost", prose(cost(claim))), ("What would change our mind", rich(claim["change"]))]
    listed = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in rows if words)
    return f'<div class="belief"><b>{title}</b><dl>{listed}</dl></div>'


def _controls(claim: Claim) -> str:
    outside = bool(claim["regime"]["outside"])
    parts = []
    for one in claim["controls"]:
        reported = not one["passed"] and outside and not one["always"]
        state = "passed" if one["passed"] else "failed"
        note = " (reported only, since these sizes are not the paper's)" if reported else ""
        mark = f'<span class="{state}">{"✓" if one["passed"] else "✗"} {state}</span>'
        parts.append(f"<li>{prose(sentence(one['name']).rstrip('.'))}: {mark}{note}. {rich(one['detail'])}</li>")
    if parts:
        return f"<ul>{''.join(parts)}</ul>"
    return "" if claim["outcome"] in (UNTESTED, ERROR) else "None: the rows decide it directly."


def _repeats(claim: Claim) -> str:
    if claim["outcome"] == UNTESTED and claim["missing"]:
        return ""
    count, of = claim["repeats"], claim["of"]
    return EXACT if count is None else f"{count:,} {of.removesuffix('s') if count == 1 else of}"


def _regime(regime: Mapping[str, Any]) -> str:
    if not regime["paper"] and not regime["here"]:
        return "The statement is about every size."
    parts = [f"<b>Paper:</b> {prose(regime['paper'])}." if regime["paper"] else ""]
    parts.append(f"<b>Here:</b> {prose(regime['here'])}." if regime["here"] else "")
    outside = "; ".join(regime["outside"])
    parts.append(f"<b>Outside the paper's:</b> {prose(outside)}." if outside else "")
    return " ".join(filter(None, parts))


def cost(claim: Claim) -> str:
    """Return the work behind a claim in words."""
    count = claim["rows"]
    missing = f", {claim['missing']:,} missing" if claim["missing"] else ""
    missing += f", {claim['foreign']:,} from another machine" if claim["foreign"] else ""
    missing += f", {claim['later']:,} of larger sizes still to come" if claim["later"] else ""
    return f"{in_time(claim['seconds'])} of work, {count:,} row{'' if count == 1 else 's'}{missing}"


def in_time(seconds: float) -> str:
    """Return seconds as a person would say them."""
    if seconds < 1.5:
        return "a second" if seconds >= 0.5 else "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _details(claim: Claim) -> str:
    """Return further numbers, tables and the rule, folded."""
    numbers, tables = claim["numbers"][1:], claim["tables"]
    inside = [
        f"{len(x):,} {word}{'' if len(x) == 1 else 's'}"
        for x, word in ((numbers, "further number"), (tables, "table"))
        if x
    ]
    parts = [_numbers(claim), *map(_table, tables), f"<p><b>Rule.</b> {rich(claim['rule'])}</p>"]
    parts += [f"<p><b>Data.</b> {rich(claim['needs'])}</p>"] if claim["needs"] else []
    title = ", ".join([*inside, "the rule"])
    return f'<details class="more"><summary>{title[0].upper() + title[1:]}</summary>{"".join(parts)}</details>'


def _numbers(claim: Claim) -> str:
    rows = []
    for one in map(as_text, claim["numbers"]):
        interval = unbroken(one.interval) + (f" of {one.of}" if one.of else "") if one.interval else "-"
        rows.append([one.what, one.paper or "-", one.ours, interval])
    if len(rows) < 2:
        return ""
    return f'<div class="numbers">{table(("what is measured", "paper", "here", "interval"), rows)}</div>'


def _table(one: Mapping[str, Any]) -> str:
    rows = [[readable(str(cell)) for cell in row] for row in one["rows"]]
    return f'<p class="soft">{prose(one["title"] or "Table")}</p>{table(list(map(str, one["head"])), rows)}'


def _foot(claim: Claim) -> str:
    command = f"<code>{escape(claim['command'])}</code>"
    return f'<p class="again">{command} <a class="up" href="#glance">all claims</a></p>'
