"""The page of `linnet reproduce`: verdicts at a glance, then a section for each claim, in one self-contained file.

    html(document)   the document of linnet/labs/claims/document.py -> HTML with inline SVG, no script

A verdict is shown by word, mark and colour. Refuted, untested and failed claims are as prominent as confirmed ones. The
same strings as Markdown and CSV come from scoreboard.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from . import chart
from .chart_lines import looks
from .page import page, paragraph, prose, sentence, table
from .reproduce_style import STYLE
from .scoreboard import MARKS, TITLE, Document, Line, of_paper, provenance, scoreboard_rows, summary
from .scoreboard import csv as csv
from .scoreboard import headline as headline
from .scoreboard import markdown as markdown
from .scoreboard import scoreboard as scoreboard

Claim = Mapping[str, Any]
HEADS = '<li class="heads" aria-hidden="true"><span></span><span></span><span>here</span><span>paper</span></li>'
SHORT = 6  # rows up to which a table is open
MEANS = {
    "confirmed": "the rule found what the paper says",
    "refuted": "the rule found otherwise",
    "unclear": "the rows do not decide it",
    "not testable": "not at this budget, or not with these data",
    "error": "the work failed, so there is no verdict",
}


def html(document: Document) -> str:
    """Return the whole file."""
    parts = [paragraph(summary(document)), _counts(document["counts"]), _glance(document)]
    for paper in document["papers"]:
        address = f' <span class="soft">{escape(paper["address"])}</span>' if paper["address"] else ""
        parts.append(f'<h2 id="paper-{anchor(paper["key"])}">{prose(paper["title"])}{address}</h2>')
        parts += [_claim(claim) for claim in of_paper(document, paper)]
    parts.append(_provenance(document))
    return page(TITLE, [f'<main id="top">{"".join(parts)}</main>'], chart.STYLE + STYLE)


def anchor(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name)


def rich(words: str) -> str:
    """Return a sentence of a claim as HTML; text between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", prose(sentence(words)))


def badge(outcome: str) -> str:
    """Return the verdict as mark, word and colour."""
    name = outcome.replace(" ", "-")
    return f'<span class="badge {name}"><span aria-hidden="true">{MARKS[outcome]}</span> {outcome}</span>'


def _counts(counts: Mapping[str, int]) -> str:
    """Return the number of each verdict as a proportional bar, and what each word means."""
    present = {outcome: count for outcome, count in counts.items() if count}
    bar = "".join(
        f'<span class="{outcome.replace(" ", "-")}" style="flex-grow:{count}">{MARKS[outcome]} {count}</span>'
        for outcome, count in present.items()
    )
    keys = "".join(
        f'<li>{badge(outcome)} <b>{count}</b> <span class="soft">{MEANS[outcome]}</span></li>'
        for outcome, count in present.items()
    )
    return f'<div class="share" aria-hidden="true">{bar}</div><ul class="legend">{keys}</ul>'


def _glance(document: Document) -> str:
    parts = ['<h2 id="glance">Verdicts at a glance</h2>']
    for paper, lines in scoreboard_rows(document):
        parts.append(f'<h3 class="paper">{prose(paper["title"])}</h3>')
        parts.append(f'<ol class="board">{HEADS}{"".join(map(_line, lines))}</ol>')
    return f'<nav aria-labelledby="glance">{"".join(parts)}</nav>'


def _line(line: Line) -> str:
    first = line.headline
    what = f'<span class="what">{prose(first.what)}</span>' if first.ours else ""
    question = f'<span class="asked">{prose(line.question)}</span>'
    asked = f'<span><span class="number">{escape(line.number)}</span> {question}{what}</span>'
    interval = f"<small>{prose(first.spread.partition(' of ')[0])}</small>" if first.spread else ""
    here = f'<span class="here">{prose(first.ours)}{interval}</span>' if first.ours else ""
    paper = f'<span class="theirs">{prose(first.paper)}</span>' if first.paper else ""
    return f'<li><a href="#{anchor(line.name)}">{badge(line.outcome)}{asked}{here}{paper}</a></li>'


def _claim(claim: Claim) -> str:
    """Return question, verdict, reason, the paper's words, charts, numbers, meaning, rule and command."""
    charts = _charts(claim)
    lead = f'<div class="lead"><p class="why">{rich(claim["sentence"])}</p>{_errors(claim)}{_paper_says(claim)}</div>'
    rest = f'<div class="rest">{_numbers(claim)}{_meaning(claim)}</div>'
    shape = {0: "none", 1: "one"}.get(len(claim["charts"]), "many")
    body = f'<div class="body {shape}">{lead}{charts}{rest}</div>{_tables(claim)}{_foot(claim)}'
    name, number = anchor(claim["name"]), escape(claim["number"])
    title = (f'<a class="number" href="#{name}">{number}</a> ' if number else "") + prose(claim["question"])
    opening = f'<section class="claim" id="{name}" aria-labelledby="{name}-question">'
    return f'{opening}<h3 id="{name}-question">{title}</h3>{badge(claim["outcome"])}{body}</section>'


def _errors(claim: Claim) -> str:
    errors = "".join(f"<li>{prose(error)}</li>" for error in claim["errors"])
    return f'<div class="errors"><b>What failed</b><ul>{errors}</ul></div>' if errors else ""


def _paper_says(claim: Claim) -> str:
    return f'<p class="says"><b>The claim.</b> {rich(claim["statement"])}</p>'


def _charts(claim: Claim) -> str:
    """Return the charts of a claim; a series has the same look in all of them."""
    look = looks(name for one in claim["charts"] for name in one.get("series", {}))
    name = anchor(claim["name"])
    drawn = "".join(chart.figure(one, f"{name}-{i}", look) for i, one in enumerate(claim["charts"]))
    return f'<div class="plots">{drawn}</div>' if drawn else ""


def _numbers(claim: Claim) -> str:
    unbroken = [one["spread"].replace(", ", ",\u00a0") for one in claim["numbers"]]  # no line break inside an interval
    rows = [[o["what"], o["paper"] or "-", o["shown"], s] for o, s in zip(claim["numbers"], unbroken, strict=True)]
    if not rows:
        return ""
    return f'<div class="numbers">{table(("what is measured", "paper", "here", "interval"), rows)}</div>'


def _meaning(claim: Claim) -> str:
    if not claim["meaning"]:
        return ""
    return f'<p class="meaning"><b>If you choose a model.</b> {rich(claim["meaning"])}</p>'


def _tables(claim: Claim) -> str:
    parts = []
    for one in claim["tables"]:
        drawn = table(list(map(str, one["head"])), [list(map(str, row)) for row in one["rows"]])
        title = prose(one["title"] or "Table")
        if len(one["rows"]) <= SHORT:
            parts.append(f'<div class="short"><p class="soft">{title}</p>{drawn}</div>')
        else:
            parts.append(f"<details><summary>{title} ({len(one['rows'])} rows)</summary>{drawn}</details>")
    return "".join(parts)


def _foot(claim: Claim) -> str:
    missing = f", {claim['missing']} missing" if claim["missing"] else ""
    work = f"{claim['rows']} row{'' if claim['rows'] == 1 else 's'}{missing}, {claim['seconds']:,.1f} seconds of work"
    needs = f" <b>Data.</b> {rich(claim['needs'])}" if claim["needs"] else ""
    rule = f'<p class="soft"><b>Rule.</b> {rich(claim["rule"])}{needs}</p>'
    command = f'<code>{escape(claim["command"])}</code> <span class="soft">{work}</span>'
    again = f'<p class="again">{command} <a class="up" href="#glance">all verdicts</a></p>'
    return f'<div class="foot">{rule}{again}</div>'


def _provenance(document: Document) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in provenance(document))
    return f'<section id="made"><h2>Where the numbers come from</h2><dl>{rows}</dl></section>'
