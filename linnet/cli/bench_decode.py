"""`linnet bench decode`: a token at a time, the whole model in native code beside torch and softmax with a cache.

The measuring is in linnet/bench/decode*.py, the tables in bench_decode_show.py, the picture in bench_decode_plot.py;
here are the options, the progress bar and the JSON. torch is imported only once there is something to run.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter, Token
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..bench import Settings
from ..bench.decode import QUICK, DecodeJob, DecodeSettings, plan, sections
from . import bench_decode_show, doctor
from .bench import check_plot

FORMAT = 1  # of the JSON document
LESSON = """\
Time one decoding step of the image models of "Transformers are RNNs" (8 or 16
layers, width 256, 8 heads, random weights): the native engine with weights
stored as float32, bfloat16 or int8, the torch step, the same step by hand in
plain torch, and softmax attention by hand over a cache of --context tokens.

Every competitor must agree with float64 before it is timed. All take turns in
one process: the minimum of the rounds counts, the median stands beside it in
brackets. The limits of the same rounds are reading the weights once, and sgemm.

Four examples

    linnet bench decode --quick
        batch 1, in half a minute

    linnet bench decode --batch 1,64 --threads 2 --context 3072 --json
        two batch sizes, for a program

    linnet bench decode --no-steps --plot decode.png --context 100000
        state and time per token against softmax, as a picture

    linnet bench decode --no-steps --soak 10000000
        ten million tokens of one stream: is a token as cheap at the end?
"""


def separate(type_: Any, tokens: Sequence[Token]) -> list[str]:
    """1,8,64 and 1 8 64 are the same."""
    return [part for token in tokens for part in token.value.split(",") if part]


def whole(type_: Any, tokens: Sequence[Token]) -> list[int]:
    return [int(part) for part in separate(type_, tokens)]


NUMBERS = Parameter(consume_multiple=True, negative="", converter=whole)
NAMES = Parameter(consume_multiple=True, negative="", converter=separate)
SWITCH = Parameter(negative="")

decode = App(name="decode", help_epilogue=LESSON, help_format="plaintext")


@decode.default
def run_decode(
    *,
    quick: Annotated[bool, SWITCH] = False,
    json: Annotated[bool, SWITCH] = False,
    preset: str = "mnist",
    batch: Annotated[list[int] | None, NUMBERS] = None,
    threads: Annotated[list[int] | None, NUMBERS] = None,
    context: int | None = None,
    weights: Annotated[list[str] | None, NAMES] = None,
    rounds: int | None = None,
    recompute: Annotated[bool, SWITCH] = False,
    steps: bool = True,
    images: Annotated[bool, SWITCH] = False,
    plot: Path | None = None,
    soak: int | None = None,
) -> None:
    """The options of `linnet bench decode`.

    Parameters
    ----------
    quick
        Batch 1, the most threads, 3 rounds; other options still count.
    json
        One JSON document on standard output, and nothing else there.
    preset
        mnist (8 layers) or cifar10 (16 layers).
    batch
        Streams stepped together; 1,8,64 when not given.
    threads
        Numbers of threads; 1,2 when not given. Curve and soak take the largest.
    context
        Tokens that softmax attention sees; 3072 when not given. The picture goes up to it.
    weights
        float32, bfloat16, int8; all of them when not given. Curve and soak take the first.
    rounds
        Rounds of each case, at least 3; 9 when not given.
    recompute
        Also the softmax model on its whole context again, as without a cache; slow.
    steps
        The race of single steps; --no-steps leaves it out.
    images
        Also seconds per image, sampling included, beside the paper's.
    plot
        Also draw state and time per token against position into this file (needs the extra `report`).
    soak
        Also step one stream this many tokens: is it flat in time and memory?
    """
    asked: dict[str, Any] = {"context": context, "rounds": rounds, "soak": soak}
    asked |= {"batches": batch and tuple(batch), "threads": threads and tuple(threads)}
    asked |= {"weights": weights and tuple(weights)}
    given = {name: value for name, value in asked.items() if value is not None}
    parts = {"preset": preset, "recompute": recompute, "steps": steps, "images": images, "curve": plot is not None}
    settings = DecodeSettings(**{**(QUICK if quick else {}), **given, **parts})
    check_plot(plot, Settings())  # of the file alone: these settings have the section it asks for
    document = measure(settings, Console(stderr=True))
    if json:
        print(json_format.dumps(document, indent=1))
    else:
        bench_decode_show.show(document, Console(width=None if sys.stdout.isatty() else 150))
    if plot is not None and document["rows"]["curve"]:
        from . import bench_decode_plot

        bench_decode_plot.draw(document, plot)
    if document["interrupted"]:
        sys.exit(130)
    if not trustworthy(document):
        sys.exit(1)


def measure(settings: DecodeSettings, console: Console) -> dict[str, Any]:
    """The whole document; what there is of it when interrupted."""
    import torch

    jobs = plan(settings)
    document: dict[str, Any] = {"format": FORMAT, **conditions(settings), "interrupted": False}
    rows = document["rows"] = {section: [] for section in sections(settings)}
    columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn(), TextColumn("left"))
    before = torch.get_num_threads()
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
            bar, done = progress.add_task("", total=sum(job.seconds for job in jobs)), 0.0
            for job in jobs:
                progress.update(bar, description=f"{job.section}: {job.title}")
                rows[job.section].append(job.run(reporter(progress, bar, done, job)))
                done += job.seconds
                progress.update(bar, completed=done)
    except KeyboardInterrupt:
        document["interrupted"] = True
    finally:
        torch.set_num_threads(before)
    return document


def reporter(progress: Progress, bar: Any, done: float, job: DecodeJob) -> Any:
    return lambda part: progress.update(bar, completed=done + min(part, 1.0) * job.seconds)


def conditions(settings: DecodeSettings) -> dict[str, Any]:
    """Where and how the numbers were made."""
    from ..bench.decode_race import ABOUT, TOLERANCES
    from ..native import library

    about = {"machine": doctor.cpu(), "versions": doctor.versions(), "native": library.info()}
    how = {"preset": settings.preset, "context": settings.context, "rounds": settings.rounds}
    return {**about, **how, "threads": list(settings.threads), "tolerances": TOLERANCES, "competitors": ABOUT}


def trustworthy(document: dict[str, Any]) -> bool:
    """False when one of our own answers was wrong, or a stream did not end in finite numbers."""
    entries = [entry for row in document["rows"].get("steps", []) for entry in row["competitors"].items()]
    wrong = any(name.startswith(("linnet", "model")) and entry["status"] == "wrong" for name, entry in entries)
    return not wrong and all(row["finite"] for row in document["rows"].get("soak", []))
