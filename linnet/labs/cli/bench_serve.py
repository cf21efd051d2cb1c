"""`linnet bench serve`: measure `linnet serve` over loopback, next to llama.cpp's server and to the bare engine.

Options, progress bar, tables and JSON of the measurements in linnet/labs/bench/serve.py. torch is imported only when
there is something to run, so that help and refused options are instant.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App
from rich.console import Console
from rich.table import Table

from ...cli.common import FLAG, SEVERAL, Numbers, deliver
from ..bench.serve import QUICK, Bench, ServeSettings, workspace
from .bench_frame import measuring, new_document
from .bench_show import new_table, print_interrupted, print_table, provenance
from .options import check_one_format, given

EPILOG = """\
Start servers as processes on 127.0.0.1, send them streams and measure: time to
the first token, time between tokens, tokens/s, memory; then the same requests
without HTTP, streams while a long prompt is read, idle sessions, forks and
restarts. Models have random weights; llama.cpp gets those of our softmax model.

A server that is not installed and a cell that would exceed the limit of time or
memory are left out, with the reason. Close other programs: servers and client
share the cores.

Two examples

    linnet bench serve --quick
        less than a minute: a tiny model, up to 8 streams

    linnet bench serve --llama ~/llama.cpp/build/bin/llama-server --json > serve.json
        everything, next to llama.cpp, as JSON
"""

serve = App(name="serve", help_epilogue=EPILOG, help_format="plaintext")


@serve.default
def run_serve(
    *,
    quick: Annotated[bool, FLAG] = False,
    json: Annotated[bool, FLAG] = False,
    markdown: Annotated[bool, FLAG] = False,
    only: Annotated[list[str] | None, SEVERAL] = None,
    servers: Annotated[list[str] | None, SEVERAL] = None,
    size: str | None = None,
    streams: Numbers = None,
    prompts: Numbers = None,
    tokens: int | None = None,
    threads: int | None = None,
    long: int | None = None,
    idle: int | None = None,
    session: int | None = None,
    limit: float | None = None,
    rounds: int | None = None,
    llama: str | None = None,
    llama_python: str | None = None,
) -> None:
    """Run `linnet bench serve`.

    Parameters
    ----------
    quick
        A tiny model, 1 and 8 streams, short prompts; other options still apply.
    json
        Print one JSON document, and nothing else, on standard output.
    markdown
        Print the tables as markdown.
    only
        grid, engine, stall, idle, sessions; default: all.
    servers
        "linnet linear", "linnet softmax", llama.cpp, llama-cpp-python; default: all.
    size
        Of the models: tiny, small, medium; default: medium, 26 million weights.
    streams
        Default: 1 8 32 64.
    prompts
        Tokens of a prompt; default: 128 2048 8192.
    tokens
        Tokens that each stream generates; default: 128.
    threads
        CPU threads of each server; default: all cores.
    long
        Tokens of the prompt that is read next to 8 streams; default: 32768.
    idle
        Sessions that nothing uses; default: 10000.
    session
        Tokens of the session that is forked; default: 100000.
    limit
        Seconds that a cell may take; default: 300.
    rounds
        Rounds of the comparison with the engine; default: 3.
    llama
        llama.cpp's server; default: llama-server, if it is on the path.
    llama_python
        A Python that has llama-cpp-python[server].
    """
    check_one_format(json, markdown)
    options = given(
        parts=only, servers=servers, size=size, streams=streams, prompts=prompts, tokens=tokens, threads=threads,
        long=long, idle=idle, session=session, limit=limit, rounds=rounds, llama=llama, llama_python=llama_python,
    )  # fmt: skip
    document = measure(ServeSettings(**{**(QUICK if quick else {}), **options}), Console(stderr=True))
    deliver(document, json, show_markdown if markdown else show)


def measure(settings: ServeSettings, console: Console) -> dict[str, Any]:
    """Return the whole document, or what was measured before an interruption."""
    document = new_document(settings=asdict(settings), load=_load(), rows={part: [] for part in settings.parts})
    with workspace() as folder, measuring(document, console) as progress:
        bench = Bench(settings, Path(folder))
        cases = list(bench.cases())
        bar = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(bar, description=f"{case.part}: {case.name}")
            try:
                row = case.measure()
            except (RuntimeError, OSError) as error:
                row = {"server": case.name, "problem": str(error)}
            document["rows"][case.part].append(row | {"load": _load()})
            progress.advance(bar)
    return document


def _load() -> float | None:
    """Return the number of programs that ran in the last minute, as the system counts them."""
    with suppress(AttributeError, OSError):
        return round(os.getloadavg()[0], 2)
    return None


TITLES = {
    "grid": "streams x prompt tokens; times in ms, memory above the empty server in MB",
    "engine": "32 streams, prompts of 128 tokens: tokens/s over HTTP / of the engine in one process",
    "stall": "time between tokens of 8 streams while a long prompt is read, ms",
    "idle": "memory of idle sessions, MB",
    "sessions": "a long session, ms",
}
COLUMNS = {
    "grid": (
        "streams",
        "prompt",
        "server",
        "tokens/s",
        "decoding",
        "first p50",
        "first max",
        "gap p50",
        "gap p99",
        "memory",
    ),
    "engine": ("streams", "engine", "server", "share"),
    "stall": ("server", "prompt", "read in, s", "p50", "p99", "p99 / p50", "max", "p50 alone"),
    "idle": ("sessions", "bytes of a state", "memory added", "states + 10 %", "store"),
    "sessions": ("tokens", "bytes of its state", "fork", "first token after a restart", "start of the server, s"),
}


def show(document: dict[str, Any], console: Console) -> None:
    """Print the tables and the reasons for what is missing."""
    console.print(f"{provenance(document)}; {_conditions(document)}", highlight=False)
    for part, rows in document["rows"].items():
        measured = [cells(part, row) for row in rows if not _missing(row)]
        if measured:
            table: Table = new_table(*COLUMNS[part])
            for row in measured:
                table.add_row(*row)
            print_table(console, TITLES[part], table)
    for line in missing(document):
        console.print(line, highlight=False, markup=False)
    print_interrupted(document, console)


def show_markdown(document: dict[str, Any], console: Console) -> None:
    """Print the tables as markdown."""
    lines = [f"{provenance(document)}; {_conditions(document)}.", ""]
    for part, rows in document["rows"].items():
        measured = [cells(part, row) for row in rows if not _missing(row)]
        if measured:
            head = COLUMNS[part]
            lines += [f"{TITLES[part][:1].upper()}{TITLES[part][1:]}:", "", f"| {' | '.join(head)} |"]
            lines += ["|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in measured), ""]
    lines += [f"- {line}" for line in missing(document)]
    print("\n".join(lines))


def missing(document: dict[str, Any]) -> list[str]:
    """Return a line for each reason why something was not measured."""
    reasons: dict[str, list[str]] = {}
    for part, rows in document["rows"].items():
        for row in rows:
            if _missing(row):
                case = f"{part} {row.get('server', '')}" + (
                    f" {row['streams']} x {row['prompt']:,}" if "prompt" in row else ""
                )
                reasons.setdefault(_missing(row), []).append(case)
    return [f"{', '.join(cases)}: {reason}" for reason, cases in reasons.items()]


def _missing(row: dict[str, Any]) -> str:
    return str(row.get("left_out") or row.get("problem") or "")


def _conditions(document: dict[str, Any]) -> str:
    settings = document["settings"]
    loads = [row["load"] for rows in document["rows"].values() for row in rows if row.get("load") is not None]
    load = f", load average {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    return f"model {settings['size']}, {settings['threads']} threads, {settings['tokens']} tokens each{load}"


def cells(part: str, row: dict[str, Any]) -> list[str]:
    """Return the cells of a measured row."""
    if part == "grid":
        rates = [_number(row["tokens_per_second"]), _number(row["decoding_tokens_per_second"])]
        times = [_ms(row[name]) for name in ("first_token_p50_s", "first_token_max_s", "gap_p50_s", "gap_p99_s")]
        return [str(row["streams"]), f"{row['prompt']:,}", row["server"], *rates, *times, _mb(row.get("memory_bytes"))]
    if part == "engine":
        engine, server = (", ".join(map(_number, row[f"{name}_tokens_per_second"])) for name in ("engine", "server"))
        return [str(row["streams"]), engine, server, f"{row['share']:.0%}"]
    if part == "stall":
        times = [_ms(row["gap_p50_s"]), _ms(row["gap_p99_s"])]
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.1f}"
        return [
            row["server"],
            f"{row['prompt']:,}",
            f"{row['read_s']:.1f}",
            *times,
            ratio,
            _ms(row["gap_max_s"]),
            _ms(row["alone_p50_s"]),
        ]
    if part == "idle":
        sizes = [_mb(row[name]) for name in ("memory_bytes", "allowed_bytes", "store_bytes")]
        return [f"{row['sessions']:,}", f"{row['state_bytes']:,}", *sizes]
    times = [_ms(row["fork_median_s"]), _ms(row["continue_median_s"])]
    return [f"{row['tokens']:,}", f"{row['state_bytes']:,}", *times, f"{row['start_s']:.1f}"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.1f}"


def _mb(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:,.1f}"
