"""Run one `linnet train` command: check the options, open the data, train, print the result.

Mistakes are reported before the first step, in terms of the command line's options. The run's folder is locked before
anything is written to it, and a command that is refused removes only the files it has created itself. Under torchrun
rank 0 holds the lock and opens the data first, so it writes the token files that the other ranks read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any

import torch

from ..atomic import Created
from ..errors import whole
from ..lock import exclusive
from ..models import preset
from ..models.config import BILSTM
from ..train import Event, ProcessGroup, TrainConfig
from ..train.checkpoint import CheckpointError
from ..train.checkpoint import names as checkpoints
from ..train.jobs import NAMES, TASKS, Data, Job, check_same_data, open_data, read_job
from ..train.jobs import run as run_job
from .train_options import VOCAB_SIZE, ModelOptions, Run, Training
from .train_show import Watcher

UNSET = (None, False, "auto", VOCAB_SIZE)  # defaults: options with these values were not given
MakeJob = Callable[[Data], Job]


def start(
    kind: str,
    settings: Mapping[str, Any],
    name: str,
    run: Run | None,
    model: ModelOptions | None,
    training: Training,
) -> None:
    """Start a new run, or resume one with --resume; `name` is the default preset."""
    run = run or Run()
    out = run.out or Path("runs") / kind
    settings = _absolute(kind, settings)
    changes = (model or ModelOptions()).changes()
    config = preset(changes.pop("preset", name))
    if "mixer" in changes:  # drop the preset's options of mixers that are replaced
        changes["mixer_options"] = {m: kept for m, kept in config.mixer_options.items() if m in changes["mixer"]}
    config.replace(**(TASKS[kind] | changes))  # refuses an impossible model before the data are read
    _check_used(kind, settings, changes, training, run)

    def job(data: Data) -> Job:
        return Job(kind=kind, data=settings, model=config.replace(**(data.fields | changes)), train=training.plain())

    _check_folder(out)
    begun = bool(checkpoints(out))
    if begun and not run.resume:
        raise ValueError(f"{out} holds a run; add --resume to continue it, or choose another folder with --out")
    if begun:
        check_same_data(out, kind, settings)
    _train(kind, settings, job, out, resume=run.resume, strategy=run.strategy, threads=run.threads)


def resume_run(folder: Path, checkpoint: str | None, steps: int | None, strategy: str, threads: int | None) -> None:
    """Continue the run in a folder from the named checkpoint, or from the newest."""
    job = read_job(folder)
    job = job if steps is None else replace(job, train=replace(job.train, steps=steps))
    _train(job.kind, job.data, lambda _: job, folder, resume=checkpoint or True, strategy=strategy, threads=threads)


def _train(
    kind: str,
    settings: Mapping[str, Any],
    make_job: MakeJob,
    out: Path,
    *,
    resume: bool | str,
    strategy: str,
    threads: int | None,
) -> None:
    torch.set_num_threads(torch.get_num_threads() if threads is None else whole("threads", threads, 1))
    group = ProcessGroup.from_env(strategy)
    with ExitStack() as stack, _suggest_command(out):
        stack.callback(group.close)
        created = Created(out)

        def read() -> Data:
            if group.rank == 0:
                stack.enter_context(exclusive(out))
                stack.enter_context(created)
            return open_data(kind, settings, out, begun=group.rank > 0 or bool(checkpoints(out)))

        data = _rank_zero_first(group, read)
        job = make_job(data)
        watcher = stack.enter_context(Watcher(job, data, out, quiet=group.rank > 0))

        def on_event(event: Event) -> None:
            if event.kind == "start" and group.rank == 0:
                created.keep()
            watcher.on_event(event)

        _, result = run_job(job, data, out, resume=resume, on_event=on_event, group=group)
        watcher.finish(result)
    if result.stopped:  # a failure status, so that a script does not continue with its next command
        sys.exit(128 + Signals[result.stopped] if result.stopped in Signals.__members__ else 1)


def _rank_zero_first(group: ProcessGroup, read: Callable[[], Data]) -> Data:
    """Open the data on rank 0, then on the others; if rank 0 fails, every rank exits."""
    data, failure = None, None
    if group.rank == 0:
        try:
            data = read()
        except ValueError as error:
            failure = error
    note = group.broadcast_json({"failed": failure is not None})
    if failure is not None:
        raise failure
    if note["failed"]:
        sys.exit(2)  # rank 0 prints the reason
    return data or read()


def _check_used(
    kind: str, settings: Mapping[str, Any], changes: Mapping[str, Any], training: Training, run: Run
) -> None:
    """Refuse an option that this command would ignore, and name where it applies."""
    plateau = training.schedule == "plateau"
    unused = [
        ("head", changes.get("head"), kind == "image", "train image"),
        ("vocab-size", settings.get("vocab_size"), settings.get("tokenizer") in (None, "bpe"), "--tokenizer bpe"),
        ("allow-binary", settings.get("allow_binary"), settings.get("tokenizer") in (None, "byte"), "--tokenizer byte"),
        ("columns", settings.get("columns"), settings.get("name") != "generated", "a CSV file"),
        ("plateau-patience", training.plateau_patience, plateau, "--schedule plateau"),
        ("plateau-factor", training.plateau_factor, plateau, "--schedule plateau"),
        ("min-lr", training.min_lr, training.schedule != "constant", "schedules other than constant"),
        ("strategy", run.strategy, "WORLD_SIZE" in os.environ, "torchrun"),
    ]
    if BILSTM in str(changes.get("mixer")):
        names = ("n_heads", "n_kv_heads", "key_dim", "positions", "mlp", "norm")
        unused += [(name.replace("_", "-"), changes.get(name), False, "mixers other than bilstm") for name in names]
    for name, value, used, where in unused:
        if not used and value not in (*UNSET, training_default(name)):
            raise ValueError(f"--{name} is {value}, which `linnet train {kind}` would not use here; it is for {where}")


def training_default(name: str) -> Any:
    """Return the default of an option that is a field of TrainConfig; None for other options."""
    field = TrainConfig.__dataclass_fields__.get(name.replace("-", "_"))
    return None if field is None else field.default


def _absolute(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make an existing path (or one inside an existing zip) absolute, so that a run can be resumed from anywhere."""
    key = "tokenizer" if kind == "text" else "name"
    name, path = settings[key], Path(settings[key])
    exists = path.exists() or any(parent.is_file() for parent in path.parents)
    return {**settings, key: str(path.resolve()) if exists and name not in NAMES[kind] else name}


def _check_folder(out: Path) -> None:
    existing = next(path for path in (out, *out.parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"{existing} is a file; accepted: a folder for the run; choose another one with --out")


@contextmanager
def _suggest_command(out: Path) -> Iterator[None]:
    """Turn the way out of a damaged checkpoint into the command to type."""
    try:
        yield
    except CheckpointError as error:
        if not error.options:
            raise
        names = {option.name: option.value for option in error.options}
        way = f"continue from the newest good checkpoint with: linnet train resume {out} --checkpoint {names['resume']}"
        raise ValueError(f"{error.problem}; {way}") from error
