"""The training loop: any model with a loss, any source of batches, one process or many.

    gradient of a step = sum over the global batch of d nats / d parameter, divided once by the global count

Everything a step uses is a pure function of (configuration, data, step, rank) and of the checkpoint: data.order gives
the rows, `step_seed` the dropout, optim the learning rate. So a run that is killed and resumed equals one that was
never killed, bit for bit, and micro-batches or several processes change only the rounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.order import MASK, splitmix64
from ..data.order import rows as rows_of_step
from ..errors import ArgumentError
from ..models import Model
from ..models.activations import recomputed
from ..native.memory import keep_freed
from .config import TrainConfig
from .distributed import ProcessGroup
from .divergence import TrainingDiverged, locate_divergence
from .evaluation import evaluate, readers
from .log import OnEvent
from .optim import learning_rate, make_optimizer, set_learning_rate
from .progress import Clock
from .run_store import RunStore
from .source import Source
from .stop import StopSignal


@dataclass(frozen=True)
class Result:
    """The outcome of a run."""

    step: int  # optimizer steps done
    loss: float | None  # of the last step, mean nats
    metrics: dict[str, float]  # of the last evaluation
    best_step: int | None  # of the checkpoint with the lowest held-out loss
    seconds: float  # of training, over all resumptions
    units: int  # tokens, pixels, ... trained on
    stopped: str  # "" if all steps are done, else the signal that ended it
    checkpoint: Path | None  # the last one written


def fit(
    model: Model,
    train: Source,
    valid: Source | None,
    config: TrainConfig,
    *,
    out: Path | str | None = None,
    resume: bool | str = False,
    meta: Mapping[str, Any] | None = None,
    on_event: OnEvent | None = None,
    group: ProcessGroup | None = None,
) -> Result:
    """Train the model in place. With glibc, the process keeps the memory of freed tensors for the next step.

    Args:
        model: any implementation of `linnet.models.Model`.
        train, valid: sources of batches; without `valid` nothing is evaluated.
        out: folder for checkpoints and log.jsonl; None writes nothing.
        resume: True continues from the newest checkpoint in `out` (from the start if there is none yet), a name such as
            "step-00001000" from that one. The model's weights are overwritten.
        meta: JSON values to store in every checkpoint, such as the command that started the run.
        on_event: called with every Event; the loop itself prints nothing.
        group: the processes that train together; None: this process alone.

    Raises:
        ValueError: CheckpointError, TrainingDiverged or a plain one, in one sentence.
    """
    group = ProcessGroup.alone() if group is None else group
    _check(train, valid, config, group, meta)
    keep_freed()  # every step allocates the same tensors, so their pages are worth keeping
    training = model.training
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))  # leaves the caller's generator unchanged
        stack.enter_context(recomputed(model.blocks, config.checkpoint_activations))
        stack.callback(model.train, training)
        data = {"train": train.fingerprint, "valid": None if valid is None else valid.fingerprint}
        run_store = RunStore(None if out is None else Path(out), config, group, on_event, data, dict(meta or {}))
        stack.callback(run_store.close)
        loop = _Loop(model, train, valid, config, group, run_store)
        loop.start(resume)
        return loop.run(stack.enter_context(StopSignal()))


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of torch's generator for a step: splitmix64 chained over the three numbers, 63 bits."""
    x = 0
    for n in (seed, step, rank):
        x = int(splitmix64(np.array([(x + n) & MASK], np.uint64))[0])
    return x >> 1


class _Loop:
    """A run in progress: the arguments of `fit`, and what changes from step to step."""

    def __init__(
        self,
        model: Model,
        train: Source,
        valid: Source | None,
        config: TrainConfig,
        group: ProcessGroup,
        run_store: RunStore,
    ) -> None:
        self.model, self.train, self.valid = model, train, valid
        self.config, self.group, self.run_store = config, group, run_store
        self.device = next(model.parameters()).device

    def start(self, resume: bool | str) -> None:
        """Open or resume the run and create the optimizer."""
        self.progress, self.autocast, text = self.run_store.open(self.model, resume)
        self.call = self.group.wrap(self.model)
        self.optimizer = make_optimizer(self.model, self.config)
        self.run_store.restore(self.model, self.optimizer)
        self.clock = Clock(self.progress, self.config.steps)
        self._emit("start", {"steps": self.config.steps, "unit": self.train.unit}, text)

    def run(self, stop: StopSignal) -> Result:
        """Take steps, evaluate and save until the last step or a signal."""
        config = self.config
        while self.progress.step < config.steps:
            stopping = self._step(bool(stop.name))
            step, last = self.progress.step, self.progress.step == config.steps
            regular = bool(config.eval_every) and step % config.eval_every == 0
            saving = stopping or last or (bool(config.save_every) and step % config.save_every == 0)
            if self.valid is not None and (regular or last):
                self._evaluate(self.valid, regular, saving)
            if saving:
                self._save()
            if stopping and not last:
                way = "continue with --resume" if self.run_store.out else "nothing was saved, because out is None"
                self._emit("stop", {}, f"stopped after step {step} of {config.steps}; {way}")
                return self._result(stop.name or "a signal to another process")
        self._emit("done", {"loss": self.progress.loss, **self.progress.metrics}, "all steps are done")
        return self._result("")

    def _step(self, stop: bool) -> bool:
        """Take one optimizer step; return True if this or another process received a signal to stop."""
        config, step = self.config, self.progress.step
        self.clock.start_step()
        self.model.train()
        nats, count, units, stops = self._gradients(step, stop)
        loss, divisor = nats / max(1.0, count), max(1.0, count)
        each = config.clip_each > 0
        norm = self.group.clip(self.model, divisor, config.clip_each if each else config.clip, each=each)
        if not (isfinite(loss) and isfinite(norm)):
            what = f"the loss is {loss:.4g} with a gradient of norm {norm:.4g}"
            raise self._divergence(what, step + 1, self._locate(step))
        lr = learning_rate(step, config, self.progress.plateau)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        units = self.progress.units + int(units)
        self.progress = replace(self.progress, step=step + 1, loss=loss, units=units)
        values = {"loss": loss, "lr": lr, "grad_norm": norm, "units": units, **self.clock.end_step(self.progress)}
        self._emit("step", values, log=(step + 1) % config.log_every == 0 or step + 1 == config.steps)
        return bool(stops)

    def _gradients(self, step: int, stop: bool) -> tuple[float, ...]:
        """Accumulate the gradients of a step; return nats, their count, units and stop requests of all processes."""
        torch.manual_seed(step_seed(self.config.seed, step, self.group.rank))
        sums = torch.tensor([0.0, 0.0, 0.0, float(stop)], dtype=torch.float64)
        for i, batch in enumerate(self._batches(step)):
            total, count = self._forward_backward(batch, more=i + 1 < self.config.accumulate)
            sums += torch.tensor([float(total), float(count), self.train.units(batch), 0.0], dtype=torch.float64)
        return tuple(self.group.sum(sums)[0].tolist())

    def _batches(self, step: int) -> Iterator[dict[str, Tensor]]:
        """Yield this process's micro-batches of a step, in the order of the rows."""
        config = self.config
        rows = self.group.share(rows_of_step(config.seed, step, config.batch_size, self.train.length))
        size = len(rows) // config.accumulate
        for first in range(0, len(rows), size):
            batch = self.train.batch(rows[first : first + size])
            yield self.group.shard({name: x.to(self.device) for name, x in batch.items()})

    def _forward_backward(self, batch: dict[str, Tensor], *, more: bool) -> tuple[Tensor, Tensor]:
        """Run forward and backward of one micro-batch, adding to the gradients; return its nats and their count."""
        with self.group.no_sync(more):
            with self.autocast.context():
                total, count = self.call(batch)
            total.backward()
        return total.detach(), count

    def _evaluate(self, valid: Source, regular: bool, saving: bool) -> None:
        config, progress = self.config, self.progress
        size, context = config.batch_size // config.accumulate, self.autocast.context()
        metrics = evaluate(self.model, valid, batch_size=size, rows=config.eval_rows, group=self.group, context=context)
        loss = metrics["loss"]
        if not isfinite(loss):
            what = f"the held-out loss is {loss}"
            raise self._divergence(what, progress.step, "on the held-out data, with a finite training loss")
        progress = replace(progress, metrics=metrics)
        if saving and (progress.best_loss is None or loss < progress.best_loss):
            progress = replace(progress, best_step=progress.step, best_loss=loss)
        if regular:  # the final evaluation of a run that is extended later must not change the learning rate
            progress = replace(progress, plateau=progress.plateau.update(loss, config))
        self.progress = progress
        self._emit("eval", metrics)

    def _save(self) -> None:
        self.progress = replace(self.progress, seconds=self.clock.seconds)
        bad = self.run_store.save(self.model, self.optimizer, self.progress)
        if bad is not None:
            where = f"in {bad!r}, by the optimizer's own step"
            raise self._divergence("a weight is not finite", self.progress.step, where)

    def _locate(self, step: int) -> str:
        """Repeat the step, with the same rows and dropout, to locate its first value that is not finite."""
        torch.manual_seed(step_seed(self.config.seed, step, self.group.rank))
        batches = list(self._batches(step))
        return locate_divergence(self.model, batches, lambda batch: self._forward_backward(batch, more=True)[0])

    def _divergence(self, what: str, step: int, where: str) -> TrainingDiverged:
        saved = self.run_store.saved
        last = f"the last good checkpoint is {saved.name}" if saved else "no checkpoint was written before"
        advice = f"start again with a lower lr than {self.config.lr:g}, a longer warmup or a smaller clip"
        return TrainingDiverged(f"{what} at step {step}, and it began {where}; {last}; {advice}")

    def _emit(self, kind: str, values: dict[str, Any], text: str = "", *, log: bool = True) -> None:
        self.run_store.emit(kind, self.progress.step, values, text, log=log)

    def _result(self, stopped: str) -> Result:
        p = self.progress
        return Result(
            p.step, p.loss, p.metrics, p.best_step, self.clock.seconds, p.units, stopped, self.run_store.saved
        )


def _check(
    train: Source, valid: Source | None, config: TrainConfig, group: ProcessGroup, meta: Mapping[str, Any] | None
) -> None:
    """Check what depends on both the configuration and the data or the processes."""
    if train.length < 1:
        raise ValueError("the training data has no example; accepted: one or more")
    if config.batch_size % (config.accumulate * readers(group)):
        accepted = f"a multiple of accumulate x processes = {config.accumulate} x {readers(group)}"
        raise ArgumentError("batch_size", config.batch_size, accepted)
    if config.eval_every and valid is None:
        raise ValueError(
            f"eval_every is {config.eval_every}, but there is no held-out data; accepted: 0, or pass valid"
        )
    try:
        json.dumps(dict(meta or {}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"meta cannot be stored as JSON ({error}); accepted: a dict of plain values") from None
