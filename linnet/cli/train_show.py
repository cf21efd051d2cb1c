"""What `linnet train` shows: the model and the data first, a progress bar with speed and time left, the result last.

A terminal gets a bar that moves; a file or a pipe gets a line for every evaluation and one every half minute. All of
it goes to stderr, and only the first process speaks.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

SHOWN = {"loss": "nats", "bits": "bits/token", "bits_per_byte": "bits/byte", "bits_per_dim": "bits/dim", "per": "PER"}
SHOWN |= {"wer": "WER", "accuracy": "accuracy", "mse": "MSE", "mae": "MAE"}
QUIET = 30.0  # seconds without a line, where there is no bar


class Watcher:
    """Prints the events of a run; use with `with`."""

    def __init__(
        self,
        job: Any,
        data: Any,
        out: Path,
        *,
        quiet: bool = False,
        console: Console | None = None,
        every: float = QUIET,
    ) -> None:
        self.job, self.data, self.out, self.every = job, data, out, every
        self.console = console or Console(stderr=True, quiet=quiet, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn())
        self.bar = Progress(*columns, console=self.console, disable=quiet or not self.console.is_terminal)
        self.spoken = monotonic()
        self.per_token: float | None = None  # bytes of held-out text, known at the first evaluation

    def __enter__(self) -> Watcher:
        self.task = self.bar.add_task("training", total=self.job.train.steps, now="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.bar.stop()

    def on_event(self, event: Any) -> None:
        if event.kind == "start":
            self._say(f"{self._opening()}\n{event.text}")  # not before: a run that is refused says one sentence only
            self.bar.start()
        elif event.kind == "step":
            now = self._now(event.values)
            self.bar.update(self.task, completed=event.step, now=now)
            if self.bar.disable and monotonic() - self.spoken >= self.every:
                self._say(f"step {event.step:>7,}   {now}")
        elif event.kind == "eval":
            self._say(f"step {event.step:>7,}   held out: {self._shown(event.values)}")

    def finish(self, result: Any) -> None:
        """The last lines: what came out, and what to do with it."""
        self.bar.stop()
        if result.stopped:
            how = f"go on with: linnet train resume {self.out}"
            self._say(f"stopped by {result.stopped} after step {result.step:,}, and saved; {how}")
            return
        speed = f"{result.units / max(result.seconds, 1e-9):,.0f} {self.data.train.unit}/s"
        self._say(
            f"{result.step:,} steps in {duration(result.seconds)} ({speed}); held out: {self._shown(result.metrics)}\n"
            f"kept in {self.out}; evaluate with: linnet eval {self.out}"
        )

    def _say(self, text: str) -> None:
        self.spoken = monotonic()
        self.console.print(text, soft_wrap=True, markup=False)

    def _opening(self) -> str:
        model, train = self.job.model, self.job.train
        names = model.mixer if isinstance(model.mixer, str) else ", ".join(model.mixer)
        shape = f"{model.n_layers} layers of {names}, width {model.d_model}: {size(model)}"
        train_on, held_out = examples(self.data.train), examples(self.data.valid)
        data = f"{train_on} to train on, {held_out} held out"
        return f"{shape}\n{data}; {train.steps:,} steps of {train.batch_size}"

    def _now(self, values: dict[str, Any]) -> str:
        speed, left = f"{values['units_per_second']:,.0f} {self.data.train.unit}/s", duration(values["seconds_left"])
        return f"loss {values['loss']:.3f}  {speed}  {left} left"

    def _shown(self, metrics: dict[str, Any]) -> str:
        if self.job.kind != "text" or "bits" not in metrics:
            return shown(metrics)
        if self.per_token is None:
            from ..train.jobs import bytes_per_token

            self.per_token = bytes_per_token(self.data.valid, self.job.train.eval_rows)
        return shown(metrics | {"bits_per_byte": metrics["bits"] / self.per_token})


def examples(source: Any, rows: int | None = None) -> str:
    """How many examples, and what one is where that does not go without saying."""
    what = getattr(source, "example", "")
    return f"{source.length if rows is None else rows:,} examples" + (f" ({what})" if what else "")


def size(config: Any) -> str:
    """Parameters, and the state of one sequence where there is one."""
    from ..models import count_parameters, state_bytes

    parameters = f"{count_parameters(config):,} parameters"
    if not config.causal:
        return parameters
    small, large = (state_bytes(config, n) for n in (1_000, 1_000_000))
    growth = "at any length" if small == large else f"at 1,000 tokens, {large:,} at a million"
    return f"{parameters}, {small:,} bytes of state {growth}"


def shown(metrics: dict[str, Any]) -> str:
    """The metrics people ask for, by their names, and none of them twice."""
    known = {name: metrics[name] for name in SHOWN if isinstance(metrics.get(name), float)}
    for name, other in (("bits", "bits_per_byte"), ("loss", "mse")):
        if name in known and known[name] == known.get(other):
            del known[name]
    return ", ".join(f"{value:.4f} {SHOWN[name]}" for name, value in known.items()) or "nothing was measured"


def duration(seconds: float) -> str:
    """1:02:03, 2:03 or 3 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{rest} s"
