"""`linnet bench decode`: time one token of the native decoder against torch and softmax attention with a cache.

Options, progress bar and JSON of the measurements in linnet/labs/bench/decode*.py; the tables are in
bench_decode_show.py, the figure in bench_decode_plot.py. torch is imported only when there is something to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter, Token
from rich.console import Console
from rich.progress import Progress

from ...cli.common import FLAG
from ..bench import Settings
from ..bench.decode import ALL, MIXERS, QUICK, DecodeJob, DecodeSettings, plan, sections
from . import bench_decode_plot, bench_decode_show
from .bench import check_plot
from .bench_frame import measuring, new_document, publish
from .options import given

EPILOG = """\
Time one decoding step of the image models of "Transformers are RNNs" (8 or 16
layers, width 256, 8 heads, random weights): the native engine with weights
stored as float32, bfloat16 or int8, the torch step, the same step written in
plain torch, and softmax attention in plain torch with --context cached tokens.

Every competitor must agree with float64 before it is timed. All take turns in
one process. Times are the minimum of the rounds, with the median in
parentheses. Two limits are timed in the same rounds: reading the weights once,
and an sgemm.

Five examples

    linnet bench decode --quick
        half a minute: batch 1

    linnet bench decode --batch 1,64 --threads 2 --context 3072 --json
        two batch sizes, for a program

    linnet bench decode --no-steps --mixers all --batch 1
        the same model with every mixer, next to reading its weights

    linnet bench decode --no-steps --plot decode.png --context 100000
        state and time per token compared with softmax, as a figure

    linnet bench decode --no-steps --soak 10000000
        ten million tokens of one stream: is a token as cheap at the end?
"""


def separate(type_: Any, tokens: Sequence[Token]) -> list[str]:
    """Split at commas, so that 1,8,64 and 1 8 64 mean the same."""
    return [part for token in tokens for part in token.value.split(",") if part]


def whole(type_: Any, tokens: Sequence[Token]) -> list[int]:
    return [int(part) for part in separate(type_, tokens)]


NUMBERS = Parameter(consume_multiple=True, negative="", converter=whole)
NAMES = Parameter(consume_multiple=True, negative="", converter=separate)

decode = App(name="decode", help_epilogue=EPILOG, help_format="plaintext")


@decode.default
def run_decode(
    *,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    preset: str = "mnist",
    batch: Annotated[list[int] | None, NUMBERS] = None,
    threads: Annotated[list[int] | None, NUMBERS] = None,
    context: int | None = None,
    weights: Annotated[list[str] | None, NAMES] = None,
    rounds: int | None = None,
    recompute: Annotated[bool, FLAG] = False,
    steps: bool = True,
    mixers: Annotated[list[str] | None, NAMES] = None,
    images: Annotated[bool, FLAG] = False,
    plot: Path | None = None,
    soak: int | None = None,
) -> None:
    """Run `linnet bench decode`.

    Parameters
    ----------
    quick
        Batch 1, the most threads, 3 rounds; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    preset
        mnist (8 layers) or cifar10 (16 layers).
    batch
        Streams decoded together; default: 1,8,64.
    threads
        Thread counts; default: 1,2. Curve and soak take the largest.
    context
        Tokens that softmax attention sees; default: 3072. The figure goes up to it.
    weights
        float32, bfloat16, int8; default: all. Curve and soak take the first.
    rounds
        Rounds of each case, at least 3; default: 9.
    recompute
        Also time the softmax model that recomputes its whole context for each token, without a cache; slow.
    steps
        Time single steps; --no-steps leaves them out.
    mixers
        Also time the model with each of these mixers: names, or all.
    images
        Also measure seconds per image, sampling included, next to the paper's.
    plot
        Also plot state and time per token against position in this file: .html, .svg, or, with the extra `report`,
        .png and .pdf.
    soak
        Also decode this many tokens of one stream: do time and memory stay flat?
    """
    options = given(context=context, rounds=rounds, soak=soak, batches=batch, threads=threads, weights=weights)
    options |= given(mixers=None if mixers is None else every(mixers))
    parts = {"preset": preset, "recompute": recompute, "steps": steps, "images": images, "curve": plot is not None}
    settings = DecodeSettings(**{**(QUICK if quick else {}), **options, **parts})
    check_plot(plot, Settings())  # checks the file name only: the default settings contain the section ops
    document = measure(settings, Console(stderr=True))
    drawn = plot if document["rows"].get("curve") else None
    publish(document, json, bench_decode_show.show, drawn, bench_decode_plot.draw, trustworthy)


def every(mixers: list[str]) -> list[str]:
    """Return the mixers by name, "all" replaced by all of them."""
    return list(dict.fromkeys(one for name in mixers for one in (MIXERS if name == ALL else (name,))))


def measure(settings: DecodeSettings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    jobs = plan(settings)
    rows: dict[str, list[Any]] = {section: [] for section in sections(settings)}
    document = new_document(**conditions(settings), rows=rows)
    with measuring(document, console) as progress:
        bar, done = progress.add_task("", total=sum(job.seconds for job in jobs)), 0.0
        for job in jobs:
            progress.update(bar, description=f"{job.section}: {job.title}")
            rows[job.section].append(job.run(reporter(progress, bar, done, job)))
            done += job.seconds
            progress.update(bar, completed=done)
    return document


def reporter(progress: Progress, bar: Any, done: float, job: DecodeJob) -> Any:
    return lambda part: progress.update(bar, completed=done + min(part, 1.0) * job.seconds)


def conditions(settings: DecodeSettings) -> dict[str, Any]:
    """Return the settings behind the numbers."""
    from ..bench.decode_race import ABOUT, TOLERANCES

    how = {"preset": settings.preset, "context": settings.context, "rounds": settings.rounds}
    return {**how, "threads": list(settings.threads), "tolerances": TOLERANCES, "competitors": ABOUT}


def trustworthy(document: dict[str, Any]) -> bool:
    """Return whether none of our own results is wrong and every stream stayed finite."""
    rows = document["rows"].get("steps", []) + document["rows"].get("mixers", [])
    entries = [entry for row in rows for entry in row["competitors"].items()]
    wrong = any(name.startswith(("linnet", "model")) and entry["status"] == "wrong" for name, entry in entries)
    return not wrong and all(row["finite"] for row in document["rows"].get("soak", []))
