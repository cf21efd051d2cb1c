"""A small document of `linnet reproduce`: a claim of every outcome, a chart of every kind, words that need escaping."""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]
OUTCOMES = ("confirmed", "refuted", "unclear", "not testable", "error")
VERSIONS = {"python": "3.11.2", "linnet": "0.1.0", "torch": "2.13.0"}
MACHINE = {"name": "Some Processor", "machine": "x86_64", "cores": 2}


def chart(**changed: Any) -> Entry:
    series = {
        "linear": [[64, 1.0, 0.9, 1.2], [128, 2.0, 1.8, 2.2], [256, 4.0, 3.9, 4.4]],
        "soft<max": [[64, 8], [256, 9]],
    }
    base = {"type": "chart", "title": "Time & length", "x": "tokens", "y": "seconds", "series": series, "kind": "lines"}
    return {**base, "log_x": False, "log_y": False, "caption": "Median of rounds.", **changed}


def bars(**changed: Any) -> Entry:
    series = {"here": [["linear", 2.0, 1.5, 2.5], ["softmax", 1.0]], "paper": [["linear", 4.0], ["softmax", None]]}
    return chart(**{"kind": "bars", "series": series, "x": "model", "y": "pictures a second", **changed})


def heat(**changed: Any) -> Entry:
    values = [[0.0, 0.5, 1.0], [0.25, None, 0.75]]
    base = {"type": "heat", "title": "Who can what", "rows": ["elu", "taylor"], "columns": ["copy", "recall", "text"]}
    return {**base, "values": values, "caption": "Darker is better.", **changed}


def number(what: str, paper: str | None, ours: float, **changed: Any) -> Entry:
    base: Entry = {"what": what, "paper": paper, "ours": ours, "low": None, "high": None, "of": "", "unit": ""}
    return {**base, "shown": f"{ours:.3f}", "spread": "-", **changed}


def claim(name: str, outcome: str, paper: str = "rnn", **changed: Any) -> Entry:
    said = {"name": name, "number": "T1", "paper": paper, "question": f"Is {name} so?", "statement": f"{name} is so."}
    said |= {"rule": f"Confirmed if {name}.", "needs": "", "command": f"linnet reproduce {name} --budget quick"}
    result = {"outcome": outcome, "sentence": f"{name} was found {outcome}.", "meaning": f"Choose {name}."}
    done = {"rows": 3, "missing": 0, "errors": [], "seconds": 12.3, "numbers": [], "tables": [], "charts": []}
    return {**said, **result, **done, **changed}


def claims() -> list[Entry]:
    spread = {"low": 0.61, "high": 0.69, "of": "3 seeds", "unit": "bits", "spread": "[0.610, 0.690] of 3 seeds"}
    numbers = [
        number("bits | a pixel", "0.644, on a GPU", 0.65, shown="0.650 bits", **spread),
        number("gap", None, 0.01),
    ]
    short = {"title": "Few", "head": ["model", "bits"], "rows": [["linear", 0.65]]}
    long = {"title": "Every run", "head": ["seed", "bits"], "rows": [[str(i), f"0.6{i}"] for i in range(9)]}
    return [
        claim("copy", "confirmed", numbers=numbers, charts=[chart(log_x=True)], tables=[short, long]),
        claim("speed", "refuted", numbers=[number("times, <b>", '"317" times', 11.0)], charts=[bars(), chart()]),
        claim("slope", "unclear", "open", charts=[heat()], number=""),
        claim("speech", "not testable", "open", needs="AN4", meaning="", missing=2),
        claim("broken", "error", "open", errors=["unit 3: <script>alert(1)</script> failed"], meaning=""),
    ]


def document(**changed: Any) -> Entry:
    result = changed.pop("claims", claims())
    outcomes = [one["outcome"] for one in result]
    papers = [{"key": "rnn", "title": "Transformers & RNNs", "address": "arXiv:2006.16236"}]
    papers.append({"key": "open", "title": "Open questions", "address": ""})
    about = {
        "format": 1,
        "budget": "quick",
        "minutes": 8.13,
        "data": ["mnist"],
        "commit": "abc+",
        "commits": ["abc+", "def"],
    }
    about |= {"versions": VERSIONS, "machine": MACHINE, "started": "2026-01-02T03:04:05", "rows": 15, "damaged": []}
    counts = {outcome: outcomes.count(outcome) for outcome in OUTCOMES}
    return {**about, "counts": counts, "papers": papers, "claims": result, **changed}
