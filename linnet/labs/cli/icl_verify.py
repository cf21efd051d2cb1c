"""`linnet icl verify`: check the theory of in-context linear transformers numerically on this machine.

Options, table and JSON of the checks in linnet/labs/icl/verify*.py. torch is imported only when there is something to
check. Exit status: 0 all checks passed, 1 a check failed, 2 a wrong option.
"""

from __future__ import annotations

import json as json_format
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...cli.common import FLAG, SEVERAL
from ...json_file import finite_or_none

if TYPE_CHECKING:
    from ..icl.verify import Check

FORMAT = 1  # of the JSON document
EPILOG = """\
Each line is a statement about linear transformers that learn in context, the
number computed for it, and the bound that the number must satisfy. Models and
data are small and random, in float64; no trained model is needed.

An identity holds to a relative error of 1e-10. Sampled quantities are given "in
errors", that is in standard errors, and may be off by 5 of them. The lines
wrong-forms are published formulas that are wrong: they pass when the formula
does not describe the network.

The names

    gram          the sums S = sum e e' are all that a model needs
    theorem-4.1   every layer holds one weight vector; predictions are linear
    lemma-4.3     the recursion of M, u, a, w is the network
    theorem-4.2   labels never turn into squares
    diag          four weights per layer; heads; weights without effect
    rotation      DIAG and GD++ are invariant to a rotation of the inputs
    lemma-4.4     a layer as gradient descent with momentum
    roles         how xy and yy respond to the size of the labels
    example       one feature, two examples, two layers, by hand
    wrong-forms   published formulas that do not hold
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
        the recursion, and wrong versions of it in print
    linnet icl verify --seed 1 --json > verify.json
        another seed, as JSON
"""

verify = App(name="verify", help_epilogue=EPILOG, help_format="plaintext")


@verify.default
def run_verify(
    *, only: Annotated[list[str] | None, SEVERAL] = None, seed: int = 0, json: Annotated[bool, FLAG] = False
) -> None:
    """Check every theorem, lemma and identity of the theory numerically; exit with 1 if one does not hold.

    Parameters
    ----------
    only
        Names of checks, such as lemma-4.3 theorem-5.1; default: all.
    seed
        Seed of the random models and data; the checks must pass with any seed.
    json
        Print one JSON document, and nothing else, on standard output.
    """
    from ..icl.verify import run

    with Console(stderr=True).status("checking") as status:
        checks = run(only, seed, report=lambda name: status.update(f"checking {name}"))
    if json:
        print(json_format.dumps(document(checks, seed), indent=1))
    else:
        show(checks, Console(width=None if sys.stdout.isatty() else 150))
    if not all(check.passed for check in checks):
        sys.exit(1)


def document(checks: list[Check], seed: int) -> dict[str, Any]:
    """Return the checks as JSON values, None for a value that is not finite."""
    rows = finite_or_none([check.as_dict() for check in checks])
    return {"format": FORMAT, "seed": seed, "passed": all(check.passed for check in checks), "checks": rows}


def show(checks: list[Check], console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("statement", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    table.add_column("", no_wrap=True)
    before = ""
    for check in checks:
        word = Text("pass", style="green") if check.passed else Text("FAIL", style="bold red")
        name, bound = check.name if check.name != before else "", f"{check.relation} {check.bound:g}"
        table.add_row(name, Text(check.statement), f"{check.value:.3g}", bound, word)
        before = check.name
    console.print(table)
    failed = sum(not check.passed for check in checks)
    console.print(f"\n{len(checks) - failed} of {len(checks)} checks passed", highlight=False)
