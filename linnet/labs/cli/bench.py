"""`linnet bench ops`: time our op against its alternatives on this machine; nothing is timed before it agrees.

Options, progress bar and JSON of the measurements in linnet/labs/bench; the tables are in bench_show.py.
torch is imported only when there is something to run, so that help and refused options are instant.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console

from ...cli import doctor
from ...cli.common import FLAG, SEVERAL, Numbers
from ...errors import unknown
from ..bench import SECTIONS, Settings, plan, settings
from ..bench.gated import SECTION, GatedSettings, gated_plan, gated_settings
from ..report.plot_file import KINDS, PAINTED
from . import bench_plot, bench_show
from .bench_frame import FORMAT, measuring, publish
from .options import check_one_format, given

# After the options, because the one line registered in main.py stands before them.
EPILOG = """\
Time linnet.linear_attention against scaled_dot_product_attention, plain torch
and the reference library's CPU algorithm, on this machine.

Every competitor gets the same inputs (float32, causal) and must agree with a
float64 reference before it is timed; one that does not is reported as wrong.
All take turns in one process, with an sgemm in every round. Times are the
minimum of the rounds, with the median in parentheses. Close other programs,
and read the ratios (time / linnet's time) rather than the nanoseconds.

With --family gated it times the recurrent ops (RetNet, GLA, Mamba-2, delta
rules, KDA, RWKV, Mamba): the native kernel, our torch form, a loop over tokens,
the torch functions of transformers, and elu + 1 as the yardstick.

Three examples

    linnet bench ops --quick
        half a minute: lengths up to 2,048 and the most common competitors

    linnet bench ops --only ops --lengths 2048 8192 --threads 2 --plot ops.png
        two lengths in depth, as tables and as a figure

    linnet bench ops --family gated --only gla kda --lengths 2048 --threads 2
        two rules of the gated family

Without options the linear family is measured, which takes about half an hour.
Ctrl-C ends the run early and shows what has been measured.
"""

FAMILIES = ("linear", "gated")

ops = App(name="ops", help_epilogue=EPILOG, help_format="plaintext")


@ops.default
def run_ops(
    *,
    family: str = "linear",
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    markdown: Annotated[bool, FLAG] = False,
    plot: Path | None = None,
    only: Annotated[list[str] | None, SEVERAL] = None,
    lengths: Numbers = None,
    streams: Numbers = None,
    head_dim: Numbers = None,
    threads: Numbers = None,
    rounds: int | None = None,
    limit: float | None = None,
) -> None:
    """Run `linnet bench ops`.

    Parameters
    ----------
    family
        linear: linear attention, softmax and what surrounds them; gated: the recurrent ops.
    quick
        Lengths up to 2,048, 8 streams, few competitors; gated: 512 tokens. Other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    markdown
        Print the tables in Markdown.
    plot
        Also plot time per token and ratios against length in this file: .html, .svg, or, with the extra `report`,
        .png and .pdf.
    only
        Sections to run: ops, quadratic, threads, block, long, build; gated: rules, such as gla or wkv. Default: all.
    lengths
        Tokens per sequence, for example 64 2048. Default: 16 to 65,536, fewer for large cases; gated: 2048.
    streams
        Batch x heads; default: 8 32; gated: 8.
    head_dim
        Width of queries, keys and values; default: 64 128; gated: 64.
    threads
        Thread counts; default: 1 2.
    rounds
        Rounds of each case, at least 7; default: 9.
    limit
        Seconds one competitor may take for all rounds of a case; default: 120; gated: 60. Slower ones are left out.
    """
    if family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    check_one_format(json, markdown)
    options = given(only=only, lengths=lengths, streams=streams, head_dims=head_dim, threads=threads)
    chosen = (gated_settings if family == "gated" else settings)(quick=quick, rounds=rounds, limit=limit, **options)
    check_plot(plot, chosen)
    document = measure(chosen, Console(stderr=True))
    show = bench_show.in_markdown(bench_show.show) if markdown else bench_show.show
    publish(document, json, show, plot, bench_plot.draw, trustworthy)


def check_plot(path: Path | None, chosen: Settings | GatedSettings) -> None:
    """Refuse a file that cannot be drawn before the minutes of measuring, not after."""
    if path is None:
        return
    if isinstance(chosen, GatedSettings):
        raise ValueError(f"--plot {path} draws the linear family; leave --plot or --family out")
    if "ops" not in chosen.only:
        raise ValueError(f"--plot {path} draws the section ops, which is not in --only {' '.join(chosen.only)}; add it")
    if path.suffix.lower() not in KINDS:
        raise unknown("kind of figure", path.suffix, KINDS)
    if path.suffix.lower() in PAINTED and find_spec("matplotlib") is None:
        way_out = f"run pip install 'linnet[report]', or write {path.with_suffix('.svg')}, which does not need it"
        raise ValueError(f"--plot {path} needs matplotlib, which is not installed; {way_out}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}; create it first")


def measure(chosen: Settings | GatedSettings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    gated = isinstance(chosen, GatedSettings)
    jobs = gated_plan(chosen) if isinstance(chosen, GatedSettings) else plan(chosen)
    document: dict[str, Any] = {"format": FORMAT, **conditions(chosen), "interrupted": False}
    rows = document["rows"] = {s: [] for s in ((SECTION,) if gated else SECTIONS) if gated or s in chosen.only}
    with measuring(document, console) as progress:
        bar = progress.add_task("", total=sum(job.seconds for job in jobs))
        for job in jobs:
            progress.update(bar, description=f"{job.section}: {job.title}")
            rows[job.section] += job.run()
            progress.advance(bar, job.seconds)
    return document


def conditions(chosen: Settings | GatedSettings) -> dict[str, Any]:
    """Return the machine, the versions and the settings behind the numbers."""
    import torch

    from ...native import library

    about, tolerance = _competitors(chosen)
    how = {"rounds": chosen.rounds, "threads": list(chosen.threads), "tolerance": tolerance, "dtype": "float32"}
    machine = {**doctor.cpu(), "torch_capability": torch.backends.cpu.get_cpu_capability()}
    return {"machine": machine, "versions": doctor.versions(), "native": library.info(), **how, "competitors": about}


def _competitors(chosen: Settings | GatedSettings) -> tuple[dict[str, str], float]:
    """Return what each competitor is, and how far it may be from float64."""
    if isinstance(chosen, GatedSettings):
        from ..bench import gated_peers, gated_rules

        everyone = [one for rule in chosen.only for one in gated_peers.peers(rule)] + [gated_peers.yardstick()]
        about: dict[str, list[str]] = {}
        for one in everyone:
            about[one.name] = list(dict.fromkeys([*about.get(one.name, []), one.about]))
        return {name: "; ".join(lines) for name, lines in about.items()}, gated_rules.TOLERANCE
    from ..bench.competitors import for_elu
    from ..bench.reference import TOLERANCE

    return {one.name: one.about for one in for_elu()}, TOLERANCE


def trustworthy(document: dict[str, Any]) -> bool:
    """Return whether none of our own results is wrong or failed."""
    entries = [(name, entry) for row in bench_show.races(document) for name, entry in row["competitors"].items()]
    return not any(name.startswith("linnet") and entry["status"] in ("wrong", "failed") for name, entry in entries)
