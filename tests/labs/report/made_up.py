"""A small document of `linnet reproduce`: a claim of every outcome, a chart of every kind, words that need escaping."""

from __future__ import annotations

from typing import Any

from linnet.labs.core.verdicts import CLOSE, ERROR, FAILS, HOLDS, NOT_SEEN, OUTCOMES, SEEN, UNTESTED

Entry = dict[str, Any]
ALL = (*OUTCOMES, ERROR)
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


def control(name: str, passed: bool, detail: str, always: bool = True) -> Entry:
    return {"name": name, "passed": passed, "detail": detail, "short": "it failed", "always": always}


def regime(paper: str = "", here: str = "", *outside: str) -> Entry:
    return {"paper": paper, "here": here, "outside": list(outside)}


def claim(name: str, outcome: str, paper: str = "rnn", **changed: Any) -> Entry:
    said = {"name": name, "number": "T1", "paper": paper, "statement": f"It is true of {name}."}
    said |= {"source": f"The paper writes that {name} is so.", "rule": f"Yes if {name}.", "needs": ""}
    said |= {"change": f"Another run of {name}.", "command": f"linnet reproduce {name} --budget quick"}
    result = {"outcome": outcome, "answer": f"Yes, {name}", "reason": "", "sentence": f"{name} was {outcome}."}
    result |= {"scope": f"d = 64, 5 seeds of {name}", "meaning": f"Choose {name}."}
    result |= {"regime": regime(), "controls": [], "repeats": 5, "of": "seeds"}
    done = {"rows": 3, "missing": 0, "later": 0, "foreign": 0, "errors": []}
    done |= {"seconds": 12.3, "numbers": [], "tables": [], "charts": []}
    return {**said, **result, **done, **changed}


def claims() -> list[Entry]:
    spread = {"low": 0.61, "high": 0.69, "of": "5 seeds", "unit": "bits", "spread": "[0.610, 0.690] of 5 seeds"}
    numbers = [
        number("bits | a pixel", "0.644, on a GPU", 0.65, shown="0.650 bits", **spread),
        number("gap", None, 6.2e-16, shown="6.2e-16"),
    ]
    short = {"title": "Few", "head": ["model", "bits"], "rows": [["linear", 0.65]]}
    long = {"title": "Every run", "head": ["seed", "bits"], "rows": [[str(i), f"0.6{i}"] for i in range(9)]}
    passed = control("softmax learned the task", True, "softmax recalls 0.97; the floor is 0.9")
    failed = control("softmax learned the task", False, "softmax recalls 0.05; the floor is 0.9")
    curve = control("softmax converged", False, "no curve was kept", always=False)
    sizes = regime("256 to 2,048 tokens", "16 to 48 tokens", "tokens 48 (the paper has 256 to 2,048)")
    kept = {
        "outcome": FAILS,
        "answer": "No, slower",
        "shown": "9.000",
        "spread": "[8, 10] of 9 rounds",
        "scope": "hour",
    }
    differs = {"word": "differs", "reason": "fewer tokens than the committed run"}
    return [
        claim("copy", HOLDS, numbers=numbers, charts=[chart(log_x=True)], tables=[short, long], controls=[passed]),
        claim(
            "speed", FAILS, numbers=[number("times, <b>", '"317" times', 11.0)], charts=[bars(), chart()], repeats=None,
            regime=regime("1 to 8", "4"), committed=kept, agreement=differs,
        ),
        claim("slope", CLOSE, "open", charts=[heat()], number="", meaning=""),
        claim("length", SEEN, "open", regime=sizes, controls=[passed, curve], reason="outside the regime: tokens 48"),
        claim("norm", NOT_SEEN, "open", regime=sizes, seconds=7300),
        claim("speech", UNTESTED, "open", needs="AN4", meaning="", missing=2, controls=[failed], source=""),
        claim("broken", ERROR, "open", errors=["unit 3: <script>alert(1)</script> failed"], meaning="", scope=""),
    ]  # fmt: skip


def document(**changed: Any) -> Entry:
    result = changed.pop("claims", claims())
    outcomes = [one["outcome"] for one in result]
    papers = [{"key": "rnn", "title": "Transformers & RNNs (A and B 2020)", "address": "arXiv:2006.16236"}]
    papers.append({"key": "open", "title": "Open questions", "address": ""})
    about = {
        "format": 2,
        "budget": "quick",
        "minutes": 8.13,
        "data": ["mnist"],
        "commit": "abc+",
        "commits": ["abc+", "def"],
    }
    about |= {
        "versions": VERSIONS,
        "machine": MACHINE,
        "other_machines": [],
        "started": "2026-01-02T03:04:05",
        "rows": 15,
        "damaged": [],
        "work": [],
        "day": None,
    }
    counts = {outcome: outcomes.count(outcome) for outcome in ALL}
    return {**about, "counts": counts, "papers": papers, "claims": result, **changed}
