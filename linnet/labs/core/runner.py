"""Run units of work in this process, in several processes or on Ray; the rows are the same.

    function(unit) yields rows, in order; units are independent          str(unit) is its name in messages

Only the process that calls `run_all` writes: rows are sent to it as they are computed. A unit that fails, or whose
process dies, ends there; the others continue, and the rows it yielded are kept. Ctrl-C, or a kill of the parent, ends
all. By default every worker has one thread, so that N workers fill N cores and the rows do not depend on N. A `Gate`
decides whether a unit starts and when the running ones are ended: a limit of time is one (plan.py).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple, cast

from .results import Row, Store

Results = Generator["Result", None, None]
Function = Callable[[Any], Iterable[Row]]  # for processes and Ray: defined in a module, not a lambda
GRACE = 5.0  # seconds for a worker to exit after a request


class Failure(NamedTuple):
    """A unit that did not finish, and why."""

    unit: str
    error: str


class Result(NamedTuple):
    """One event of a unit: it yielded `row`, or it failed with `error`."""

    unit: Any
    row: Row | None = None
    error: str = ""


class Hooks:
    """Callbacks for the work to do, for rows, failures and remarks; each does nothing unless it is set."""

    def __init__(
        self,
        start: Callable[..., None] = lambda *given: None,
        row: Callable[[Row], None] = lambda row: None,
        failure: Callable[[Failure], None] = lambda failure: None,
        remark: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.start, self.row, self.failure, self.remark = start, row, failure, remark


class Gate:
    """Decides which units start. This one admits all of them and never ends one."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock

    def admit(self, unit: Any) -> bool:
        """Return whether a unit may start now; a unit that is refused is skipped, without a failure."""
        return True

    def finished(self, unit: Any, seconds: float) -> None:
        """Receive the wall clock of a unit that ended without an error; not called on Ray."""

    def remaining(self) -> float | None:
        """Return the seconds after which units that still run are ended; None: never."""
        return None


def run_all(
    units: Iterable[Any],
    function: Function,
    store: Store,
    *,
    workers: int | str = 1,
    threads: int = 1,
    on_row: Callable[[Row], None] | None = None,
    on_failure: Callable[[Failure], None] | None = None,
    gate: Gate | None = None,
) -> list[Failure]:
    """Append every row of every unit to the store; return the units that failed.

    workers: 1 for this process, more for that many processes, "ray" for the cluster at RAY_ADDRESS or a local one.
    Units start in the order given: put the long ones first. The next unit is taken from an iterator when a worker
    is free, and again after it had none (queue.py), except on Ray.
    """
    failures = []
    with closing(results(units, function, workers, threads, gate)) as every:
        for result in every:
            if result.row is not None:
                store.append(result.row)
                if on_row is not None:
                    on_row(result.row)
            else:
                failures.append(Failure(str(result.unit), result.error))
                if on_failure is not None:
                    on_failure(failures[-1])
    return failures


def check_workers(workers: int | str) -> int | str:
    """Return a number of processes or "ray", from a number or from text."""
    if workers == "ray":
        return workers
    try:
        count = int(workers)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"workers is {workers!r}; accepted: a number of processes of 1 or more, or ray")
    return count


def results(
    units: Iterable[Any], function: Function, workers: int | str, threads: int = 1, gate: Gate | None = None
) -> Results:
    """Yield the events of all units; the arguments are those of `run_all`."""
    workers, gate = check_workers(workers), gate or Gate()
    if threads < 1:
        raise ValueError(f"threads is {threads}; accepted: 1 or more for each worker")
    if workers == "ray":
        from .ray_runner import on_ray

        return on_ray(list(units), function, threads, gate)
    if workers == 1:
        return _here(units, function, threads, gate)
    return _on_processes(units, function, int(workers), threads, gate)


def _here(units: Iterable[Any], function: Function, threads: int, gate: Gate) -> Results:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for unit in filter(gate.admit, units):
            began = gate.clock()
            try:
                for row in function(unit):
                    yield Result(unit, row)
            except Exception as error:
                yield Result(unit, error=sentence(error))
            else:
                gate.finished(unit, gate.clock() - began)
    finally:
        torch.set_num_threads(before)


class Worker(NamedTuple):
    """A process and its current unit."""

    process: SpawnProcess
    unit: Any


def _on_processes(units: Iterable[Any], function: Function, count: int, threads: int, gate: Gate) -> Results:
    """Reuse workers from unit to unit, each with its own pipe, so that the death of one does not block the others."""
    waiting = filter(gate.admit, units)  # asked when a worker is free, not before
    busy: dict[Connection, Worker] = {}
    started: list[SpawnProcess] = []
    try:
        while True:
            while len(busy) < count and (unit := next(waiting, None)) is not None:
                connection, process = _start(function, threads)
                started.append(process)
                busy[connection] = _assign(connection, process, unit)
            if not busy:
                return
            ready = cast("list[Connection]", wait(list(busy), gate.remaining()))
            if not ready and gate.remaining() == 0:
                return
            for connection in ready:
                worker = busy[connection]
                message = _receive(connection, worker.process)
                if "row" in message:
                    yield Result(worker.unit, message["row"])
                    continue
                if "error" in message:
                    yield Result(worker.unit, error=message["error"])
                else:
                    gate.finished(worker.unit, message["seconds"])
                del busy[connection]
                following = None if "dead" in message else next(waiting, None)
                if following is None:
                    connection.close()  # a worker exits at the end of its pipe
                else:
                    busy[connection] = _assign(connection, worker.process, following)
    finally:
        _end(started)


def _assign(connection: Connection, process: SpawnProcess, unit: Any) -> Worker:
    with suppress(BrokenPipeError):  # a dead worker is detected when we receive from it
        connection.send((unit,))
    return Worker(process, unit)


def _receive(connection: Connection, process: SpawnProcess) -> dict[str, Any]:
    """Return the next message of a worker: a row, its seconds at the end, or an error, also if its process died."""
    try:
        message: dict[str, Any] = connection.recv()
        return message
    except (EOFError, OSError):
        process.join(GRACE)
        return {"dead": True, "error": f"its process died (exit code {process.exitcode})"}


def _end(processes: Sequence[SpawnProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE)
        process.kill()
        process.join()


def _start(function: Function, threads: int) -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, function, threads), daemon=True)
    with _environment(OMP_NUM_THREADS=str(threads)):  # libraries read it once, at load time
        process.start()
    theirs.close()  # so that the pipe ends when the worker dies
    return ours, process


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _work(connection: Connection, function: Function, threads: int) -> None:
    """Run a worker: receive units and send rows until the pipe ends."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends this process
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        try:
            (unit,) = connection.recv()
        except EOFError:
            return
        began = perf_counter()
        try:
            for row in function(unit):
                connection.send({"row": row})
            connection.send({"seconds": perf_counter() - began})
        except Exception as error:
            connection.send({"error": sentence(error)})
        except KeyboardInterrupt:  # from a unit that handles signals itself
            return


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # the parent was killed: no process is left to receive rows


def sentence(error: BaseException) -> str:
    """Return the error and its source line in one line of text."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
