"""`linnet icl verify`: the theory of in-context linear transformers, checked number by number on this machine.

The checks are in linnet/icl/verify*.py; here are the options, the table and the JSON. torch is imported only when there
is something to check. Exit status: 0 all passed, 1 one failed, 2 a mistake in what was asked.
"""

from __future__ import annotations

import json as json_format
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .bench import SEVERAL

if TYPE_CHECKING:
    from ..icl.verify import Check

FORMAT = 1  # of the JSON document
LESSON = """\
Each line is a statement about linear transformers that learn in context, the
number that was just computed for it, and the bound that it has to keep. Models
and data are small and random, in float64; no trained model is needed.

An identity holds to 1e-10, a relative error. What is sampled is given "in
errors", that is in standard errors, and may be off by 5 of them. The lines
wrong-forms are formulas found in print: they pass when they fail to describe
the network.

The names

    gram          the sums S = sum e e' are all that a model needs
    theorem-4.1   every layer holds one weight vector; answers are linear
    lemma-4.3     the recursion of M, u, a, w is the network
    theorem-4.2   labels never turn into squares
    diag          four numbers a layer; heads; numbers without effect
    rotation      DIAG and GD++ do not see a rotation of the inputs
    lemma-4.4     a layer as gradient descent with momentum
    roles         how xy and yy answer to the size of the labels
    example       one feature, two examples, two layers, by hand
    wrong-forms   formulas in print that do not hold
    squares       least squares, ridge, and the loss without a query
    one-layer     the best single layer in closed form
    gd++-bound    GD++ is a fixed filter and cannot beat one ridge penalty
    lemma-a.2     nearly white inputs need one step
    lemma-a.3     how a layer shrinks the condition number
    theorem-5.1   least squares in log + log log layers
    theorem-5.2   two layers, two noise levels, ridge for both

Three examples

    linnet icl verify
        all of them, in seconds
    linnet icl verify --only lemma-4.3 wrong-forms
        the recursion, and what is printed of it elsewhere
    linnet icl verify --seed 1 --json > verify.json
        other random numbers, for a program
"""

verify = App(name="verify", help_epilogue=LESSON, help_format="plaintext")


@verify.default
def run_verify(
    *,
    only: Annotated[list[str] | None, SEVERAL] = None,
    seed: int = 0,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Check every theorem, lemma and identity of the theory by a number; leave with 1 if one does not hold.

    Parameters
    ----------
    only
        Names of checks, such as lemma-4.3 theorem-5.1; all of them when not given.
    seed
        Of the random models and data; any seed has to pass.
    json
        One JSON document on standard output, and nothing else there.
    """
    from ..icl.verify import run

    with Console(stderr=True).status("checking") as status:
        found = run(only, seed, report=lambda name: status.update(f"checking {name}"))
    if json:
        print(json_format.dumps(document(found, seed), indent=1))
    else:
        show(found, Console(width=None if sys.stdout.isatty() else 150))
    if not all(check.passed for check in found):
        sys.exit(1)


def document(found: list[Check], seed: int) -> dict[str, Any]:
    """As JSON has it: null for a value that is no number."""
    rows = [check.as_dict() for check in found]
    rows = [{**row, "value": row["value"] if math.isfinite(row["value"]) else None} for row in rows]
    return {"format": FORMAT, "seed": seed, "passed": all(check.passed for check in found), "checks": rows}


def show(found: list[Check], console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("statement", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    table.add_column("", no_wrap=True)
    before = ""
    for check in found:
        word = Text("pass", style="green") if check.passed else Text("FAIL", style="bold red")
        name, bound = check.name if check.name != before else "", f"{check.relation} {check.bound:g}"
        table.add_row(name, Text(check.statement), f"{check.value:.3g}", bound, word)
        before = check.name
    console.print(table)
    failed = sum(not check.passed for check in found)
    console.print(f"\n{len(found) - failed} of {len(found)} checks passed", highlight=False)
