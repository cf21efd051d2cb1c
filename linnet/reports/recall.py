"""The pages of `linnet recall`: documents of linnet/experiments/recall/document.py as HTML with figures.

    html(document)             a sweep: accuracy against bytes of state, accuracy against step, the table
    studies_html(documents)    questions, each with its verdict, its tables and, where it has them, maps of attention

A cell may have "curve", [[step, mean accuracy of its seeds], ...]; a study may have "maps", a list of figures
{"caption", "maps": {mixer: weights [T][T]}, "targets": [[row, column], ...]}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

from .page import COLOURS, INK, figure, figures, page, paragraph, section, svg, table

Entry = dict[str, Any]
HEAD = ("mixer", "N", "pairs", "d", "bytes of state", "accuracy", "solved", "steps to 0.9", "rate", "window", "s")
LEGEND = (
    "bytes: of the mixer under test, one sequence after its last token; solved: share of seeds at 0.99 or more; "
    "window: log10 of the rates with 0.95 or more"
)
GROWING = ("softmax", "lsh")  # keep every token
MARKERS = ("o", "s", "^", "D", "v", "P")
WHERE: tuple[tuple[str, Any], ...] = (("task", "mqar"), ("seq_len", 64), ("pairs", 16), ("d_model", 64))
HOW: tuple[tuple[str, Any], ...] = (("filler", "zero"), ("first", "conv"), ("depth", 1), ("positions", "none"))


def html(document: Entry) -> str:
    """The whole file of a sweep; needs matplotlib."""
    groups = grouped(document["cells"])
    by_bytes = [
        _figure(f"bytes{i}", against_bytes, cells, f"{about}. Bars: 95 % of the bootstrap over seeds.")
        for i, (about, cells) in enumerate(groups.items())
    ]
    by_step = [
        _figure(f"steps{i}", against_step, cells, f"{about}. Mean of the seeds at the best rate.")
        for i, (about, cells) in enumerate(groups.items())
        if any(cell.get("curve") for cell in cells)
    ]
    said = (
        "The sequence gives pairs of keys and values, then asks for the value of each key. A mixer that keeps every "
        "token is drawn dashed up to its bytes, which grow with the sequence; the others have a state of fixed size."
    )
    parts = [paragraph(made(document)), section("Accuracy against bytes of state", paragraph(said), figures(*by_bytes))]
    if by_step:
        parts.append(section("Accuracy against step", figures(*by_step)))
    rows = [cells_of(cell) for cell in document["cells"]]
    parts.append(section("Every cell", table(HEAD, rows), paragraph(LEGEND, soft=True)))
    return page("Recall: how much of what it read a mixer can look up again", parts)


def studies_html(documents: Sequence[Entry]) -> str:
    """The whole file of several studies; needs matplotlib where one of them has maps."""
    if not documents:
        raise ValueError("there is no study to show; accepted: one or more documents of a study")
    first = table(("claim", "question", "verdict"), [[d["claim"], d["question"], d["outcome"]] for d in documents])
    return page("Recall: questions and what the runs say", [first, *(_study(document) for document in documents)])


def _study(document: Entry) -> str:
    parts = [paragraph(f"{document['outcome'].capitalize()}. {document['sentence']}.")]
    parts += [paragraph(f"{name.capitalize()}: {document[name]}.", soft=True) for name in ("expected", "rule")]
    for found in document["tables"]:
        parts += [paragraph(found["title"]), table(found["head"], found["rows"])]
    parts += [_map(f"{document['name']}{i}", drawn) for i, drawn in enumerate(document.get("maps", []))]
    return section(f"{document['claim']}: {document['question']}", *parts, paragraph(made(document), soft=True))


def _map(name: str, drawn: Entry) -> str:
    import torch  # tables do without

    from .heat import heat_figure

    maps = {mixer: torch.tensor(weights) for mixer, weights in drawn["maps"].items()}
    targets = [(row, column) for row, column in drawn["targets"]]
    return figures(heat_figure(name, maps, targets, drawn["caption"]))


def grouped(cells: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Cells that differ in the mixer and its size only, under what they have in common."""
    found: dict[str, list[Entry]] = {}
    for cell in cells:
        config = cell["config"]
        named = {name: config.get(name, default) for name, default in (*WHERE, *HOW)}
        words = f"{named['task']}, {named['seq_len']} tokens, {named['pairs']} pairs, d_model {named['d_model']}"
        changed = [f"{name} {named[name] or 'nothing'}" for name, default in HOW if named[name] != default]
        found.setdefault(", ".join([words, *changed]), []).append(cell)
    return found


def by_mixer(cells: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The cells of each mixer from the smallest state to the largest."""
    found: dict[str, list[Entry]] = {cell["config"]["mixer"]: [] for cell in cells}
    for cell in sorted(cells, key=lambda cell: cell["mixer_bytes"]):
        found[cell["config"]["mixer"]].append(cell)
    return found


def colours(mixers: Iterable[str]) -> dict[str, str]:
    """The same in every figure of a group; ink for what keeps every token."""
    sized = [mixer for mixer in mixers if mixer not in GROWING]
    return dict.fromkeys(GROWING, INK) | {mixer: COLOURS[i % len(COLOURS)] for i, mixer in enumerate(sized)}


def against_bytes(canvas: Any, cells: Sequence[Entry]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes, groups = canvas.subplots(), by_mixer(cells)
    fewest, colour = min(cell["mixer_bytes"] for cell in cells), colours(groups)
    for i, (mixer, of) in enumerate(groups.items()):
        x, y = [cell["mixer_bytes"] for cell in of], [cell["accuracy"]["mean"] for cell in of]
        bars = [[abs(cell["accuracy"][end] - cell["accuracy"]["mean"]) for cell in of] for end in ("low", "high")]
        if mixer in GROWING:
            axes.plot([fewest, x[-1]], [y[-1], y[-1]], color=colour[mixer], linestyle="--", linewidth=1)
        look: Entry = {"color": colour[mixer], "marker": MARKERS[i % len(MARKERS)], "markersize": 4, "linewidth": 1.4}
        axes.errorbar(x, y, yerr=bars, capsize=2, label=mixer, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("bytes of state")
    _finish(axes)


def against_step(canvas: Any, cells: Sequence[Entry]) -> None:
    axes, groups = canvas.subplots(), by_mixer(cells)
    colour = colours(groups)
    for mixer, of in groups.items():
        for dashes, cell in zip(cycle(("-", "--", ":", "-.")), of, strict=False):  # the smallest state is solid
            if cell.get("curve"):
                x, y = zip(*cell["curve"], strict=True)
                axes.plot(x, y, dashes, color=colour[mixer], linewidth=1.4, label=label(cell["config"]))
    axes.set_xlabel("step")
    _finish(axes)


def _finish(axes: Any) -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("accuracy")
    axes.figure.legend(loc="outside lower center", ncols=3)


def _figure(name: str, drawing: Callable[..., None], cells: Sequence[Entry], caption: str) -> str:
    return figure(svg(lambda canvas: drawing(canvas, cells), name, height=4.2), caption)


def made(document: Entry) -> str:
    machine, versions = document["machine"], document["versions"]
    return (
        f"{machine['name']}, {machine['cores']} cores, torch {versions['torch']}, linnet {versions['linnet']}; "
        f"{document['runs']:,} runs in {document['minutes']:.1f} minutes"
    )


def cells_of(cell: Entry) -> list[str]:
    """One cell as a row of the table of HEAD."""
    config, accuracy = cell["config"], cell["accuracy"]
    interval = f"{accuracy['mean']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}] of {accuracy['seeds']}"
    sizes = (str(config["seq_len"]), str(config["pairs"]), str(config["d_model"]), f"{cell['mixer_bytes']:,}")
    steps = "-" if cell["transition"] is None else f"{cell['transition']:.0f}"
    window = "-" if cell["window"] is None else f"{cell['window']:.1f}"
    rate = f"{config['lr']:g}" + ("" if cell["rates"] > 1 else " only")
    return [label(config), *sizes, interval, f"{cell['solved']:.0%}", steps, rate, window, f"{cell['seconds']:.0f}"]


def label(config: Mapping[str, Any]) -> str:
    """The mixer, with the width of its keys and its own options."""
    width = f" f={config['key_dim']}" if config.get("key_dim") else ""
    options = "".join(f" {name}={value}" for name, value in config.get("options", {}).items())
    return f"{config['mixer']}{width}{options}"
