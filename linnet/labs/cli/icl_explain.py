"""`linnet icl explain MODEL`: what each layer of an in-context transformer does, as tables, a page or JSON.

Numbers and sentences come from linnet/labs/icl/explain.py, the page from linnet/labs/report/icl_explain.py, the tables
from icl_explain_show.py. `--example` walks through a model small enough for pencil and paper.
"""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.progress import Progress

from ...cli.common import FLAG

EPILOG = """\
Read a trained model of `linnet icl train` as an optimiser: the weights of every
layer, one sentence on what it does, its loss at each noise level compared with
ridge regression, how much each of its four kinds of weights matters, and which
known method its predictions are nearest to.

Three examples

    linnet icl explain --example
        one feature, two examples, two layers: every number, step by step

    linnet icl explain model.safetensors --out model.html
        the tables, and a page with figures

    linnet icl explain model.safetensors --no-ablation --json
        the quick part (seconds), as JSON
"""

SEQUENCES = 2000

explain = App(name="explain", help_epilogue=EPILOG, help_format="plaintext")


@explain.default
def run_explain(
    model: Path | None = None,
    *,
    example: Annotated[bool, FLAG] = False,
    noise: str | None = None,
    sequences: int = SEQUENCES,
    seed: int = 0,
    out: Path | None = None,
    ablation: bool = True,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Explain what each layer of a model does, and how well.

    Parameters
    ----------
    model
        A file that `linnet icl train` or `linnet icl table` wrote.
    example
        Show the worked example instead of a model.
    noise
        U5 for sigma uniform on (0, 5), 1,3 for one of the two, =2 for always 2; default: as in training.
    sequences
        Number of sequences per noise level.
    seed
        Seed of the sequences.
    out
        Also write a page with figures to this HTML file.
    ablation
        Remove each omega and refit: seconds for DIAG and GD++, a minute or more for deep FULL models.
    json
        Print one JSON document, and nothing else, on standard output.
    """
    if example:
        given = {"--sequences": (sequences, SEQUENCES), "--seed": (seed, 0), "--no-ablation": (ablation, True)}
        unused = {name: value for name, (value, usual) in given.items() if value != usual}
        _refuse_with_example({"the model": model, "--noise": noise, "--out": out} | unused)
        _print_example(json)
        return
    if model is None:
        raise ValueError("no model was given; accepted: a file of linnet icl train, or --example")
    _check_out(out)
    document = _explained(model, noise, sequences, seed, ablation)
    if out is not None:
        _write(document, out)
    if json:
        print(json_format.dumps(document, indent=1, allow_nan=False))
    else:
        from .icl_explain_show import show

        show(document, _console())
        if out is not None:
            print(f"\nThe page with figures is {out}")


def _refuse_with_example(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is {value}, but --example has its own model; leave one of the two out")


def _print_example(json: bool) -> None:
    from ..icl.explain_example import worked_example

    example = worked_example()
    if json:
        print(json_format.dumps(example, indent=1, allow_nan=False))
    else:
        from .icl_explain_show import show_example

        show_example(example, _console())


def _check_out(out: Path | None) -> None:
    """Refuse a page that cannot be written before minutes are spent."""
    if out is None:
        return
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out is {out}; accepted: a name that ends in .html")
    if out.is_dir() or not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise ValueError(f"--out is {out}; accepted: a file name in an existing, writable folder")


def _explained(path: Path, noise: str | None, sequences: int, seed: int, ablation: bool) -> dict[str, Any]:
    from ...regress.model import ICLTransformer
    from ..icl.explain import explain as explained
    from ..icl.noise import Noise

    model, given = ICLTransformer.load(path), None if noise is None else Noise.parse(noise)
    console = Console(stderr=True)
    if not console.is_interactive:
        return explained(model, given, sequences, seed, ablation)
    with Progress(console=console, transient=True) as progress:
        return explained(model, given, sequences, seed, ablation, _bars(progress))


def _bars(progress: Progress) -> Callable[[str, float], None]:
    """Return a progress callback that adds one bar for each part of the work."""
    tasks: dict[str, Any] = {}

    def report(what: str, part: float) -> None:
        if what not in tasks:
            tasks[what] = progress.add_task(what, total=1.0)
        progress.update(tasks[what], completed=part)

    return report


def _write(document: dict[str, Any], out: Path) -> None:
    from ...atomic import atomic
    from ..report.icl_explain import html

    text = html(document)
    with atomic(out) as file:
        file.write(text.encode())


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)
