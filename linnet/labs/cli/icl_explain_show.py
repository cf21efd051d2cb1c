"""The tables of `linnet icl explain`, and the worked example in words and numbers."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..report.icl_explain import layers, omega_cells, percent, score_cells, shown, warnings
from ..report.icl_explain_figures import OMEGAS, OTHERS, without
from .bench_show import new_table, print_table

Document = dict[str, Any]
LETTERS = {"m": "M", "u": "u", "a": "a", "w": "w"}


def show(document: Document, console: Console) -> None:
    """Print all of the document that fits a terminal."""
    model, score = document["model"], document["score"]
    heads = f"{model['heads']} head{'' if model['heads'] == 1 else 's'}, {document['parameters']:,} weights"
    kind = f"{model['kind'].upper()}, {layers(model)}, {heads}, d = {model['d']}, n = {model['n']}"
    robust = f"without the worst 1 % {shown(score['trimmed'])}, diverged {percent(score['diverged'])}"
    console.print(f"{kind}, sigma from {document['noise']}")
    console.print(
        f"loss above the ridge oracle {shown(score['sharp'])} ± {shown(score['sharp_se'])}, {robust}; "
        f"the oracle's own {shown(score['oracle'])}"
    )
    for line in warnings(document):
        console.print(Text(f"Warning: {line}", style="bold red"))
    console.print(Text("\nwhat each layer does", style="bold"))
    for layer in document["layers"]:
        console.print(Padding(Text(f"{layer['number']}. {layer['sentence']}"), (0, 0, 0, 2), expand=False))
    _print_omegas(document, console)
    for index, sigma in enumerate(document["levels"]):
        print_table(
            console, f"sigma = {sigma:g}: medians over {document['sequences']:,} sequences", _at(document, index)
        )
    print_table(console, "loss above the oracle at each sigma (* outside the training range)", _profile(document))
    print_table(console, "median relative distance of each layer's prediction to known methods", _distances(document))
    if document["ablation"] is not None:
        print_table(console, "loss without an omega in all layers, as trained and refitted", _ablation(document))


def _print_omegas(document: Document, console: Console) -> None:
    full = document["model"]["kind"] == "full"
    table = new_table("layer", *(f"ω_{name}" for name in OMEGAS))
    for layer in document["layers"]:
        table.add_row(str(layer["number"]), *omega_cells(layer, "omega"))
    print_table(console, "omegas as measured on the sequences" if full else "omegas (- : no prediction uses it)", table)
    if full:
        near = new_table("layer", *(f"ω_{name}" for name in OMEGAS), "residual")
        for layer in document["layers"]:
            near.add_row(str(layer["number"]), *omega_cells(layer, "nearest"), percent(layer["residual"]))
        print_table(console, "the nearest DIAG weights, and the share of the weights that they leave unexplained", near)


def _at(document: Document, index: int) -> Table:
    names = ("step", "momentum", "rescale", "adapt", "a", "u", "w", "gap")
    head = ("step", "momentum", "1 + ω_yy λ", "1 + ω_xy λ", "a", "|u|", "|w|", "loss")
    table = new_table("layer", "condition", "I + A", *head)
    for layer in document["layers"]:
        at, dead = layer["at"][index], layer["dead"]
        bowl = f"{shown(at['condition'])} -> {shown(at['condition_after'])}" if "xx" not in dead else "-"
        spread = " ".join(f"{value:.2f}" for value in at["spectrum"]) if "xx" not in dead else "-"
        unread = {"rescale": "yy" in dead, "adapt": "xy" in dead}
        cells = ["-" if unread.get(name) else shown(at[name]) for name in names]
        table.add_row(str(layer["number"]), bowl, spread, *cells)
    return table


def _profile(document: Document) -> Table:
    names = [name for name in ("model", *OTHERS) if name in document["profile"][0]["scores"]]
    table = new_table("sigma", *names, "model's median", "diverged", "½ oracle")
    for row in document["profile"]:
        model = row["scores"]["model"]
        means = [shown(row["scores"][name]["mean"]) for name in names]
        sigma = f"{row['sigma']:g}" + ("  " if row["inside"] else " *")
        table.add_row(sigma, *means, shown(model["median"]), percent(model["diverged"]), shown(row["oracle"]))
    return table


def _distances(document: Document) -> Table:
    table = new_table("layer", "gradient descent", "its step", "Newton", "its step", "ridge oracle", "Bayes")
    for layer, row in enumerate(document["distances"], 1):
        names = ("gd", "gd step", "newton", "newton step", "ridge", "bayes")
        table.add_row(str(layer), *(shown(row[name]) for name in names))
    return table


def _ablation(document: Document) -> Table:
    table = new_table("without", "as trained", "median", "diverged", "refitted", "median", "diverged")
    for row in document["ablation"]:
        refit = score_cells(row["refit"]) if row["refit"] else ["-"] * 3
        table.add_row(without(row), *score_cells(row["plain"]), *refit)
    return table


def show_example(example: Document, console: Console) -> None:
    """Print each layer of the worked example in formulas, then tokens, trace and sums side by side."""
    points = ", ".join(f"({x:g}, {y:g})" for x, y in zip(example["x"], example["y"], strict=True))
    rest = ", ".join(f"{value:.6g}" for value in example["residuals"])
    console.print(
        f"One feature, two examples: tokens (x, y) = {points}; the query is ({example['query']:g}, 0).\n"
        f"Least squares gives w* = {example['least squares']:.6g}, residuals {rest}, rho = {example['rho']:.6g}.\n"
        "S = sum of token times token: Sigma = sum x x, alpha = sum y x, lambda = sum y y."
    )
    _print_state(example["states"][0], "before any layer", console)
    for number, layer in enumerate(example["layers"], 1):
        before, after = example["states"][number - 1 : number + 1]
        console.print(Text(f"\nLayer {number}", style="bold"))
        for line in example_lines(example, layer, before, after):
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
        _print_state(after, f"after layer {number}", console)
    answer, least = example["states"][-1]["answer"], example["least squares"]
    console.print(f"\nThe model predicts {answer:.6g}; least squares predicts {least:.6g}.")


def example_lines(example: Document, layer: Document, before: Document, after: Document) -> list[str]:
    """Insert the layer's numbers into the formulas, one line per result."""
    maps = (("A", "xx", "Sigma"), ("b", "xy", "alpha"), ("c", "yx", "alpha"), ("e", "yy", "lambda"))
    lines = []
    for name, which, total in maps:
        factors = f"{layer['omega'][which]:g} * {before['sums'][total]:.6g}"
        lines.append(f"{name}  = ω_{which} {total} = {factors} = {layer['map'][name]:.6g}")
    upper, b, c, lower = layer["map"].values()
    m, u, a, w = before["trace"].values()
    new = after["trace"]
    recursion = (
        ("m", "(1 + A) M - b w", f"{_in(1 + upper)} * {_in(m)} - {_in(b)} * {_in(w)}"),
        ("u", "(1 + A) u + a b", f"{_in(1 + upper)} * {_in(u)} + {_in(a)} * {_in(b)}"),
        ("a", "(1 + e) a + c u", f"{_in(1 + lower)} * {_in(a)} + {_in(c)} * {_in(u)}"),
        ("w", "(1 + e) w - M c", f"{_in(1 + lower)} * {_in(w)} - {_in(m)} * {_in(c)}"),
    )
    lines += [f"{LETTERS[name]}' = {rule} = {put_in} = {new[name]:.6g}" for name, rule, put_in in recursion]
    x, y = example["x"][0], example["y"][0]
    first = f"x = M' {x:g} + {y:g} u' = {new['m'] * x + y * new['u']:.6g}"
    return [*lines, f"so token 1 is {first}, y = a' {y:g} - w' {x:g} = {new['a'] * y - new['w'] * x:.6g}"]


def _in(value: float) -> str:
    """Format a number inside a formula, a negative one in parentheses."""
    return f"{value:.6g}" if value >= 0 else f"({value:.6g})"


def _print_state(state: Document, title: str, console: Console) -> None:
    table = new_table("tokens (x, y)", "trace", "sums", "prediction")
    tokens = [f"({x:.6g}, {y:.6g})" for x, y in (*state["tokens"], state["query"])]
    tokens[-1] = f"query {tokens[-1]}"
    traced = [f"{LETTERS[name]} = {value:.6g}" for name, value in state["trace"].items()]
    sums = [f"{name} = {value:.6g}" for name, value in state["sums"].items()]
    for row in range(4):
        cells = [column[row] if row < len(column) else "" for column in (tokens, traced, sums)]
        table.add_row(*cells, f"{state['answer']:.6g}" if row == 0 else "")
    print_table(console, title, table)
