"""`linnet icl`: the in-context learning laboratory; its sub-commands are loaded when one is asked for."""

from __future__ import annotations

from cyclopts import App

LESSON = """\
A linear transformer reads a handful of examples (x, y) of a linear rule it has
never seen, and answers the next x. Each of its layers is a step of an optimiser
that it invented in training. Here such models are trained in seconds to minutes,
compared with ridge regression and the Bayes answer, checked against the theory,
and read layer by layer.

Vladymyrov et al. 2024, "Linear Transformers are Versatile In-Context Learners",
arXiv:2402.14180.

Begin with

    linnet icl train --model diag --layers 3 --noise U5 --out diag.safetensors
        one model of 12 numbers
    linnet icl explain diag.safetensors
        what each of its layers does
    linnet icl verify
        every theorem as a number, with pass or fail
    linnet icl table --quick
        a corner of the paper's Table 1, ours beside the paper's
"""

icl = App(name="icl", help_format="plaintext", help_epilogue=LESSON)
icl.help = "Linear transformers that learn in context: train, compare, verify, explain."
icl.command("linnet.cli.icl_table:table", name="table", help="The paper's Table 1: paper's value, ours, better or not.")
icl.command("linnet.cli.icl_train:train", name="train", help="Train one model and save it.")
icl.command("linnet.cli.icl_verify:verify", name="verify", help="Every theorem and identity as a numeric check.")
icl.command("linnet.cli.icl_explain:explain", name="explain", help="Read a model's layers as steps of an optimiser.")
