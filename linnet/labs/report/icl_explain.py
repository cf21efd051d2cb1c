"""The page of `linnet icl explain`: the document of linnet.labs.icl.explain as one HTML file with figures."""

from __future__ import annotations

from typing import Any

from ..core.chart import Chart
from . import icl_explain_figures as draw
from .axes import readable
from .chart import STYLE, figure
from .page import figures, numbered, page, paragraph, prose, section, table

Document = dict[str, Any]
ROUNDING = 1e-18  # a loss below this is 0
LEARNED = 0.9  # of the loss of always answering 0: a model above it has learned nothing
DIVERGES = 0.01  # share of diverging sequences from which means say little
WARNING = """
.warning { border-left: 4px solid #b3352e; background: var(--card); padding: .6rem .9rem; font-weight: 600; }
"""
SMALL = ".several .figures { grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }"
MEANING = (
    "ω_xx improves the condition number, ω_yx steps along the gradient, ω_xy shortens the steps when the labels are "
    "large, ω_yy shrinks the prediction when the labels look noisy."
)


def html(document: Document) -> str:
    """Return the whole page."""
    model = document["model"]
    parts = [_summary(document), _layers(document), _numbers(document), _profiles(document), _distances(document)]
    if document["ablation"] is not None:
        parts.append(_ablation(document))
    title = f"{model['kind'].upper()}, {layers(model)}, {document['noise']}: layer by layer"
    return page(title, parts, STYLE + SMALL + WARNING)


def layers(model: Document) -> str:
    return f"{model['layers']} layer{'' if model['layers'] == 1 else 's'}"


def warnings(document: Document) -> list[str]:
    """Return what a reader must know first: that nothing was learned, or that means are those of a few sequences.

    Answering 0 has ½|w_oracle|² above the oracle, on average d / 2 less the oracle's own loss.
    """
    score, lines = document["score"], []
    zero = document["model"]["d"] / 2 - (score["oracle"] or 0.0)
    if score["trimmed"] is None or score["trimmed"] >= LEARNED * zero:
        lines.append(
            f"Nothing was learned: the loss above the oracle is {shown(score['trimmed'])} without the worst 1 % of the "
            f"sequences, and always answering 0 would have {shown(zero)}. Do not read the layers below as a method."
        )
    if score["diverged"] is None or score["diverged"] > DIVERGES:
        lines.append(
            f"{percent(score['diverged'])} of the sequences diverge: means are those of a few, so read the medians."
        )
    return lines


def _summary(document: Document) -> str:
    model, score = document["model"], document["score"]
    simple = {name: value for name, value in sorted(model["made"].items()) if isinstance(value, (str, int, float))}
    origin = ", ".join(f"{name} {value}" for name, value in simple.items())
    heads = f"{model['heads']} head{'' if model['heads'] == 1 else 's'}"
    about = (
        f"{document['parameters']:,} weights in {heads}, d = {model['d']} features, n = {model['n']} examples, sigma "
        f"from {document['noise']}. Loss above the ridge oracle: {shown(score['sharp'])} (standard error "
        f"{shown(score['sharp_se'])}), without the worst 1 % of the sequences {shown(score['trimmed'])}; the oracle's "
        f"loss is {shown(score['oracle'])}. {percent(score['diverged'])} of the sequences diverge."
    )
    method = (
        f"A loss is ½|w - w_oracle|², the mean half squared error of a prediction above that of ridge regression with "
        f"the true sigma. Every other number is from {document['sequences']:,} sequences per noise level, seed "
        f"{document['seed']}. sigma is a standard deviation."
    )
    warned = "".join(f'<p class="warning" role="note">{prose(line)}</p>' for line in warnings(document))
    return (
        warned
        + paragraph(about)
        + paragraph(method, soft=True)
        + (paragraph(f"Trained with: {origin}.", soft=True) if origin else "")
    )


def _layers(document: Document) -> str:
    return section("What each layer does", numbered(layer["sentence"] for layer in document["layers"]))


def _numbers(document: Document) -> str:
    rows = [[str(layer["number"]), *omega_cells(layer, "omega")] for layer in document["layers"]]
    parts = [paragraph(MEANING), table(["layer", *(f"ω_{name}" for name in draw.OMEGAS)], rows)]
    if document["model"]["kind"] == "full":
        near = [
            [str(layer["number"]), *omega_cells(layer, "nearest"), percent(layer["residual"])]
            for layer in document["layers"]
        ]
        caption = "Above: the blocks of each layer measured on these sequences. Below: the nearest DIAG weights."
        parts += [paragraph(caption, soft=True), table(["layer", *(f"ω_{n}" for n in draw.OMEGAS), "residual"], near)]
    traced = "After each layer x = M x + y u and y = a y - <w, x>: the layer holds the prediction w."
    parts.append(_drawn("omegas", draw.omegas(document)))
    parts += [paragraph(traced), _drawn("trace", *draw.trace(document))]
    parts += [
        paragraph("Medians over sequences. A step is along the plain gradient."),
        _drawn("layers", *draw.layer_numbers(document)),
    ]
    return section("In numbers", *parts)


def _profiles(document: Document) -> str:
    drawn = _drawn("noise", draw.profile(document), draw.after_layers(document), *draw.extrapolation(document))
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
    return section("Against the noise", drawn, table(head, rows), note)


def _distances(document: Document) -> str:
    caption = (
        "Median of |w_l - v| / |v|, where v is that of a known method: l steps of gradient descent, l Newton-Schulz "
        "iterations (each with the nearest step size), ridge with the true sigma, and the Bayes predictor."
    )
    rows = [[str(i), *(shown(row[name]) for name in draw.METHODS)] for i, row in enumerate(document["distances"], 1)]
    drawn = _drawn("distances", draw.distances(document))
    return section("Nearest known method", paragraph(caption), drawn, table(["layer", *draw.METHODS.values()], rows))


def _ablation(document: Document) -> str:
    caption = (
        "One block of every layer's map is set to 0. As trained, the other weights still expect it; refitted, they "
        "have adapted. In a FULL model the other blocks can take over much of the role of a removed one."
    )
    head = ["without", "as trained", "median", "diverged", "refitted", "median", "diverged"]
    rows = [
        [draw.without(row), *score_cells(row["plain"]), *(score_cells(row["refit"]) if row["refit"] else ["-"] * 3)]
        for row in document["ablation"]
    ]
    drawn = _drawn("ablation", draw.ablation(document))
    return section("The effect of each omega", paragraph(caption), drawn, table(head, rows))


def _drawn(name: str, *charts: Chart) -> str:
    """Draw charts side by side, three in a row where they divide evenly; `name` is the prefix of their ids."""
    drawn = figures(*(figure(chart.to_dict(), f"{name}-{i}") for i, chart in enumerate(charts)))
    return f'<div class="several">{drawn}</div>' if len(charts) % 3 == 0 else drawn


def omega_cells(layer: Document, which: str) -> list[str]:
    """Return the four weights of a layer, a dash for one that nothing reads."""
    return ["-" if name in layer["dead"] else shown(layer[which][name]) for name in draw.OMEGAS]


def score_cells(score: Document) -> list[str]:
    return [shown(score["mean"]), shown(score["median"]), percent(score["diverged"])]


def shown(value: float | None) -> str:
    """Format with three digits: 479, 694,000, 0.00037, 1.5 × 10⁸; rounding errors are 0, None is overflow."""
    if value is None:
        return "overflow"
    if abs(value) < ROUNDING:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return readable(f"{value:.2g}" if "e" in f"{value:.2g}" else f"{value:.1e}")
    return f"{float(f'{value:.3g}'):,g}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"
