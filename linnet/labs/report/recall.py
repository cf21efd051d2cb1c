"""The pages of `linnet recall`: documents of linnet/labs/recall/document.py as HTML with figures.

    html(document)             a sweep: accuracy against bytes of state, accuracy against step, the table
    studies_html(documents)    statements, each with its outcome, its tables and its attention maps, if any

A cell may have "curve", [[step, mean accuracy of its seeds], ...]; a study may have "maps", a list of figures
{"caption", "maps": {mixer: weights [T][T]}, "targets": [[row, column], ...]}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

from ..core.chart import Chart
from .chart import STYLE, figure
from .chart_lines import DASHES, Look
from .outcomes import SHOWN
from .page import COLOURS, figures, page, paragraph, section, table

Entry = dict[str, Any]
HEAD = ("mixer", "N", "pairs", "d", "bytes of state", "accuracy", "solved", "steps to 0.9", "rate", "window", "s")
LEGEND = (
    "bytes: of the mixer under test, one sequence after its last token; solved: share of seeds at 0.99 or more; "
    "window: log10 of the range of rates with 0.95 or more"
)
GROWING = ("softmax", "lsh")  # keep every token
ALL = (0.0, 1.0)  # the range of accuracies
WHERE: tuple[tuple[str, Any], ...] = (("task", "mqar"), ("seq_len", 64), ("pairs", 16), ("d_model", 64))
HOW: tuple[tuple[str, Any], ...] = (("filler", "zero"), ("first", "conv"), ("depth", 1), ("positions", "none"))


def html(document: Entry) -> str:
    """Return the whole page of a sweep."""
    groups = grouped(document["cells"])
    by_bytes = [against_bytes(about, cells, f"bytes{i}") for i, (about, cells) in enumerate(groups.items())]
    by_step = [
        against_step(about, cells, f"steps{i}")
        for i, (about, cells) in enumerate(groups.items())
        if any(cell.get("curve") for cell in cells)
    ]
    intro = (
        "The sequence lists pairs of keys and values, then asks for the value of each key. The state of a mixer that "
        "keeps every token grows with the sequence: a dashed line marks its accuracy. The others have a state of "
        "fixed size."
    )
    parts = [
        paragraph(provenance(document)),
        section("Accuracy against bytes of state", paragraph(intro), figures(*by_bytes)),
    ]
    if by_step:
        parts.append(section("Accuracy against step", figures(*by_step)))
    rows = [cells_of(cell) for cell in document["cells"]]
    parts.append(section("Every cell", table(HEAD, rows), paragraph(LEGEND, soft=True)))
    return page("Recall: how much of its input a mixer can look up again", parts, STYLE)


def studies_html(documents: Sequence[Entry]) -> str:
    """Return the whole page of several studies."""
    if not documents:
        raise ValueError("there is no study to show; accepted: one or more documents of studies")
    head = ("claim", "statement", "outcome", "answer")
    first = table(head, [[d["claim"], d["statement"], marked(d["outcome"]), d["answer"]] for d in documents])
    sections = [_study(document) for document in documents]
    return page("Recall: statements and outcomes", [first, *sections], STYLE)


def described(document: Entry) -> list[tuple[str, str]]:
    """Return what a study says of its statement, as (name, words): first the outcome."""
    controls = [f"{'passed' if one['passed'] else 'failed'}: {one['detail']}" for one in document["controls"]]
    named = {
        "outcome": f"{marked(document['outcome'])}. {document['answer']}",
        "why": document["sentence"],
        "held back": document["reason"],
        "scope": document["scope"],
        "controls": "; ".join(controls),
        "what it means": document["meaning"],
        "what would change it": document["change"],
    }
    return [(name, words) for name, words in named.items() if words]


def marked(outcome: str) -> str:
    return f"{SHOWN[outcome].mark} {outcome}"


def _study(document: Entry) -> str:
    first, *others = described(document)
    parts = [paragraph(first[1])]
    parts += [paragraph(f"{name.capitalize()}: {words}", soft=True) for name, words in others]
    parts += [paragraph(f"{name.capitalize()}: {document[name]}", soft=True) for name in ("source", "rule")]
    for one in document["tables"]:
        parts += [paragraph(one["title"]), table(one["head"], one["rows"])]
    parts += [_map(f"{document['name']}{i}", drawn) for i, drawn in enumerate(document.get("maps", []))]
    return section(f"{document['claim']}: {document['statement']}", *parts, paragraph(provenance(document), soft=True))


def _map(name: str, drawn: Entry) -> str:
    import torch  # not needed for tables

    from .heat import heat_figures

    maps = {mixer: torch.tensor(weights) for mixer, weights in drawn["maps"].items()}
    targets = [(row, column) for row, column in drawn["targets"]]
    return heat_figures(name, maps, targets, drawn["caption"])


def grouped(cells: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Group the cells that differ only in the mixer and its size, under what they have in common."""
    groups: dict[str, list[Entry]] = {}
    for cell in cells:
        config = cell["config"]
        named = {name: config.get(name, default) for name, default in (*WHERE, *HOW)}
        words = f"{named['task']}, {named['seq_len']} tokens, {named['pairs']} pairs, d_model {named['d_model']}"
        changed = [f"{name} {named[name] or 'nothing'}" for name, default in HOW if named[name] != default]
        groups.setdefault(", ".join([words, *changed]), []).append(cell)
    return groups


def by_mixer(cells: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return the cells of each mixer from the smallest state to the largest."""
    groups: dict[str, list[Entry]] = {cell["config"]["mixer"]: [] for cell in cells}
    for cell in sorted(cells, key=lambda cell: cell["mixer_bytes"]):
        groups[cell["config"]["mixer"]].append(cell)
    return groups


def colours(mixers: Iterable[str]) -> dict[str, str]:
    """Return the colour of each mixer, the same in every figure of a group; the text colour if it keeps every token."""
    sized = [mixer for mixer in mixers if mixer not in GROWING]
    return dict.fromkeys(GROWING, "currentColor") | {mixer: COLOURS[i % len(COLOURS)] for i, mixer in enumerate(sized)}


def against_bytes(about: str, cells: Sequence[Entry], ids: str) -> str:
    chart = bytes_chart(about, cells)
    colour = colours(chart.series)
    looks = {mixer: Look(number, colour[mixer], "") for number, mixer in enumerate(chart.series)}
    return figure(chart.to_dict(), ids, looks)


def bytes_chart(about: str, cells: Sequence[Entry]) -> Chart:
    """Return accuracy against bytes of state: a curve for each mixer, a level for those that keep every token."""
    groups = by_mixer(cells)
    series = {
        mixer: [
            (cell["mixer_bytes"], *(cell["accuracy"][part] for part in ("mean", "low", "high"))) for cell in of_mixer
        ]
        for mixer, of_mixer in groups.items()
    }
    levels = {mixer: points[-1][1] for mixer, points in series.items() if mixer in GROWING}
    caption = "Bars: 95 % t interval over seeds."
    return Chart(about, "bytes of state", "accuracy", series, log_x=True, caption=caption, y_range=ALL, levels=levels)


def against_step(about: str, cells: Sequence[Entry], ids: str) -> str:
    groups = by_mixer(cells)
    colour = colours(groups)
    series: dict[str, Sequence[Any]] = {}
    looks: dict[str, Look] = {}
    for mixer, of_mixer in groups.items():
        for dash, cell in zip(cycle(DASHES), of_mixer, strict=False):  # the smallest state is solid
            if cell.get("curve"):
                name = label(cell["config"])
                name += f" ({len(series)})" if name in series else ""
                looks[name] = Look(len(series), colour[mixer], dash)
                series[name] = cell["curve"]
    caption = "Mean of the seeds at the best rate."
    chart = Chart(about, "step", "accuracy", series, caption=caption, y_range=ALL)
    return figure(chart.to_dict(), ids, looks)


def provenance(document: Entry) -> str:
    machine, versions = document["machine"], document["versions"]
    return (
        f"{machine['name']}, {machine['cores']} cores, torch {versions['torch']}, linnet {versions['linnet']}; "
        f"{document['runs']:,} runs in {document['minutes']:.1f} minutes"
    )


def cells_of(cell: Entry) -> list[str]:
    """Return one cell as a row of the table of HEAD."""
    config, accuracy = cell["config"], cell["accuracy"]
    interval = f"{accuracy['mean']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}] of {accuracy['seeds']}"
    sizes = (str(config["seq_len"]), str(config["pairs"]), str(config["d_model"]), f"{cell['mixer_bytes']:,}")
    steps = "-" if cell["transition"] is None else f"{cell['transition']:.0f}"
    window = "-" if cell["window"] is None else f"{cell['window']:.1f}"
    rate = f"{config['lr']:g}" + ("" if cell["rates"] > 1 else " only")
    return [label(config), *sizes, interval, f"{cell['solved']:.0%}", steps, rate, window, f"{cell['seconds']:.0f}"]


def label(config: Mapping[str, Any]) -> str:
    """Return the mixer, with the width of its keys and its options."""
    width = f" f={config['key_dim']}" if config.get("key_dim") else ""
    options = "".join(f" {name}={value}" for name, value in config.get("options", {}).items())
    return f"{config['mixer']}{width}{options}"
