"""The page of `linnet icl explain`: the document of linnet.icl.explain as one HTML file with figures."""

from __future__ import annotations

from typing import Any

from . import icl_explain_figures as draw
from .page import figure, figures, numbered, page, paragraph, section, svg, table

Document = dict[str, Any]
ROUNDING = 1e-18  # a loss below this is 0
OMEGAS = ("xx", "xy", "yx", "yy")
MEANING = (
    "ω_xx rounds the bowl, ω_yx steps downhill, ω_xy shortens the steps when the labels are large, "
    "ω_yy shrinks the answer when the labels look noisy."
)


def html(document: Document) -> str:
    """The whole file; needs matplotlib."""
    model = document["model"]
    parts = [_summary(document), _layers(document), _numbers(document), _profiles(document), _distances(document)]
    if document["ablation"] is not None:
        parts.append(_ablation(document))
    return page(f"{model['kind'].upper()}, {model['layers']} layers, {document['noise']}: layer by layer", parts)


def _summary(document: Document) -> str:
    model, score = document["model"], document["score"]
    simple = {name: value for name, value in sorted(model["made"].items()) if isinstance(value, (str, int, float))}
    made = ", ".join(f"{name} {value}" for name, value in simple.items())
    heads = f"{model['heads']} head{'' if model['heads'] == 1 else 's'}"
    about = (
        f"{document['parameters']:,} weights in {heads}, d = {model['d']} features, n = {model['n']} examples, sigma "
        f"from {document['noise']}. Loss above the ridge oracle: {shown(score['sharp'])} (standard error "
        f"{shown(score['sharp_se'])}), without the worst 1 % of the sequences {shown(score['trimmed'])}; the oracle's "
        f"own is {shown(score['oracle'])}. {percent(score['diverged'])} of the sequences diverge."
    )
    method = (
        f"A loss is ½|w - w_oracle|², the mean half squared error of an answer above that of ridge regression told the "
        f"true sigma. Every other number is from {document['sequences']:,} sequences per noise level, seed "
        f"{document['seed']}. sigma is a standard deviation."
    )
    return (
        paragraph(about) + paragraph(method, soft=True) + (paragraph(f"Made with: {made}.", soft=True) if made else "")
    )


def _layers(document: Document) -> str:
    return section("What each layer does", numbered(layer["sentence"] for layer in document["layers"]))


def _numbers(document: Document) -> str:
    rows = [[str(layer["number"]), *omega_cells(layer, "omega")] for layer in document["layers"]]
    parts = [paragraph(MEANING), table(["layer", *(f"ω_{name}" for name in OMEGAS)], rows)]
    if document["model"]["kind"] == "full":
        near = [
            [str(layer["number"]), *omega_cells(layer, "nearest"), percent(layer["residual"])]
            for layer in document["layers"]
        ]
        said = "Above: what the blocks of each layer come to on these sequences. Below: the nearest DIAG weights."
        parts += [paragraph(said, soft=True), table(["layer", *(f"ω_{n}" for n in OMEGAS), "left over"], near)]
    traced = "After each layer x = M x + y u and y = a y - <w, x>: the layer holds the answer w."
    captions = (
        ("omegas", draw.omegas, 3.6, "The four numbers of each layer; a dash in the table is one that no answer uses."),
        ("trace", draw.trace, 4.2, traced),
        ("layers", draw.layer_numbers, 6.0, "Medians over sequences. A step is along the plain gradient."),
    )
    return section("In numbers", *parts, figures(*(_figure(document, *one) for one in captions)))


def _profiles(document: Document) -> str:
    captions = (
        ("profile", draw.profile, 3.6, "Loss at each noise level; the training range is shaded."),
        ("after", draw.after_layers, 3.8, "The answer held after each layer, at every noise level."),
        (
            "far",
            draw.extrapolation,
            4.4,
            "To twice the training range. Where mean and median part, a few sequences explode.",
        ),
    )
    names = [name for name in ("model", *draw.OTHERS) if name in document["profile"][0]["scores"]]
    head = ["sigma", *names, "model, median", "diverged", "½ oracle"]
    rows = [
        [
            f"{row['sigma']:g}{'' if row['inside'] else ' *'}",
            *(shown(row["scores"][name]["mean"]) for name in names),
            shown(row["scores"]["model"]["median"]),
            percent(row["scores"]["model"]["diverged"]),
            shown(row["oracle"]),
        ]
        for row in document["profile"]
    ]
    note = paragraph("* outside the training range.", soft=True)
    return section(
        "Against the noise", figures(*(_figure(document, *one) for one in captions)), table(head, rows), note
    )


def _distances(document: Document) -> str:
    said = (
        "Median of |w_l - v| / |v|, v being the answer of a known method: l steps of gradient descent, l Newton-Schulz "
        "iterations (each with the step size that comes nearest), ridge told the true sigma, and the Bayes answer."
    )
    names = ("gd", "newton", "ridge", "bayes")
    rows = [[str(layer), *(shown(row[name]) for name in names)] for layer, row in enumerate(document["distances"], 1)]
    drawn = figures(_figure(document, "distances", draw.distances, 3.4, "How near each layer's answer is to others."))
    head = ["layer", "gradient descent", "Newton", "ridge oracle", "Bayes"]
    return section("Nearest known method", paragraph(said), drawn, table(head, rows))


def _ablation(document: Document) -> str:
    said = (
        "One block of every layer's map is set to 0. As trained, the other weights still expect it; refitted, they "
        "have learned to do without. Of a FULL model the other blocks can take over much of what a removed one did."
    )
    head = ["without", "as trained", "median", "diverged", "refitted", "median", "diverged"]
    rows = [
        [draw.without(row), *score_cells(row["plain"]), *(score_cells(row["refit"]) if row["refit"] else ["-"] * 3)]
        for row in document["ablation"]
    ]
    drawn = figures(_figure(document, "ablation", draw.ablation, 3.6, "Without yx the answer is 0, refitted or not."))
    return section("What each omega is worth", paragraph(said), drawn, table(head, rows))


def _figure(document: Document, name: str, drawing: Any, height: float, caption: str) -> str:
    return figure(svg(lambda canvas: drawing(canvas, document), name, height), caption)


def omega_cells(layer: Document, which: str) -> list[str]:
    """The four numbers of a layer, a dash for one that nothing reads."""
    return ["-" if name in layer["dead"] else shown(layer[which][name]) for name in OMEGAS]


def score_cells(score: Document) -> list[str]:
    return [shown(score["mean"]), shown(score["median"]), percent(score["diverged"])]


def shown(value: float | None) -> str:
    """Three digits, no exponent for everyday sizes; rounding errors are 0, and what is not finite is said in a word."""
    if value is None:
        return "overflow"
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.2e}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"
