"""`linnet bench train`: time a training step with linear attention against the same step with softmax attention.

Options, progress bar, table and JSON of the measurements in linnet/labs/bench/train.py. torch is
imported only when there is something to run, so that help and refused options are instant.
"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.table import Table

from ...cli.common import FLAG, SEVERAL, Numbers, deliver
from ..bench import recall as recall_model
from ..bench import train as text_model
from ..bench.recall import RecallSettings
from ..bench.train import TrainSettings
from .bench_frame import measuring, new_document
from .bench_show import in_markdown, mebibytes, new_table, print_interrupted, print_table, provenance
from .options import check_one_format, given

EPILOG = """\
Time a whole training step (forward, backward, AdamW) of a character model with
6 layers, width 256 and 8 heads, on random characters, for each mixer.

Every step has the same number of tokens. The mixers take turns in one process,
with an sgemm in every round. Times are the minimum of the rounds, with the
median in parentheses. Per cent is of the sgemm rate, on the flops of the step;
memory is the peak that one step adds to the process.

With --recall the model is that of `linnet recall`: a short convolution and the
mixer, width 64, one head, targets at every fourth position. ReBased also runs
with its features as torch tensors: "indexed" gathers x_i x_j, "products" uses
matrix products, which is faster. Each has two chunked forms; ratios are to the
faster one.

Four examples

    linnet bench train --quick
        half a minute: 256 and 1,024 tokens, 3 rounds

    linnet bench train --recall --threads 1
        half a minute: 64 sequences of 256 tokens, 16 of 1,024

    linnet bench train --mixers all --lengths 1024
        the recurrent mixers too, next to elu

    linnet bench train --json > train.json
        lengths 256, 1,024 and 4,096 on 2 threads, as JSON
"""

train = App(name="train", help_epilogue=EPILOG, help_format="plaintext")


@train.default
def run_train(
    *,
    recall: Annotated[bool, FLAG] = False,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    markdown: Annotated[bool, FLAG] = False,
    lengths: Numbers = None,
    mixers: Annotated[list[str] | None, SEVERAL] = None,
    threads: int | None = None,
    tokens: int | None = None,
    rounds: int | None = None,
) -> None:
    """Run `linnet bench train`.

    Parameters
    ----------
    recall
        Time the model of `linnet recall` instead of the character model.
    quick
        Lengths 256 and 1,024 in 3 rounds; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    markdown
        Print the tables in Markdown.
    lengths
        Tokens per sequence; default: 256 1024 4096 (recall: 256 1024).
    mixers
        elu, rebased, softmax, retnet, gla, mamba2, delta, gated_delta, kda, rwkv7, mamba, rwkv4, or all; default: the
        first three. Recall: elu, rebased, softmax, taylor, delta, "indexed batched", "indexed loop",
        "products batched", "products loop"; default: all. A ratio needs both of its mixers.
    threads
        Number of threads; default: 2.
    tokens
        Tokens per step; default: 4096 (recall: 16384).
    rounds
        Rounds per length, at least 3; default: 7.
    """
    check_one_format(json, markdown)
    settings = RecallSettings if recall else TrainSettings
    every = list(settings.known) if mixers == ["all"] else mixers
    options = given(threads=threads, tokens=tokens, rounds=rounds, lengths=lengths, mixers=every)
    few = (recall_model if recall else text_model).QUICK if quick else {}
    document = measure(settings(**{**few, **options}), Console(stderr=True))
    deliver(document, json, in_markdown(show) if markdown else show)


def measure(settings: TrainSettings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    recall = isinstance(settings, RecallSettings)
    race = (recall_model if recall else text_model).race
    document = new_document(recall=recall, rounds=settings.rounds, rows=[])
    with measuring(document, console) as progress:
        for length in progress.track(settings.lengths, description="training steps"):
            document["rows"].append(race(settings, length))
    return document


def show(document: dict[str, Any], console: Console) -> None:
    console.print(f"{provenance(document)}; {document['rounds']} rounds, float32", highlight=False)
    for row in document["rows"]:
        title = f"{row['batch']} x {row['length']:,} tokens, threads {row['threads']}"
        print_table(console, f"{title} (sgemm {row['sgemm']['gflops']:.0f} GF/s)", table(row))
    print_interrupted(document, console)


def table(row: dict[str, Any]) -> Table:
    ratios = {"faster than softmax": "ratio", "than indexed": "ratio_indexed", "than products": "ratio_products"}
    of_elu = any("ratio_elu" in entry for entry in row["mixers"].values())
    shown = {title: key for title, key in ratios.items() if any(key in entry for entry in row["mixers"].values())}
    drawn = new_table("mixer", "ms per step", "tokens/s", *shown, *["/ elu"] * of_elu, "% of sgemm", "MiB per step")
    for name, entry in row["mixers"].items():
        ms = f"{entry['min_s'] * 1e3:.0f} ({entry['median_s'] * 1e3:.0f})"
        times = [f"{entry[key]:.2f} ({entry[key + '_median']:.2f})" for key in shown.values()]
        times += [f"{1 / entry['ratio_elu']:.2f} ({1 / entry['ratio_elu_median']:.2f})"] * of_elu
        percent = "-" if entry["sgemm_percent"] is None else f"{entry['sgemm_percent']:.0f}"
        drawn.add_row(name, ms, f"{entry['tokens_per_s']:,.0f}", *times, percent, mebibytes(entry["extra_bytes"]))
    return drawn
