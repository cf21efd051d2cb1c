"""The figures of `linnet icl explain`: each function takes the document of labs.icl.explain and returns its charts.

A number that is not finite is None in the document and a gap in the line. A loss of 0 is drawn at LEAST on a
logarithmic axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.chart import Chart

Document = dict[str, Any]
Points = list[tuple[Any, ...]]
OTHERS = ("ConstRR", "AdaRR", "TunedRR", "Bayes")
OURS = "this model"
LOSS = "loss above the oracle"
SIGMA = "noise level sigma"
LAYER = "layer"
LEAST = 1e-5  # where a loss of 0 is drawn on a logarithmic axis
METHODS = {"gd": "gradient descent", "newton": "Newton", "ridge": "ridge oracle", "bayes": "Bayes"}
OMEGAS = ("xx", "xy", "yx", "yy")
NUMBERS = (  # title, axis, its name in the document, the omega without which it means nothing
    ("How elongated the bowl is", "condition of Sigma after the layer", "condition_after", "xx"),
    ("Step along the gradient", "step size", "step", "yx"),
    ("Momentum", "part of the step size", "momentum", "yx"),
    ("Rescaling of the prediction", "factor 1 + ω_yy λ", "rescale", "yy"),
    ("Rescaling of later steps", "factor 1 + ω_xy λ", "adapt", "xy"),
)
TRACE = {
    "m": ("How far the inputs are transformed", "|M - I|"),
    "u": ("Labels mixed into the inputs", "|u|"),
    "a": ("Scale of the labels", "factor a"),
    "w": ("Size of the prediction", "|w|"),
}


def profile(document: Document) -> Chart:
    """Plot loss against sigma, on the scale of the model's losses: a much worse baseline leaves the frame."""
    rows = near(document)
    series = {OURS: losses(rows, "model")} | {name: losses(rows, name) for name in OTHERS if name in rows[0]["scores"]}
    inside = [row["scores"] for row in rows if row["inside"]]
    shown = [scores[name]["mean"] for scores in inside for name in ("model", "Bayes", "TunedRR") if name in scores]
    highest = max((loss for loss in shown if loss is not None), default=1.0)
    caption = "Loss at each noise level; the training range is shaded, and much worse methods leave the frame."
    limits = (0.0, 1.6 * highest + 1e-12)
    return Chart("Loss by noise", SIGMA, LOSS, series, caption=caption, y_range=limits, shade=training_range(document))


def after_layers(document: Document) -> Chart:
    rows, count = near(document), document["model"]["layers"]
    series = {f"after layer {i}": floored(losses(rows, f"after {i}")) for i in range(1, count + 1)}
    caption = "The prediction after each layer, at every noise level."
    return Chart(
        "Loss after each layer", SIGMA, LOSS, series, log_y=True, caption=caption, shade=training_range(document)
    )


def extrapolation(document: Document) -> list[Chart]:
    """Plot up to twice the training range: mean and median loss, and the share of sequences that diverged."""
    rows, scores = document["profile"], document["profile"][0]["scores"]
    series = {f"{OURS}, mean": floored(losses(rows, "model")), "median": floored(losses(rows, "model", "median"))}
    series |= {name: floored(losses(rows, name)) for name in ("AdaRR", "Bayes") if name in scores}
    caption = "Up to twice the training range. Where mean and median separate, a few sequences explode."
    shade = training_range(document)
    far = Chart("Loss beyond the training range", SIGMA, LOSS, series, log_y=True, caption=caption, shade=shade)
    shares = [(sigma, None if share is None else 100 * share) for sigma, share in losses(rows, "model", "diverged")]
    most = max([1.0, *(1.15 * share for _, share in shares if share is not None)])
    limits = (0.0, most)
    return [far, Chart("Sequences that diverge", SIGMA, "diverged, %", {OURS: shares}, y_range=limits, shade=shade)]


def omegas(document: Document) -> Chart:
    series = {
        f"ω_{name}": [(str(layer["number"]), layer["omega"][name]) for layer in live(document, name)] for name in OMEGAS
    }
    caption = "The four weights of each layer; one that no prediction uses has no bar."
    return Chart("The four omegas of each layer", LAYER, "weight omega", series, kind="bars", caption=caption)


def trace(document: Document) -> list[Chart]:
    """Plot the sizes of (M, u, a, w) after each layer, at low and high noise."""
    return [both(document, title, axis, name) for name, (title, axis) in TRACE.items()]


def layer_numbers(document: Document) -> list[Chart]:
    """Plot up to six numbers of each layer, at low and high noise; one that no layer has is left out."""
    first, *others = (both(document, *one) for one in NUMBERS)
    return [chart for chart in (first, spectrum(document), *others) if any(chart.series.values())]


def both(document: Document, title: str, axis: str, name: str, of: str = "yx") -> Chart:
    """Plot one number of every layer whose omega `of` is read: a line for low noise and one for high."""
    series = {
        f"sigma = {sigma:g}": [(str(layer["number"]), layer["at"][index][name]) for layer in live(document, of)]
        for index, sigma in enumerate(document["levels"])
    }
    return Chart(title, LAYER, axis, series)


def spectrum(document: Document) -> Chart:
    """Plot the median eigenvalue of I + A with the smallest and the largest, at low noise."""
    points = []
    for layer in live(document, "xx"):
        low, middle, high = layer["at"][0]["spectrum"]
        points.append((str(layer["number"]), middle, low, high))
    series = {f"sigma = {document['levels'][0]:g}": points}
    caption = "The median; a bar from the smallest to the largest."
    return Chart("Eigenvalues of I + A", LAYER, "eigenvalue", series, caption=caption)


def distances(document: Document) -> Chart:
    rows = document["distances"]
    series = {label: [(str(i), row[name]) for i, row in enumerate(rows, 1)] for name, label in METHODS.items()}
    caption = "The distance of each layer's prediction to that of a known method."
    return Chart("Distance to known methods", LAYER, "median relative distance", series, caption=caption)


def ablation(document: Document) -> Chart:
    """Plot the loss without each omega, as trained and refitted."""
    series = {
        label: floored([(without(row), row[what]["trimmed"] if row[what] else None) for row in document["ablation"]])
        for what, label in (("plain", "as trained"), ("refit", "refitted"))
    }
    y = "loss above the oracle, without the worst 1 %"
    caption = "Without yx the prediction is 0, refitted or not."
    return Chart("Loss without an omega", "without the weight", y, series, kind="bars", log_y=True, caption=caption)


def without(row: Document) -> str:
    """Return the name of what a row of the ablation removes: ω_xy and ω_yy, or nothing."""
    name: str = row["without"]
    return name if name == "nothing" else " and ".join(f"ω_{part}" for part in name.split(" and "))


def losses(rows: Sequence[Document], name: str, what: str = "mean") -> Points:
    """Return (sigma, score) of every noise level."""
    return [(row["sigma"], row["scores"][name][what]) for row in rows]


def near(document: Document) -> list[Document]:
    """Return the noise levels up to one above the training range."""
    top = max(document["levels"])
    return [row for row in document["profile"] if row["sigma"] <= top + 1]


def live(document: Document, name: str) -> list[Document]:
    """Return the layers whose omega of that name affects a prediction."""
    return [layer for layer in document["layers"] if name not in layer["dead"]]


def training_range(document: Document) -> tuple[float, float]:
    return min(document["levels"]), max(document["levels"])


def floored(points: Points) -> Points:
    """Clip losses to LEAST, for a logarithmic axis."""
    return [(x, None if loss is None else max(loss, LEAST)) for x, loss in points]
