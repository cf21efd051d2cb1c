"""`linnet bench train`: a training step with linear attention beside the same step with softmax attention.

The measuring is in linnet/bench/train.py; here are the options, the progress bar, the table and the JSON. torch is
imported only once there is something to run, so that help and a refused option come at once.
"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..bench import recall as recall_model
from ..bench import train as text_model
from ..bench.recall import RecallSettings
from ..bench.train import TrainSettings
from . import doctor
from .bench import SEVERAL, Numbers
from .bench_show import deliver, made_on, mebibytes, new_table, print_table, say_interrupted

FORMAT = 1  # of the JSON document
LESSON = """\
Time a whole training step (forward, backward, AdamW) of a character model with
6 layers, width 256 and 8 heads, on random characters, for each mixer.

Every step has the same number of tokens. The mixers take turns in one process,
with an sgemm in every round: the minimum of the rounds counts, the median
stands beside it in brackets. Per cent is of the sgemm rate on the flops of the
step; memory is what one step adds to the process at its worst moment.

With --recall the model is that of `linnet recall`: a short convolution and the
mixer, width 64, one head, targets at every fourth position. ReBased runs again
with its features as torch tensors: "indexed" as one writes x_i x_j, "products"
by matrix products, which is faster. Each is in two chunked forms, and a ratio
is to the faster of the two.

Three examples

    linnet bench train --quick
        half a minute: 256 and 1,024 tokens, 3 rounds

    linnet bench train --recall --threads 1
        half a minute: 64 sequences of 256 tokens, 16 of 1,024

    linnet bench train --json > train.json
        lengths 256, 1,024 and 4,096 on 2 threads, for a program
"""

train = App(name="train", help_epilogue=LESSON, help_format="plaintext")


@train.default
def run_train(
    *,
    recall: Annotated[bool, Parameter(negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
    lengths: Numbers = None,
    mixers: Annotated[list[str] | None, SEVERAL] = None,
    threads: int | None = None,
    tokens: int | None = None,
    rounds: int | None = None,
) -> None:
    """The options of `linnet bench train`.

    Parameters
    ----------
    recall
        The model of the recall laboratory instead of the character model.
    quick
        Lengths 256 and 1,024 in 3 rounds; other options still count.
    json
        One JSON document on standard output, and nothing else there.
    lengths
        Tokens per sequence; 256 1024 4096 (recall: 256 1024) when not given.
    mixers
        elu, rebased, softmax (recall: also taylor, delta, "indexed batched",
        "indexed loop", "products batched", "products loop"); all of them when not given. Ratios need what they
        compare with.
    threads
        Number of threads; 2 when not given.
    tokens
        Tokens of a step; 4096 (recall: 16384) when not given.
    rounds
        Rounds of each length, at least 3; 7 when not given.
    """
    asked: dict[str, Any] = {"threads": threads, "tokens": tokens, "rounds": rounds}
    asked |= {name: value and tuple(value) for name, value in (("lengths", lengths), ("mixers", mixers))}
    given = {name: value for name, value in asked.items() if value is not None}
    made = RecallSettings if recall else TrainSettings
    few = (recall_model if recall else text_model).QUICK if quick else {}
    document = measure(made(**{**few, **given}), Console(stderr=True))
    deliver(document, json, show)


def measure(settings: TrainSettings, console: Console) -> dict[str, Any]:
    """The whole document; what there is of it when interrupted."""
    import torch

    from ..native import library

    about = {"machine": doctor.cpu(), "versions": doctor.versions(), "native": library.info()}
    recall = isinstance(settings, RecallSettings)
    race = (recall_model if recall else text_model).race
    what = {"recall": recall, "rounds": settings.rounds}
    document: dict[str, Any] = {"format": FORMAT, **about, **what, "rows": [], "interrupted": False}
    before = torch.get_num_threads()
    try:
        with Progress(console=console, transient=True) as progress:
            for length in progress.track(settings.lengths, description="training steps"):
                document["rows"].append(race(settings, length))
    except KeyboardInterrupt:
        document["interrupted"] = True
    finally:
        torch.set_num_threads(before)
    return document


def show(document: dict[str, Any], console: Console) -> None:
    console.print(f"{made_on(document)}; {document['rounds']} rounds, float32", highlight=False)
    for row in document["rows"]:
        title = f"{row['batch']} x {row['length']:,} tokens, threads {row['threads']}"
        print_table(console, f"{title} (sgemm {row['sgemm']['gflops']:.0f} GF/s)", table(row))
    say_interrupted(document, console)


def table(row: dict[str, Any]) -> Table:
    ratios = {"faster than softmax": "ratio", "than indexed": "ratio_indexed", "than products": "ratio_products"}
    shown = {title: key for title, key in ratios.items() if any(key in entry for entry in row["mixers"].values())}
    found = new_table("mixer", "ms per step", "tokens/s", *shown, "% of sgemm", "MiB of a step")
    for name, entry in row["mixers"].items():
        ms = f"{entry['min_s'] * 1e3:.0f} ({entry['median_s'] * 1e3:.0f})"
        times = [f"{entry[key]:.2f} ({entry[key + '_median']:.2f})" for key in shown.values()]
        percent = "-" if entry["sgemm_percent"] is None else f"{entry['sgemm_percent']:.0f}"
        found.add_row(name, ms, f"{entry['tokens_per_s']:,.0f}", *times, percent, mebibytes(entry["extra_bytes"]))
    return found
