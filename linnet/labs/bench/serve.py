"""Measure servers over loopback: streams x prompt lengths, a long prompt next to streams, sessions, forks, restarts.

    linnet linear, linnet softmax     processes of `linnet serve`, models of one size with random weights
    llama.cpp                         its server, the softmax weights in float32, a slot for each stream
    llama-cpp-python                  the server of that package, one request at a time
    engine                            the scheduler of `linnet serve` in this process: what HTTP costs

Every cell has a fresh server, whose first tokens must be those of the model, and distinct prompts: no server can reuse
one it has seen. A server that is not installed, a cell that would not fit into memory, or one that would take longer
than the limit is left out, with the reason. Decoding is greedy.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from ...errors import unknown
from . import serve_client as client
from . import serve_models as models
from . import serve_process as process
from .checks import check_given, cores
from .serve_client import request, timed

LINEAR, SOFTMAX, LLAMA, LLAMA_PYTHON = "linnet linear", "linnet softmax", "llama.cpp", "llama-cpp-python"
SERVERS = (LINEAR, SOFTMAX, LLAMA, LLAMA_PYTHON)
PARTS = ("grid", "engine", "stall", "idle", "sessions")
MOST_STREAMS, MOST_PROMPT, MOST_SESSIONS = 256, 32_768, 10_000
BATCHING = 4  # times as long as the limit: a cell that would take so long one stream after the other is left out
SPARE = 1.25  # of the predicted memory of a cell
CHUNK, PREFIX_MIB = 128, 64
CHECKED, AGREED = 64, 4  # tokens of a prompt, and of what must follow it
STALL_STREAMS, STALL_TOKENS = 8, 2_000
FORKS, RESTARTS = 20, 3
QUICK: dict[str, Any] = {
    "size": "tiny", "streams": (1, 8), "prompts": (128,), "tokens": 32, "limit": 20.0, "long": 2048, "idle": 200,
    "session": 2000, "rounds": 1,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What to measure, and the bounds."""

    parts: tuple[str, ...] = PARTS
    servers: tuple[str, ...] = SERVERS
    size: str = "medium"
    streams: tuple[int, ...] = (1, 8, 32, 64)
    prompts: tuple[int, ...] = (128, 2048, 8192)
    tokens: int = 128
    threads: int = cores()
    long: int = 32_768  # tokens of the prompt that is read next to streams
    idle: int = 10_000  # sessions
    session: int = 100_000  # tokens of the session that is forked
    limit: float = 300.0  # seconds of a cell
    rounds: int = 3  # of the comparison with the engine
    llama: str | None = None  # llama.cpp's server
    llama_python: str | None = None  # a Python that has llama_cpp

    def __post_init__(self) -> None:
        check_given(parts=self.parts, servers=self.servers, streams=self.streams, prompts=self.prompts)
        for name, given, accepted in (("part", self.parts, PARTS), ("server", self.servers, SERVERS)):
            for one in given:
                if one not in accepted:
                    raise unknown(name, one, accepted)
        if self.size not in models.SIZES:
            raise unknown("size", self.size, models.SIZES)
        sizes = [("--streams", n, MOST_STREAMS) for n in self.streams]
        sizes += [("--prompts", n, MOST_PROMPT) for n in (*self.prompts, self.long)] + [("--tokens", self.tokens, 4096)]
        sizes += [
            ("--idle", self.idle, MOST_SESSIONS),
            ("--session", self.session, 120_000),
            ("--rounds", self.rounds, 9),
        ]
        for option, value, most in [*sizes, ("--threads", self.threads, cores())]:
            if not 1 <= value <= most:
                raise ValueError(f"{option} is {value}; accepted: 1 to {most:,}")
        if not 1 <= self.limit <= 3600:
            raise ValueError(f"--limit is {self.limit:g}; accepted: 1 to 3600 seconds")


class Case(NamedTuple):
    """One row to measure, and how."""

    part: str
    name: str
    measure: Callable[[], dict[str, Any]]


class Bench:
    """The models in a temporary folder, and a method for each part."""

    def __init__(self, settings: ServeSettings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        models.write_models(folder, settings.size)
        self._seconds: dict[tuple[str, int], tuple[int, float]] = {}  # of the last cell of a server and prompt length
        self._wanted: dict[str, str] = {}
        self._seed = 0

    def cases(self) -> Iterator[Case]:
        """Yield every row to measure."""
        asked = self.settings
        if "engine" in asked.parts:
            yield Case("engine", "32 streams", self.engine)
        if "stall" in asked.parts:
            for name in asked.servers:
                yield Case("stall", name, lambda name=name: self.stall(name))  # type: ignore[misc]
        if "idle" in asked.parts:
            yield Case("idle", f"{asked.idle:,} sessions", self.idle)
        if "sessions" in asked.parts:
            yield Case("sessions", f"{asked.session:,} tokens", self.sessions)
        if "grid" in asked.parts:
            for prompt in asked.prompts:
                for streams in sorted(asked.streams):
                    for name in asked.servers:
                        yield Case(
                            "grid", f"{name}, {streams} x {prompt:,}",
                            lambda name=name, streams=streams, prompt=prompt: self.cell(name, streams, prompt),  # type: ignore[misc]
                        )  # fmt: skip

    # ---- servers

    def command(self, name: str, streams: int, context: int) -> tuple[list[str], str]:
        """Return the command of a server and the path that tells whether it is ready; ValueError if it is missing."""
        asked, gguf = self.settings, self.folder / "softmax.gguf"
        if name in (LINEAR, SOFTMAX):
            store = f"sqlite:{self.folder / 'sessions.db'}"
            sizes = [
                f"--rows={streams}",
                f"--max-context={context if name == SOFTMAX else 0}",
                f"--threads={asked.threads}",
            ]
            fixed = [f"--chunk={CHUNK}", f"--prefix-mib={PREFIX_MIB}", f"--store={store}"]
            return process.linnet_command(self.folder / name.split()[1], *sizes, *fixed), "/ready"
        if name == LLAMA:
            program = asked.llama or shutil.which("llama-server")
            if program is None or shutil.which(program) is None:
                raise ValueError("llama.cpp's server is not installed; name it with --llama PATH")
            return process.llama_command(program, gguf, streams, context, asked.threads), "/health"
        if asked.llama_python is None:
            raise ValueError("not requested; name a Python that has llama-cpp-python[server] with --llama-python PATH")
        return process.llama_python_command(asked.llama_python, gguf, context, asked.threads), "/v1/models"

    def fresh(self, name: str, streams: int, context: int, stack: ExitStack) -> process.Server:
        """Start a server with an empty store; raise RuntimeError if its first tokens are not those of the model."""
        for old in self.folder.glob("sessions.db*"):
            old.unlink()
        command, health = self.command(name, streams, context)
        server = stack.enter_context(process.running(command, health))
        body = {"prompt": models.prompt(CHECKED, 0), "max_tokens": AGREED, "temperature": 0}
        text = request(server, "POST", client.COMPLETIONS, body)["choices"][0]["text"]
        wanted = self.wanted("linear" if name == LINEAR else "softmax")
        if text != wanted:
            raise RuntimeError(f"wrong: it continues with {text!r}, the model with {wanted!r}")
        return server

    def wanted(self, kind: str) -> str:
        """Return the first tokens after the checked prompt as plain torch computes them."""
        if kind not in self._wanted:
            import torch

            from ...loading import load

            model, tokenizer = load(self.folder / kind).language()
            tokens = [*tokenizer.prefix, *tokenizer.encode(models.prompt(CHECKED, 0))]
            with torch.no_grad():
                for _ in range(AGREED):
                    logits, _ = model(torch.tensor([tokens]))
                    tokens.append(int(logits[0, -1].argmax()))
            self._wanted[kind] = "".join(models.pieces()[token] for token in tokens[-AGREED:])
        return self._wanted[kind]

    def body(self, prompt: int, tokens: int) -> dict[str, Any]:
        """Return a request with a prompt that no other request has."""
        self._seed += 1
        text = models.prompt(prompt, self._seed)
        fixed: dict[str, Any] = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        return {"prompt": text, "max_tokens": tokens, **fixed}

    # ---- parts

    def cell(self, name: str, streams: int, prompt: int) -> dict[str, Any]:
        """Measure streams with prompts of one length."""
        row: dict[str, Any] = {"server": name, "streams": streams, "prompt": prompt, "tokens": self.settings.tokens}
        context = prompt + self.settings.tokens + 16
        reason = self.too_much(name, streams, context, prompt)
        if reason:
            return row | {"left_out": reason}
        with ExitStack() as stack:
            try:
                server = self.fresh(name, streams, context, stack)
            except (ValueError, RuntimeError) as error:
                return row | {"left_out": str(error)}
            empty, samples = server.rss(), list[int]()
            bodies = [self.body(prompt, self.settings.tokens) for _ in range(streams)]
            done = asyncio.run(client.all_streams(server, bodies, self.settings.limit, samples))
        row |= client.summary(done)
        if "seconds" in row:
            self._seconds[name, prompt] = streams, row["seconds"]
        if samples and empty is not None:
            row["memory_bytes"] = max(samples) - empty
        return row

    def too_much(self, name: str, streams: int, context: int, prompt: int) -> str:
        """Return why a cell is left out before it starts; "" if it is not."""
        before = self._seconds.get((name, prompt))
        if before is not None and before[1] * streams / before[0] > BATCHING * self.settings.limit:
            return f"{before[0]} at once took {before[1]:.0f} s; the limit is {self.settings.limit:g} s"
        if name != LINEAR:
            sizes = models.SIZES[self.settings.size]
            each = 2 * sizes["n_layers"] * sizes["d_model"] * (4 if name == SOFTMAX else 2)
            needed, there = SPARE * each * streams * context, process.available_bytes()
            if needed > there:
                return f"a cache of {needed / 1e9:.1f} GB; {there / 1e9:.1f} GB are available"
        return ""

    def engine(self) -> dict[str, Any]:
        """Compare the server with the scheduler it runs, in turns."""
        streams, prompt, tokens = 32, 128, self.settings.tokens
        bare, served = [], []
        for _ in range(self.settings.rounds):
            bare.append(self.bare(streams, prompt, tokens))
            row = self.cell(LINEAR, streams, prompt)
            if "tokens_per_second" not in row:
                return row
            served.append(row["tokens_per_second"])
        share = median(over / alone for over, alone in zip(served, bare, strict=True))  # turns alternate: a round each
        return {
            "streams": streams, "prompt": prompt, "tokens": tokens, "engine_tokens_per_second": bare,
            "server_tokens_per_second": served, "share": share,
        }  # fmt: skip

    def bare(self, streams: int, prompt: int, tokens: int) -> float:
        """Return tokens/s of the scheduler in this process, prompts included."""
        import torch

        from ...generate import Request, Sampling, Scheduler, open_engine
        from ...loading import load

        torch.set_num_threads(self.settings.threads)
        model, tokenizer = load(self.folder / "linear").language()
        engine = open_engine(model, exact=False)
        for warm in (True, False):
            scheduler = Scheduler(engine, tokenizer=tokenizer, max_rows=streams, chunk=CHUNK)
            for _ in range(streams):
                text = self.body(prompt, 0)["prompt"]
                scheduler.add(Request(prompt=text, max_tokens=4 if warm else tokens, sampling=Sampling(temperature=0)))
            began, count = perf_counter(), 0
            while scheduler.live:
                count += sum(event.piece is not None for event in scheduler.step())
            seconds = perf_counter() - began
        return count / seconds

    def stall(self, name: str) -> dict[str, Any]:
        """Measure the gaps of streams while a long prompt is read."""
        row: dict[str, Any] = {"server": name, "streams": STALL_STREAMS, "prompt": self.settings.long}
        context = max(self.settings.long, 128 + STALL_TOKENS) + 64
        reason = self.too_much(name, STALL_STREAMS + 1, context, -1)
        if name == LLAMA_PYTHON:
            reason = "it runs one request at a time"
        if reason:
            return row | {"left_out": reason}
        with ExitStack() as stack:
            try:
                server = self.fresh(name, STALL_STREAMS + 1, context, stack)
            except (ValueError, RuntimeError) as error:
                return row | {"left_out": str(error)}
            return row | asyncio.run(self._stall(server))

    async def _stall(self, server: process.Server) -> dict[str, Any]:
        streams = [client.Stream() for _ in range(STALL_STREAMS)]
        bodies = [self.body(128, STALL_TOKENS) for _ in streams]
        tasks = [
            asyncio.create_task(client.one_stream(server.port, *pair)) for pair in zip(bodies, streams, strict=True)
        ]
        long, limit = client.Stream(), self.settings.limit
        try:
            began = perf_counter()
            while not all(len(stream.times) > 20 for stream in streams) and perf_counter() - began < limit:
                await asyncio.sleep(0.02)
            alone = client.gaps(streams, max((stream.times[0] for stream in streams if stream.times), default=0.0))
            try:
                await asyncio.wait_for(client.one_stream(server.port, self.body(self.settings.long, 1), long), limit)
            except TimeoutError:
                long.problem = f"not read after {limit:g} s"
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        broken = [str(one) for one in results if isinstance(one, OSError)]
        problem = (
            long.problem
            or next((stream.problem for stream in streams if stream.problem), None)
            or next(iter(broken), None)
        )
        if problem or not long.times:
            return {"problem": problem or "no token followed the long prompt"}
        during = client.gaps(streams, long.sent, long.times[0])
        if not during:
            return {"problem": "no stream got two tokens while the prompt was read"}
        p50, p99 = client.quantile(during, 0.5), client.quantile(during, 0.99)
        ended = sum(stream.done for stream in streams)
        return {
            "read_s": long.times[0] - long.sent, "gaps": len(during), "gap_p50_s": p50, "gap_p99_s": p99,
            "gap_max_s": max(during), "ratio": p99 / p50 if p50 and p99 else None, "ended_early": ended,
            "alone_p50_s": client.quantile(alone, 0.5), "alone_p99_s": client.quantile(alone, 0.99),
        }  # fmt: skip

    def idle(self) -> dict[str, Any]:
        """Measure the memory of sessions that nothing uses, of the model that the package ships."""
        count, store = self.settings.idle, self.folder / "idle.db"
        command = process.linnet_command(None, f"--store=sqlite:{store}", "--prefix-mib=1", f"--max-sessions={count}")
        with process.running(command) as server:
            first = request(server, "POST", "/v1/sessions", {"text": "Call me Ishmael. "})
            empty = server.rss()
            for i in range(1, count):
                request(server, "POST", "/v1/sessions", {"text": f"Session {i}, "})
            full = server.rss()
        stored = sum(path.stat().st_size for path in self.folder.glob("idle.db*"))
        states = count * int(first["state_bytes"])
        memory = None if empty is None or full is None else full - empty
        return {
            "sessions": count, "state_bytes": first["state_bytes"], "memory_bytes": memory, "store_bytes": stored,
            "allowed_bytes": round(1.1 * states),
        }  # fmt: skip

    def sessions(self) -> dict[str, Any]:
        """Measure forks of a long session, and its first token after the server was killed and started again."""
        tokens = self.settings.session
        with ExitStack() as stack:
            server = self.fresh(LINEAR, 4, 0, stack)
            session = request(server, "POST", "/v1/sessions", {"text": models.prompt(tokens, 0)}, self.settings.limit)
            path = f"/v1/sessions/{session['id']}"
            request(server, "POST", f"{path}/generate", {"max_tokens": 1, "temperature": 0})
            forks = [timed(lambda: request(server, "POST", f"{path}/fork", {}))[0] for _ in range(FORKS)]
            first = []
            for _ in range(RESTARTS):
                server.kill()
                server.start()
                body = {"max_tokens": 1, "temperature": 0}
                first.append(timed(lambda: request(server, "POST", f"{path}/generate", body))[0])  # noqa: B023
        return {
            "tokens": tokens, "state_bytes": session["state_bytes"], "fork_s": forks, "fork_median_s": median(forks),
            "continue_s": first, "continue_median_s": median(first), "start_s": server.seconds,
        }  # fmt: skip


def workspace() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for models, stores and logs."""
    return tempfile.TemporaryDirectory(prefix="linnet-bench-")
