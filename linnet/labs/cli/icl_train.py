"""`linnet icl train`: train, measure and save one in-context model."""

from __future__ import annotations

import json as json_format
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.progress import Progress

from ...cli.common import FLAG
from .icl_table_show import deep, number, printed

EPILOG = """\
Examples

    linnet icl train --model diag --layers 3 --noise U5 --out diag.safetensors
        three layers of four weights, sigma uniform on (0, 5)
    linnet icl train --model full --layers 4 --noise 1,3 --out full.safetensors
        sigma is 1 or 3; FULL has two 11 x 11 matrices in each layer

Then: linnet icl explain diag.safetensors
"""

train = App(name="train", help_format="plaintext", help_epilogue=EPILOG)


@train.default
def run_train(
    *,
    model: str = "diag",
    layers: int = 3,
    noise: str = "U5",
    recipe: str = "fast",
    out: Path = Path("model.safetensors"),
    d: int = 10,
    n: int = 20,
    heads: int = 1,
    seed: int = 0,
    sequences: int = 100_000,
    json: Annotated[bool, FLAG] = False,
) -> None:
    """Run `linnet icl train`.

    Parameters
    ----------
    model
        full, diag or gd++.
    layers
        1 to 8; the fast recipe first trains the shallower DIAG and GD++ models.
    noise
        The distribution of sigma: U5 is uniform on (0, 5), 1,3 one of the two, =2 always 2.
    recipe
        fast (our own, seconds to minutes), or paper (Adam, 200,000 steps of 2,048 sequences).
    out
        File to save the model to; an existing file is replaced.
    d
        Features of an example.
    n
        Examples of a sequence.
    heads
        Heads per layer; the paper has 1.
    seed
        Seed of the weights and the training sequences.
    sequences
        New sequences for the measurement.
    json
        Print JSON instead of sentences.
    """
    from ...regress.model import ICLConfig
    from ..icl.evaluate import evaluate_model
    from ..icl.noise import Noise
    from ..icl.recipes import Cell, train_cell
    from ..icl.table_units import Plan

    if out.is_dir() or not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise ValueError(f"--out is {out}; accepted: a file name in an existing, writable folder")
    of = Noise.parse(noise)
    Plan((model,), (layers,), (of.name,), recipe=recipe, sequences=sequences)  # refuses unknown values
    ICLConfig(model, layers, d, n, heads)
    cell = Cell(model, of.name, layers, seed=seed, recipe=recipe, d=d, n=n, heads=heads)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{model}, {deep(layers)} on {of.name}", total=1.0)
        trained = train_cell(cell, report=lambda share: bar.update(task, completed=share))
        trained.model.save(out)
    score = asdict(evaluate_model(trained.model, of, sequences))
    result = compare(cell, score) | {"file": str(out), "parameters": trained.model.parameter_count()}
    if json:
        from ...json_file import finite_or_none

        print(json_format.dumps(finite_or_none({**asdict(cell), **result, **score, "info": trained.info})))
    else:
        show(cell, result, score)


def compare(cell: Any, score: dict[str, Any]) -> dict[str, Any]:
    """Compare with the paper's value of this cell; all None where d, n or the heads differ from the paper's."""
    from ...json_file import finite_or_none
    from ..icl import table_compare as icl_compare
    from ..icl.paper import D, N

    if (cell.d, cell.n, cell.heads) != (D, N, 1):
        return {"paper": None, "z": None, "mark": None, "reason": None}
    return icl_compare.with_paper(cell.kind, cell.layers, cell.noise, finite_or_none(score))


def show(cell: Any, result: dict[str, Any], score: dict[str, Any]) -> None:
    loss, se = number(score["sharp"]), number(score["sharp_se"])
    print(
        f"{cell.kind}, {deep(cell.layers)} on {cell.noise}: {result['parameters']:,} weights, saved to {result['file']}"
    )
    print(f"half the squared error above the oracle's {score['oracle']:.4f}: {loss} ± {se}")
    print(f"median {number(score['median'])}, {100 * score['diverged']:.3g} % of sequences diverged")
    if result["paper"] is not None:
        verdicts = {
            "unclear": "ours is above it, but the error is too large to decide",
            "impossible": f"ours is above it, as it must be ({result['reason']})",
        }
        print(f"the paper has {printed(result['paper'])}: {verdicts.get(result['mark'], 'ours is ' + result['mark'])}")
    print(f"explain its layers with: linnet icl explain {result['file']}")
