"""`linnet icl`: the in-context learning laboratory; each sub-command is loaded when it is used."""

from __future__ import annotations

from cyclopts import App

EPILOG = """\
A linear transformer reads a handful of examples (x, y) of a linear rule it has
never seen, and predicts y for the next x. Each of its layers is a step of an
optimiser that it discovered in training. These commands train such models in
seconds to minutes, compare them with ridge regression and the Bayes predictor,
check them against the theory, and explain them layer by layer.

Vladymyrov et al. 2024, "Linear Transformers are Versatile In-Context Learners",
arXiv:2402.14180.

Start with

    linnet icl train --model diag --layers 3 --noise U5 --out diag.safetensors
        one model with 12 weights
    linnet icl explain diag.safetensors
        what each of its layers does
    linnet icl verify
        a numeric check of every theorem, with pass or fail
    linnet icl table --quick
        a corner of the paper's Table 1, our values next to the paper's
"""

icl = App(name="icl", help_format="plaintext", help_epilogue=EPILOG)
icl.help = "Linear transformers that learn in context: train, compare, verify, explain."
icl.command(
    "linnet.labs.cli.icl_table:table",
    name="table",
    help="Reproduce the paper's Table 1: the paper's value, ours, better or not.",
)
icl.command("linnet.labs.cli.icl_train:train", name="train", help="Train one model and save it.")
icl.command("linnet.labs.cli.icl_verify:verify", name="verify", help="Check every theorem and identity numerically.")
icl.command(
    "linnet.labs.cli.icl_explain:explain", name="explain", help="Read a model's layers as steps of an optimiser."
)
