"""What `linnet train` prints: the model and the data, a progress bar with speed and time left, then the result.

A terminal shows a progress bar; a file or a pipe gets one line for every evaluation and one every half minute. All
output goes to stderr, from rank 0 only.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .common import duration

SHOWN = {"loss": "nats", "bits": "bits/token", "bits_per_byte": "bits/byte", "bits_per_dim": "bits/dim", "per": "PER"}
SHOWN |= {"wer": "WER", "accuracy": "accuracy", "mse": "MSE", "mae": "MAE"}
QUIET = 30.0  # seconds between lines if there is no bar


class Watcher:
    """Print the events of a run; use it as a context manager."""

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
        self.last_line = monotonic()
        self.per_token: float | None = None  # bytes of held-out text, computed at the first evaluation

    def __enter__(self) -> Watcher:
        self.task = self.bar.add_task("training", total=self.job.train.steps, now="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.bar.stop()

    def on_event(self, event: Any) -> None:
        if event.kind == "start":
            self._print(f"{self._opening()}\n{event.text}")  # not before: a refused run prints only its error
            self.bar.start()
        elif event.kind == "step":
            now = self._speed(event.values)
            self.bar.update(self.task, completed=event.step, now=now)
            if self.bar.disable and monotonic() - self.last_line >= self.every:
                self._print(f"step {event.step:>7,}   {now}")
        elif event.kind == "eval":
            self._print(f"step {event.step:>7,}   held out: {self._metrics(event.values)}")

    def finish(self, result: Any) -> None:
        """Print the result and the next command."""
        self.bar.stop()
        if result.stopped:
            way = f"continue with: linnet train resume {self.out}"
            self._print(f"stopped by {result.stopped} after step {result.step:,}, and saved; {way}")
            return
        speed = f"{result.units / max(result.seconds, 1e-9):,.0f} {self.data.train.unit}/s"
        metrics = self._metrics(result.metrics)
        self._print(
            f"{result.step:,} steps in {duration(result.seconds)} ({speed}); held out: {metrics}\n"
            f"saved in {self.out}; evaluate with: linnet eval {self.out}"
        )

    def _print(self, text: str) -> None:
        self.last_line = monotonic()
        self.console.print(text, soft_wrap=True, markup=False)

    def _opening(self) -> str:
        model, train = self.job.model, self.job.train
        names = model.mixer if isinstance(model.mixer, str) else ", ".join(model.mixer)
        shape = f"{model.n_layers} layers of {names}, width {model.d_model}: {describe_size(model)}"
        train_on, held_out = describe_examples(self.data.train), describe_examples(self.data.valid)
        data = f"{train_on} to train on, {held_out} held out"
        return f"{shape}\n{data}; {train.steps:,} steps of {train.batch_size}"

    def _speed(self, values: dict[str, Any]) -> str:
        speed, left = f"{values['units_per_second']:,.0f} {self.data.train.unit}/s", duration(values["seconds_left"])
        return f"loss {values['loss']:.3f}  {speed}  {left} left"

    def _metrics(self, metrics: dict[str, Any]) -> str:
        if self.job.kind != "text" or "bits" not in metrics:
            return format_metrics(metrics)
        if self.per_token is None:
            from ..train.jobs import bytes_per_token

            self.per_token = bytes_per_token(self.data.valid, self.job.train.eval_rows)
        return format_metrics(metrics | {"bits_per_byte": metrics["bits"] / self.per_token})


def describe_examples(source: Any, rows: int | None = None) -> str:
    """Return the number of examples, and what an example is if the source describes it."""
    what = getattr(source, "example", "")
    return f"{source.length if rows is None else rows:,} examples" + (f" ({what})" if what else "")


def describe_size(config: Any) -> str:
    """Return the number of parameters and, for a causal model, the bytes of one sequence's state."""
    from ..models import count_parameters, state_bytes

    parameters = f"{count_parameters(config):,} parameters"
    if not config.causal:
        return parameters
    small, large = (state_bytes(config, n) for n in (1_000, 1_000_000))
    growth = "at any length" if small == large else f"at 1,000 tokens, {large:,} at a million"
    return f"{parameters}, {small:,} bytes of state {growth}"


def format_metrics(metrics: dict[str, Any]) -> str:
    """Return the metrics of SHOWN with their units, omitting equal values under two names."""
    known = {name: metrics[name] for name in SHOWN if isinstance(metrics.get(name), float)}
    for name, other in (("bits", "bits_per_byte"), ("loss", "mse")):
        if name in known and known[name] == known.get(other):
            del known[name]
    return ", ".join(f"{value:.4f} {SHOWN[name]}" for name, value in known.items()) or "nothing was measured"
