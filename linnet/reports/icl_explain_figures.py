"""The figures of `linnet icl explain`: each takes the document of linnet.icl.explain and draws on a matplotlib figure.

A number that was not finite is None in the document and a gap in the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .page import COLOURS, INK

Document = dict[str, Any]
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = COLOURS
OTHERS = {"ConstRR": GREY, "AdaRR": GREEN, "TunedRR": ORANGE, "Bayes": PURPLE}
LEAST = 1e-5  # what a loss of 0 is drawn at on a logarithmic axis


def number(value: float | None) -> float:
    return math.nan if value is None else value


def losses(rows: Sequence[Document], name: str, what: str = "mean") -> list[float]:
    return [number(row["scores"][name][what]) for row in rows]


def near(document: Document) -> list[Document]:
    """The noise levels up to one above the training range."""
    top = max(document["levels"])
    return [row for row in document["profile"] if row["sigma"] <= top + 1]


def profile(figure: Any, document: Document) -> None:
    """Loss against sigma, on the scale of the model's own losses: a baseline that is far worse leaves the frame."""
    axes, rows = figure.subplots(), near(document)
    sigmas = [row["sigma"] for row in rows]
    shade(axes, document)
    for name, colour in OTHERS.items():
        if name in rows[0]["scores"]:
            axes.plot(sigmas, losses(rows, name), color=colour, linewidth=1.3, label=name)
    axes.plot(sigmas, losses(rows, "model"), color=BLUE, linewidth=2.6, label="this model")
    inside = [row for row in rows if row["inside"]]
    shown = [
        loss for name in ("model", "Bayes", "TunedRR") if name in rows[0]["scores"] for loss in losses(inside, name)
    ]
    highest = max((loss for loss in shown if math.isfinite(loss)), default=1.0)
    axes.set(xlabel="sigma", ylabel="loss above the oracle", ylim=(0, 1.6 * highest + 1e-12), xlim=(0, sigmas[-1]))
    legend(figure, axes, 3)


def extrapolation(figure: Any, document: Document) -> None:
    """Out to twice the training range: mean, median, and below them the share of sequences that diverged."""
    rows = document["profile"]
    sigmas = [row["sigma"] for row in rows]
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for axes in (above, below):
        shade(axes, document)
    for name, colour in OTHERS.items():
        if name in ("AdaRR", "Bayes") and name in rows[0]["scores"]:
            above.plot(sigmas, floored(losses(rows, name)), color=colour, linewidth=1.3, label=name)
    above.plot(sigmas, floored(losses(rows, "model")), color=BLUE, linewidth=2.6, label="this model, mean")
    above.plot(sigmas, floored(losses(rows, "model", "median")), color=BLUE, linestyle="--", label="median")
    above.set(yscale="log", ylabel="loss")
    shares = [100 * share for share in losses(rows, "model", "diverged")]
    below.plot(sigmas, shares, color=RED, marker="o", markersize=3)
    below.set(xlabel="sigma", ylabel="diverged, %", xlim=(0, sigmas[-1]), ylim=(0, max(1.0, 1.15 * max(shares))))
    legend(figure, above, 2)


def after_layers(figure: Any, document: Document) -> None:
    """Loss of the answer that each layer holds, against sigma."""
    import matplotlib

    axes, rows, count = figure.subplots(), near(document), document["model"]["layers"]
    colours = matplotlib.colormaps["viridis"]
    shade(axes, document)
    for layer in range(1, count + 1):
        colour = colours(0.85 - 0.55 * (layer - 1) / max(1, count - 1))
        values = floored(losses(rows, f"after {layer}"))
        axes.plot([row["sigma"] for row in rows], values, color=colour, linewidth=1.8, label=f"after layer {layer}")
    axes.set(xlabel="sigma", ylabel="loss above the oracle", yscale="log", xlim=(0, rows[-1]["sigma"]))
    legend(figure, axes, 3)


def layer_numbers(figure: Any, document: Document) -> None:
    """Six numbers of each layer at low and high noise."""
    grid = figure.subplots(3, 2).flatten()
    both(grid[0], document, "condition of Sigma, after", "condition_after", "xx")
    spectrum(grid[1], document)
    both(grid[2], document, "step", "step")
    both(grid[3], document, "momentum in the step", "momentum")
    both(grid[4], document, "rescale, 1 + ω_yy λ", "rescale", "yy")
    both(grid[5], document, "adapt, 1 + ω_xy λ", "adapt", "xy")
    legend(figure, grid[0], 2)


def trace(figure: Any, document: Document) -> None:
    """Sizes of (M, u, a, w) after each layer, at low and high noise."""
    grid = figure.subplots(2, 2).flatten()
    titles = {"m": "|M - I|", "u": "|u|", "a": "a", "w": "|w|"}
    for axes, (name, title) in zip(grid, titles.items(), strict=True):
        both(axes, document, title, name)
    legend(figure, grid[0], 2)


def omegas(figure: Any, document: Document) -> None:
    """The four numbers of each layer, those that nothing reads left out."""
    for axes, name in zip(figure.subplots(2, 2).flatten(), ("xx", "xy", "yx", "yy"), strict=True):
        layers = live(document, name)
        axes.bar([layer["number"] for layer in layers], [number(one["omega"][name]) for one in layers], color=BLUE)
        axes.axhline(0, color=INK, linewidth=0.8)
        finish(axes, document, f"ω_{name}")


def distances(figure: Any, document: Document) -> None:
    axes, rows = figure.subplots(), document["distances"]
    names = {"gd": ORANGE, "newton": GREEN, "ridge": GREY, "bayes": PURPLE}
    labels = {"gd": "gradient descent", "newton": "Newton", "ridge": "ridge oracle", "bayes": "Bayes"}
    for name, colour in names.items():
        values = [number(row[name]) for row in rows]
        axes.plot(range(1, len(rows) + 1), values, color=colour, marker="o", markersize=4, label=labels[name])
    axes.set(xlabel="layer", ylabel="median relative distance", ylim=(0, None))
    axes.set_xticks(range(1, len(rows) + 1))
    legend(figure, axes, 2)


def ablation(figure: Any, document: Document) -> None:
    """Loss without each omega, a line from refitted to as trained."""
    axes, rows = figure.subplots(), document["ablation"][::-1]
    values = {
        what: floored([number(row[what]["trimmed"]) if row[what] else math.nan for row in rows])
        for what in ("plain", "refit")
    }
    axes.hlines(range(len(rows)), values["refit"], values["plain"], color=GREY, linewidth=1.5)
    for what, colour, label in (("plain", ORANGE, "as trained"), ("refit", BLUE, "refitted")):
        axes.plot(values[what], range(len(rows)), color=colour, marker="o", linestyle="", label=label)
    axes.set_yticks(range(len(rows)), [without(row) for row in rows])
    axes.set(xscale="log", xlabel="loss above the oracle, without the worst 1 %", ylabel="without")
    legend(figure, axes, 2)


def without(row: Document) -> str:
    """ω_xy and ω_yy, or nothing."""
    name: str = row["without"]
    return name if name == "nothing" else " and ".join(f"ω_{part}" for part in name.split(" and "))


def both(axes: Any, document: Document, title: str, name: str, of: str = "yx") -> None:
    """One number of every layer whose omega `of` is read: a line for low noise and one for high."""
    layers = live(document, of)
    for index, sigma in enumerate(document["levels"]):
        values = [number(layer["at"][index][name]) for layer in layers]
        style = {"color": RED if index else BLUE, "marker": "o", "markersize": 4}
        axes.plot([layer["number"] for layer in layers], values, label=f"sigma = {sigma:g}", **style)
    finish(axes, document, title)


def live(document: Document, name: str) -> list[Document]:
    """The layers whose omega of that name some answer depends on."""
    return [layer for layer in document["layers"] if name not in layer["dead"]]


def spectrum(axes: Any, document: Document) -> None:
    """Smallest to largest eigenvalue of I + A as a bar, the middle one as a dot, at low noise."""
    for layer in live(document, "xx"):
        low, mid, high = (number(value) for value in layer["at"][0]["spectrum"])
        axes.plot([layer["number"]] * 2, [low, high], color=BLUE, linewidth=5, alpha=0.4, solid_capstyle="butt")
        axes.plot([layer["number"]], [mid], color=BLUE, marker="o", markersize=4)
    finish(axes, document, "eigenvalues of I + A")


def finish(axes: Any, document: Document, title: str) -> None:
    axes.set_title(title)
    count = document["model"]["layers"]
    axes.set_xlim(0.4, count + 0.6)
    axes.set_xticks(range(1, count + 1))


def shade(axes: Any, document: Document) -> None:
    """The training range."""
    low, high = min(document["levels"]), max(document["levels"])
    axes.axvspan(low, high, color=GREY, alpha=0.13, linewidth=0)


def legend(figure: Any, axes: Any, columns: int) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=columns)


def floored(values: Sequence[float]) -> list[float]:
    """For a logarithmic axis: no loss below LEAST."""
    return [value if math.isnan(value) else max(value, LEAST) for value in values]
