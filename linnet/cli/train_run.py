"""One `linnet train` command, from its options to its last line: check, open the data, train, say what came out.

Whatever is wrong is said before the first step, in the words of the command line. The run's folder is locked before
anything is written in it, and a command that is refused removes what it has created itself, and nothing else. Under
torchrun the first process holds the folder and opens the data, so it writes the token files that the others read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any

import torch

from ..atomic import Created
from ..lock import exclusive
from ..models import preset
from ..models.config import BILSTM
from ..train import Event, Team, TrainConfig
from ..train.checkpoint import names as checkpoints
from ..train.jobs import NAMES, TASKS, Data, Job, check_same, open_data, read_job
from ..train.jobs import run as train
from .train_options import VOCAB_SIZE, ModelOptions, Run, TextTraining
from .train_show import Watcher

OPTIONS = ("allow_binary", "missing", "resample")  # keywords that sentences of linnet.data name as the way out
IDLE = (None, False, "auto", VOCAB_SIZE)  # options that were not given
MakeJob = Callable[[Data], Job]


def start(
    kind: str,
    settings: Mapping[str, Any],
    name: str,
    run: Run | None,
    model: ModelOptions | None,
    training: TextTraining,
) -> None:
    """A new run, or with --resume one more go at it; `name` is the preset unless the options say another."""
    run = run or Run()
    out = run.out or Path("runs") / kind
    settings = _absolute(kind, settings)
    changes = (model or ModelOptions()).changes()
    config = preset(changes.pop("preset", name))
    if "mixer" in changes:  # the preset's options of a mixer that is no longer there go with it
        changes["mixer_options"] = {m: how for m, how in config.mixer_options.items() if m in changes["mixer"]}
    config.but(**(TASKS[kind] | changes))  # refuses what cannot be before the data are read
    _check_used(kind, settings, changes, training, run)

    def job(data: Data) -> Job:
        return Job(kind=kind, data=settings, model=config.but(**(data.fields | changes)), train=training.plain())

    _check_folder(out)
    begun = bool(checkpoints(out))
    if begun and not run.resume:
        raise ValueError(f"{out} holds a run; add --resume to continue it, or name another folder with --out")
    if begun:
        check_same(out, kind, settings)
    _go(kind, settings, job, out, resume=run.resume, strategy=run.strategy, threads=run.threads)


def go_on(folder: Path, checkpoint: str | None, steps: int | None, strategy: str, threads: int | None) -> None:
    """The run in a folder, from its newest checkpoint or from one that is named."""
    job = read_job(folder)
    job = job if steps is None else replace(job, train=replace(job.train, steps=steps))
    _go(job.kind, job.data, lambda _: job, folder, resume=checkpoint or True, strategy=strategy, threads=threads)


def _go(
    kind: str,
    settings: Mapping[str, Any],
    make_job: MakeJob,
    out: Path,
    *,
    resume: bool | str,
    strategy: str,
    threads: int | None,
) -> None:
    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}; accepted: 1 or more")
    torch.set_num_threads(threads or torch.get_num_threads())
    team = Team.from_env(strategy)
    with ExitStack() as stack, _in_flags(out):
        stack.callback(team.close)
        created = Created(out)

        def read() -> Data:
            if team.rank == 0:
                stack.enter_context(exclusive(out))
                stack.enter_context(created)
            return open_data(kind, settings, out, begun=team.rank > 0 or bool(checkpoints(out)))

        data = _opened(team, read)
        job = make_job(data)
        watcher = stack.enter_context(Watcher(job, data, out, quiet=team.rank > 0))

        def on_event(event: Event) -> None:
            if event.kind == "start" and team.rank == 0:
                created.keep()
            watcher.on_event(event)

        _, result = train(job, data, out, resume=resume, on_event=on_event, team=team)
        watcher.finish(result)
    if result.stopped:  # a script that goes on to the next command should not
        sys.exit(128 + Signals[result.stopped] if result.stopped in Signals.__members__ else 1)


def _opened(team: Team, read: Callable[[], Data]) -> Data:
    """The data, opened by the first process before the others; when it fails, all leave."""
    data, failure = None, None
    if team.rank == 0:
        try:
            data = read()
        except ValueError as error:
            failure = error
    note = team.tell({"failed": failure is not None})
    if failure is not None:
        raise failure
    if note["failed"]:
        sys.exit(2)  # the first process says why
    return data or read()


def _check_used(
    kind: str, settings: Mapping[str, Any], changes: Mapping[str, Any], training: TextTraining, run: Run
) -> None:
    """An option that this command would not look at is a mistake: say where it belongs."""
    plateau = training.schedule == "plateau"
    unused = [
        ("head", changes.get("head"), kind == "image", "train image"),
        ("vocab-size", settings.get("vocab_size"), settings.get("tokenizer") in (None, "bpe"), "--tokenizer bpe"),
        ("allow-binary", settings.get("allow_binary"), settings.get("tokenizer") in (None, "byte"), "--tokenizer byte"),
        ("columns", settings.get("columns"), settings.get("name") != "generated", "a CSV file"),
        ("plateau-patience", training.plateau_patience, plateau, "--schedule plateau"),
        ("plateau-factor", training.plateau_factor, plateau, "--schedule plateau"),
        ("min-lr", training.min_lr, training.schedule != "constant", "another --schedule than constant"),
        ("strategy", run.strategy, "WORLD_SIZE" in os.environ, "torchrun"),
    ]
    if BILSTM in str(changes.get("mixer")):
        names = ("n_heads", "n_kv_heads", "key_dim", "positions", "mlp", "norm")
        unused += [(name.replace("_", "-"), changes.get(name), False, "another mixer than bilstm") for name in names]
    for name, value, used, where in unused:
        if not used and value not in (*IDLE, training_default(name)):
            raise ValueError(f"--{name} is {value}, which `linnet train {kind}` would not use here; it is for {where}")


def training_default(name: str) -> Any:
    """What the field of that option is when nobody gives it; None for other options."""
    field = TrainConfig.__dataclass_fields__.get(name.replace("-", "_"))
    return None if field is None else field.default


def _absolute(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A path that is there, or that lies in a zip that is, as an absolute one: a run can be resumed from anywhere."""
    key = "tokenizer" if kind == "text" else "name"
    name, path = settings[key], Path(settings[key])
    there = path.exists() or any(parent.is_file() for parent in path.parents)
    return {**settings, key: str(path.resolve()) if there and name not in NAMES[kind] else name}


def _check_folder(out: Path) -> None:
    there = next(path for path in (out, *out.parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is a file; accepted: a folder for the run, so name another one with --out")


@contextmanager
def _in_flags(out: Path) -> Iterator[None]:
    """A sentence that names a keyword of the library, such as resample=True, names the option instead: --resample."""
    try:
        yield
    except ValueError as error:
        text = re.sub(r"--resume (?=step-\d)", lambda _: f"linnet train resume {out} --checkpoint ", str(error))
        for name, value in re.findall(r"\b([a-z_]+)=(True|'\w+')", text):
            if name in OPTIONS:
                flag = f"--{name.replace('_', '-')}" + ("" if value == "True" else f" {value[1:-1]}")
                text = text.replace(f"{name}={value}", flag)
        if text == str(error):
            raise
        raise ValueError(text) from error
