"""The one training loop: any model with a loss, any source of batches, one process or many.

    gradient of a step = sum over the global batch of d nats / d parameter, divided once by the global count

Everything a step uses is a pure function of (configuration, data, step, rank) and of what the checkpoint holds: the
rows by data.order, dropout by `step_seed`, the learning rate by optim. So a run that is killed and resumed is the run
that was never killed, bit for bit, and accumulating k micro-batches or sharing a batch changes rounding only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.order import rows as rows_of_step
from ..models import Model
from ..models.activations import recomputed
from ..native.memory import keep_freed
from .config import TrainConfig
from .distributed import Team
from .evaluation import evaluate, readers
from .keeper import Keeper
from .log import OnEvent
from .optim import learning_rate, make_optimizer, set_learning_rate
from .progress import Clock
from .source import Source
from .stop import StopSignal
from .trouble import TrainingDiverged, where_it_began


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    step: int  # optimizer steps done
    loss: float | None  # of the last step, mean nats
    metrics: dict[str, float]  # of the last evaluation
    best_step: int | None  # of the checkpoint with the lowest held-out loss
    seconds: float  # of training, over all resumptions
    units: int  # tokens, pixels, ... trained on
    stopped: str  # "" when all steps are done, else the signal that ended it
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
    team: Team | None = None,
) -> Result:
    """Train the model in place. Memory that tensors leave stays with the process, where malloc is glibc's.

    Args:
        model: anything that keeps the contract of `linnet.models.Model`.
        train, valid: sources of batches; without `valid` nothing is evaluated.
        out: folder for checkpoints and log.jsonl; None writes nothing.
        resume: True continues from the newest checkpoint in `out` (from the start if there is none yet), a name such as
            "step-00001000" from that one. The weights of the model given are overwritten.
        meta: JSON values to store in every checkpoint, such as the command that made the run.
        on_event: called with every Event; the loop itself prints nothing.
        team: the processes that train together; None is this one alone.

    Raises:
        ValueError: CheckpointError, TrainingDiverged or a plain one, in one sentence.
    """
    team = Team.alone() if team is None else team
    _check(train, valid, config, team, meta)
    keep_freed()  # every step makes the same tensors: their pages are worth keeping
    training = model.training
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))  # the caller's generator is left as it was
        stack.enter_context(recomputed(model.blocks, config.checkpoint_activations))
        stack.callback(model.train, training)
        data = {"train": train.fingerprint, "valid": None if valid is None else valid.fingerprint}
        keeper = Keeper(None if out is None else Path(out), config, team, on_event, data, dict(meta or {}))
        stack.callback(keeper.close)
        loop = _Loop(model, train, valid, config, team, keeper)
        loop.start(resume)
        return loop.go(stack.enter_context(StopSignal()))


def step_seed(seed: int, step: int, rank: int) -> int:
    """Of torch's generator at the start of a step: splitmix64 over the three numbers (Steele et al. 2014), 63 bits."""
    mask, x = 2**64 - 1, 0
    for n in (seed, step, rank):
        x = (x + n + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        x ^= x >> 31
    return x >> 1


class _Loop:
    """A run in progress: what `fit` was given, and what changes from step to step."""

    def __init__(
        self, model: Model, train: Source, valid: Source | None, config: TrainConfig, team: Team, keeper: Keeper
    ) -> None:
        self.model, self.train, self.valid = model, train, valid
        self.config, self.team, self.keeper = config, team, keeper
        self.device = next(model.parameters()).device

    def start(self, resume: bool | str) -> None:
        """Everything up to the first step."""
        self.progress, self.autocast, text = self.keeper.open(self.model, resume)
        self.call = self.team.wrap(self.model)
        self.optimizer = make_optimizer(self.model, self.config)
        self.keeper.restore(self.model, self.optimizer)
        self.clock = Clock(self.progress, self.config.steps)
        self._say("start", {"steps": self.config.steps, "unit": self.train.unit}, text)

    def go(self, stop: StopSignal) -> Result:
        """Steps until the last, or until a signal; evaluations and checkpoints on the way."""
        config = self.config
        while self.progress.step < config.steps:
            asked = self._step(bool(stop.name))
            step, last = self.progress.step, self.progress.step == config.steps
            regular = bool(config.eval_every) and step % config.eval_every == 0
            saving = asked or last or (bool(config.save_every) and step % config.save_every == 0)
            if self.valid is not None and (regular or last):
                self._evaluate(self.valid, regular, saving)
            if saving:
                self._save()
            if asked and not last:
                how = "continue with --resume" if self.keeper.out else "nothing was saved, because out is None"
                self._say("stop", {}, f"stopped after step {step} of {config.steps}; {how}")
                return self._result(stop.name or "a signal to another process")
        self._say("done", {"loss": self.progress.loss, **self.progress.metrics}, "all steps are done")
        return self._result("")

    def _step(self, stop: bool) -> bool:
        """One optimizer step; True when this or another process was told to stop."""
        config, step = self.config, self.progress.step
        self.clock.resume()
        self.model.train()
        nats, count, units, stops = self._gradients(step, stop)
        loss, divisor = nats / max(1.0, count), max(1.0, count)
        each = config.clip_each > 0
        norm = self.team.clip(self.model, divisor, config.clip_each if each else config.clip, each=each)
        if not (isfinite(loss) and isfinite(norm)):
            what = f"the loss is {loss:.4g} with a gradient of norm {norm:.4g}"
            raise self._diverged(what, step + 1, self._where(step))
        lr = learning_rate(step, config, self.progress.plateau)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        units = self.progress.units + int(units)
        self.progress = replace(self.progress, step=step + 1, loss=loss, units=units)
        values = {"loss": loss, "lr": lr, "grad_norm": norm, "units": units, **self.clock.tick(self.progress)}
        self._say("step", values, log=(step + 1) % config.log_every == 0 or step + 1 == config.steps)
        return bool(stops)

    def _gradients(self, step: int, stop: bool) -> tuple[float, ...]:
        """Backward of every micro-batch; over all processes: nats, their count, units and requests to stop."""
        torch.manual_seed(step_seed(self.config.seed, step, self.team.rank))
        sums = torch.tensor([0.0, 0.0, 0.0, float(stop)], dtype=torch.float64)
        for i, batch in enumerate(self._batches(step)):
            total, count = self._both_ways(batch, more=i + 1 < self.config.accumulate)
            sums += torch.tensor([float(total), float(count), self.train.units(batch), 0.0], dtype=torch.float64)
        return tuple(self.team.sum(sums)[0].tolist())

    def _batches(self, step: int) -> Iterator[dict[str, Tensor]]:
        """This process's micro-batches of a step, in the order of the rows."""
        config = self.config
        rows = self.team.share(rows_of_step(config.seed, step, config.batch_size, self.train.length))
        size = len(rows) // config.accumulate
        for first in range(0, len(rows), size):
            batch = self.train.batch(rows[first : first + size])
            yield self.team.shard({name: x.to(self.device) for name, x in batch.items()})

    def _both_ways(self, batch: dict[str, Tensor], *, more: bool) -> tuple[Tensor, Tensor]:
        """Forward and backward of one micro-batch; gradients add up."""
        with self.team.no_sync(more):
            with self.autocast.context():
                total, count = self.call(batch)
            total.backward()
        return total.detach(), count

    def _evaluate(self, valid: Source, regular: bool, saving: bool) -> None:
        config, progress = self.config, self.progress
        size, context = config.batch_size // config.accumulate, self.autocast.context()
        found = evaluate(self.model, valid, batch_size=size, rows=config.eval_rows, team=self.team, context=context)
        if not isfinite(found["loss"]):
            what = f"the held-out loss is {found['loss']}"
            raise self._diverged(what, progress.step, "on the held-out data, with a finite training loss")
        progress = replace(progress, metrics=found)
        if saving and (progress.best_loss is None or found["loss"] < progress.best_loss):
            progress = replace(progress, best_step=progress.step, best_loss=found["loss"])
        if regular:  # the evaluation at the end of a run that is made longer later must not move the learning rate
            progress = replace(progress, plateau=progress.plateau.seen(found["loss"], config))
        self.progress = progress
        self._say("eval", found)

    def _save(self) -> None:
        self.progress = replace(self.progress, seconds=self.clock.seconds)
        bad = self.keeper.save(self.model, self.optimizer, self.progress)
        if bad is not None:
            where = f"in {bad!r}, by the optimizer's own step"
            raise self._diverged("a weight is not finite", self.progress.step, where)

    def _where(self, step: int) -> str:
        """Take the step again, watching: the same rows, the same dropout."""
        torch.manual_seed(step_seed(self.config.seed, step, self.team.rank))
        batches = list(self._batches(step))
        return where_it_began(self.model, batches, lambda batch: self._both_ways(batch, more=True)[0])

    def _diverged(self, what: str, step: int, where: str) -> TrainingDiverged:
        saved = self.keeper.saved
        kept = f"the last good checkpoint is {saved.name}" if saved else "no checkpoint was written before"
        advice = f"start again with a lower lr than {self.config.lr:g}, a longer warmup or a smaller clip"
        return TrainingDiverged(f"{what} at step {step}, and it began {where}; {kept}; {advice}")

    def _say(self, kind: str, values: dict[str, Any], text: str = "", *, log: bool = True) -> None:
        self.keeper.say(kind, self.progress.step, values, text, log=log)

    def _result(self, stopped: str) -> Result:
        p = self.progress
        return Result(p.step, p.loss, p.metrics, p.best_step, self.clock.seconds, p.units, stopped, self.keeper.saved)


def _check(
    train: Source, valid: Source | None, config: TrainConfig, team: Team, meta: Mapping[str, Any] | None
) -> None:
    """What fits each other only once data and processes are known."""
    if train.length < 1:
        raise ValueError("the training data has no example; accepted: one or more")
    if config.batch_size % (config.accumulate * readers(team)):
        raise ValueError(
            f"batch_size is {config.batch_size}; accepted: a multiple of accumulate x processes = "
            f"{config.accumulate} x {readers(team)}"
        )
    if config.eval_every and valid is None:
        raise ValueError(
            f"eval_every is {config.eval_every}, but there is no held-out data; accepted: 0, or give valid"
        )
    try:
        json.dumps(dict(meta or {}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"meta cannot be stored as JSON ({error}); accepted: a dict of plain values") from None
