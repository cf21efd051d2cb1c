"""`linnet icl train`: one in-context model, trained, measured and saved."""

from __future__ import annotations

import json as json_format
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress

from .icl_table_show import deep, number, printed

LESSON = """\
Examples

    linnet icl train --model diag --layers 3 --noise U5 --out diag.safetensors
        three layers of four numbers, sigma uniform on (0, 5)
    linnet icl train --model full --layers 4 --noise 1,3 --out full.safetensors
        sigma is 1 or 3; FULL has two 11 x 11 matrices in each layer

Then: linnet icl explain diag.safetensors
"""

train = App(name="train", help_format="plaintext", help_epilogue=LESSON)


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
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """The options of `linnet icl train`.

    Parameters
    ----------
    model
        full, diag or gd++.
    layers
        1 to 8; the fast recipe trains the shallower DIAG and GD++ models on the way.
    noise
        The distribution of sigma: U5 is uniform on (0, 5), 1,3 one of the two, =2 always 2.
    recipe
        fast (our own, seconds to minutes), or paper (Adam, 200,000 steps of 2,048 sequences).
    out
        The file to save the model in; one that is there is replaced.
    d
        Features of an example.
    n
        Examples of a sequence.
    heads
        Of each layer; the paper has 1.
    seed
        Of the weights and the training sequences.
    sequences
        New sequences to measure on.
    json
        Print JSON instead of sentences.
    """
    from ..experiments.icl_table import grow
    from ..experiments.icl_units import Plan
    from ..icl.evaluate import evaluate_model
    from ..icl.recipes import Cell
    from ..models import ICLConfig
    from ..tasks import Noise

    if out.is_dir() or not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise ValueError(f"--out is {out}; accepted: a file in a folder that is there and can be written")
    of = Noise.parse(noise)
    Plan((model,), (layers,), (of.name,), recipe=recipe, sequences=sequences)  # refuses what is not to be had
    ICLConfig(model, layers, d, n, heads)
    cell = Cell(model, of.name, layers, seed=seed, recipe=recipe, d=d, n=n, heads=heads)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{model}, {deep(layers)} on {of.name}", total=1.0)
        trained = grow(cell, report=lambda share: bar.update(task, completed=share))
        trained.model.save(out)
    score = asdict(evaluate_model(trained.model, of, sequences))
    found = beside(cell, score) | {"file": str(out), "parameters": trained.model.parameter_count()}
    if json:
        from ..experiments.results import finite

        print(json_format.dumps(finite({**asdict(cell), **found, **score, "info": trained.info})))
    else:
        say(cell, found, score)


def beside(cell: Any, score: dict[str, Any]) -> dict[str, Any]:
    """What the paper has in this cell; nothing for another d, n or number of heads than its own."""
    from ..experiments import icl_compare
    from ..experiments.results import finite
    from ..icl.paper import D, N

    if (cell.d, cell.n, cell.heads) != (D, N, 1):
        return {"paper": None, "z": None, "mark": None, "reason": None}
    return icl_compare.beside(cell.kind, cell.layers, cell.noise, finite(score))


def say(cell: Any, found: dict[str, Any], score: dict[str, Any]) -> None:
    loss, se = number(score["sharp"]), number(score["sharp_se"])
    print(
        f"{cell.kind}, {deep(cell.layers)} on {cell.noise}: {found['parameters']:,} numbers, saved in {found['file']}"
    )
    print(f"half the squared error above the oracle's {score['oracle']:.4f}: {loss} ± {se}")
    print(f"median {number(score['median'])}, {100 * score['diverged']:.3g} % of sequences diverged")
    if found["paper"] is not None:
        verdicts = {
            "unclear": "ours is above it, with an error too large to tell",
            "impossible": f"ours is above it, as it must be ({found['reason']})",
        }
        print(f"the paper has {printed(found['paper'])}: {verdicts.get(found['mark'], 'ours is ' + found['mark'])}")
    print(f"read its layers with: linnet icl explain {found['file']}")
