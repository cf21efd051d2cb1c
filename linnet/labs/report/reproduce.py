"""The page of `linnet reproduce`: outcomes at a glance, then a section for each claim, in one self-contained file.

    html(document)   the document of linnet/labs/claims/document.py -> HTML with inline SVG, no script

An outcome is shown by word, mark and colour. Radio buttons and `:has()` filter by outcome and paper; a browser without
`:has()` shows everything. A claim's section is in reproduce_claim.py, the strings in scoreboard.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from . import chart
from .outcomes import SHOWN, slug, tally
from .page import page, paragraph, prose, table
from .reproduce_claim import anchor, badge, claim_section
from .reproduce_style import STYLE, filter_rules
from .scoreboard import (
    TITLE,
    WORK_HEAD,
    WORK_TITLE,
    Document,
    Line,
    compared,
    of_paper,
    provenance,
    scoreboard_rows,
    work_lines,
    work_summary,
)
from .scoreboard import csv as csv
from .scoreboard import headline as headline
from .scoreboard import markdown as markdown
from .scoreboard import scoreboard as scoreboard
from .scoreboard import summary as summary

Paper = Mapping[str, Any]
HEADS = (
    '<li class="heads" aria-hidden="true"><span>outcome</span><span>statement</span><span>here</span>'
    "<span>paper</span></li>"
)


def html(document: Document) -> str:
    """Return the whole file."""
    about = paragraph(summary(document)) + (paragraph(compared(document)) if compared(document) else "")
    papers = [paper for paper in document["papers"] if of_paper(document, paper)]
    outcomes = {anchor(paper["key"]): outcomes_of(document, paper) for paper in papers}
    sections = [_glance(document), *(_paper(document, paper) for paper in papers)]
    sections += [_work(document), _provenance(document)]
    aside = f"<aside>{_filters(document, papers)}{_contents(document)}</aside>"
    main = f"<main>{''.join(sections)}</main>"
    body = f'<header id="top">{about}{_counts(document)}</header><div class="layout">{aside}{main}</div>'
    return page(TITLE, [body], chart.STYLE + STYLE + filter_rules(outcomes))


def outcomes_of(document: Document, paper: Paper) -> list[str]:
    """Return the outcomes that the claims of a paper have, as CSS names."""
    return sorted({slug(claim["outcome"]) for claim in of_paper(document, paper)})


def marks(document: Document, paper: Paper) -> str:
    """Return the attributes by which a part of the page is filtered."""
    names = " ".join(outcomes_of(document, paper))
    return f'data-paper="{anchor(paper["key"])}" data-outcomes="{names}"'


def _counts(document: Document) -> str:
    """Return the number of each outcome as a proportional bar, and what each word means, verdicts apart."""
    groups = tally(document["claims"])
    bar = "".join(
        f'<span class="{slug(outcome)}" style="flex-grow:{count}">{SHOWN[outcome].mark} {count}</span>'
        for _, counts in groups
        for outcome, count in counts.items()
    )
    keys = "".join(f"<div><b>{group}</b><ul>{_keys(counts)}</ul></div>" for group, counts in groups)
    return f'<div class="share" aria-hidden="true">{bar}</div><div class="legend">{keys}</div>'


def _keys(counts: Mapping[str, int]) -> str:
    return "".join(
        f'<li>{badge(outcome)} <b>{count}</b> <span class="soft">{SHOWN[outcome].meaning}</span></li>'
        for outcome, count in counts.items()
    )


def _filters(document: Document, papers: Sequence[Paper]) -> str:
    """Return the radio buttons of both filters, with the number of claims that each leaves."""
    claims = document["claims"]
    outcomes = [(slug(o), f"{SHOWN[o].mark} {o}", n) for _, counts in tally(claims) for o, n in counts.items()]
    sources = [
        (anchor(paper["key"]), paper["title"].partition(" (")[0], len(of_paper(document, paper))) for paper in papers
    ]
    every = ("all", "all", len(claims))
    groups = _radios("outcome", [every, *outcomes]) + _radios("paper", [every, *sources])
    return f'<form class="filter" aria-label="Filter the claims">{groups}</form>'


def _radios(group: str, choices: Sequence[tuple[str, str, int]]) -> str:
    parts = []
    for name, words, count in choices:
        at = f"{group}-is-{name}"
        checked = " checked" if name == "all" else ""
        parts.append(f'<input type="radio" name="{group}" id="{at}"{checked} autocomplete="off">')
        parts.append(f'<label for="{at}">{prose(words)} <small>{count}</small></label>')
    return f"<fieldset><legend>{group}</legend>{''.join(parts)}</fieldset>"


def _contents(document: Document) -> str:
    """Return the table of contents: always open next to the text, behind a checkbox on a phone."""
    parts = []
    for paper, lines in scoreboard_rows(document):
        items = "".join(map(_entry, lines))
        title = f'<a href="#paper-{anchor(paper["key"])}">{prose(paper["title"].partition(" (")[0])}</a>'
        parts.append(f"<section {marks(document, paper)}><b>{title}</b><ol>{items}</ol></section>")
    switch = '<input type="checkbox" id="contents-open" autocomplete="off"><label for="contents-open">Contents</label>'
    ends = '<a href="#glance">At a glance</a>', '<a href="#made">Where the numbers come from</a>'
    return f'<nav class="contents" aria-label="Contents">{switch}<div>{ends[0]}{"".join(parts)}{ends[1]}</div></nav>'


def _entry(line: Line) -> str:
    mark = f'<span class="mark {slug(line.outcome)}" aria-hidden="true">{SHOWN[line.outcome].mark}</span>'
    words = prose(" ".join(filter(None, (line.number, line.statement))))
    link = f'<a href="#{anchor(line.name)}" title="{words}">{mark} {words}</a>'
    return f'<li data-outcome="{slug(line.outcome)}">{link}</li>'


def _glance(document: Document) -> str:
    parts = ['<h2>At a glance</h2><p class="nothing">No claim has both: choose another outcome or paper.</p>']
    for paper, lines in scoreboard_rows(document):
        board = f'<ol class="board">{HEADS}{"".join(map(_line, lines))}</ol>'
        parts.append(
            f'<section {marks(document, paper)}><h3 class="paper">{prose(paper["title"])}</h3>{board}</section>'
        )
    return f'<div id="glance">{"".join(parts)}</div>'


def _line(line: Line) -> str:
    first = line.headline
    what = _small(first.what) if first.ours else ""
    number = f'<span class="number">{escape(line.number)}</span> ' if line.number else ""
    statement = f'<span>{number}<span class="statement">{prose(line.statement)}</span>'
    statement += (
        f'<span class="answer">{prose(line.answer)}</span>{what}{_small(line.scope)}{_small(line.committed)}</span>'
    )
    interval = f"<small>{prose(first.interval)}</small>" if first.interval else ""
    here = f'<span class="here">{prose(first.ours)}{interval}</span>' if first.ours else ""
    paper = f'<span class="theirs">{prose(first.paper)}</span>' if first.paper else ""
    opening = f'<li data-outcome="{slug(line.outcome)}"><a href="#{anchor(line.name)}">'
    return f"{opening}{badge(line.outcome)}{statement}{here}{paper}</a></li>"


def _small(words: str) -> str:
    return f'<span class="what">{prose(words)}</span>' if words else ""


def _paper(document: Document, paper: Paper) -> str:
    address = f' <span class="soft">{escape(paper["address"])}</span>' if paper["address"] else ""
    title = f'<h2 id="paper-{anchor(paper["key"])}">{prose(paper["title"])}{address}</h2>'
    claims = "".join(claim_section(claim) for claim in of_paper(document, paper))
    return f"<section {marks(document, paper)}>{title}{claims}</section>"


def _work(document: Document) -> str:
    """Return what a day run still lacks; "" for other runs."""
    if not document["work"]:
        return ""
    lines = table(WORK_HEAD, work_lines(document))
    return f'<section id="work"><h2>{WORK_TITLE}</h2>{paragraph(work_summary(document))}{lines}</section>'


def _provenance(document: Document) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in provenance(document))
    return f'<section id="made"><h2>Where the numbers come from</h2><dl>{rows}</dl></section>'
