"""One recall run: train, score the held-out sequences, count the bytes of the actual state, and return a row.

    accuracy    share of queries answered correctly after the last step, on TEST_ROWS test sequences
    chosen_by   the same on as many validation sequences, by which a learning rate may be chosen
    transition  first evaluated step with an accuracy of 0.9 or more; None if there was none

    ending      "" after all steps; "settled" or "solved", by `patience` below; "stopped" or "diverged"

A search run (`stop_at`) ends as soon as it is good enough and is marked "stopped": its accuracy is not reported.

A run with `patience` ends when it has converged: its rate stays until the loss on the validation sequences has had no
new minimum in that many evaluations, is cut to a fifth, and when that happens again the run has "settled". One that
answers SOLVED of them ends at once. At most it takes all its steps, those of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import monotonic, process_time
from typing import Any

import torch
from torch import Tensor

from ...models import LanguageModel, ModelConfig
from ...train import Event, TrainingDiverged, fit
from ...train.optim import Plateau
from ..core.results import Row, make_row
from .config import TEST_ROWS, RecallConfig
from .probes import PROBES
from .score import Kept, ratio, score

GOOD = 0.9  # where a run counts as past its transition
SOLVED = 0.999  # where a run with patience has nothing left to learn
CUTS = 2  # of its learning rate: the second one would change nothing any more, so the run ends
CONVERGED = ("settled", "solved")


class Recaller(LanguageModel):
    """A language model that is evaluated by its accuracy on the labelled tokens."""

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        loss = self.loss(batch)
        predicted, wanted = self.predictions(batch)
        return {"loss": loss, "accuracy": ((predicted == wanted).sum(), loss[1])}


class _Enough(Exception):
    """A run has reached its target accuracy, or has converged: the argument is its ending."""


def run(config: RecallConfig) -> Row:
    """Train and measure one configuration."""
    began, cpu = monotonic(), process_time()
    model, curve, ending = trained(config)
    seconds, cpu = monotonic() - began, process_time() - cpu
    test = config.source("test")
    scores = score(model, test, range(TEST_ROWS, 2 * TEST_ROWS))
    metrics: dict[str, Any] = {"accuracy": ratio(scores["all"])}
    metrics["chosen_by"] = ratio(score(model, test, range(TEST_ROWS))["all"])
    metrics |= {"sequences": ratio(scores["sequence"]), "curve": curve, "ending": ending}
    metrics["transition"] = next((step for step, value in curve if value >= GOOD), None)
    metrics["slices"] = {name: [*pair] for name, pair in scores.items() if name not in ("all", "sequence")}
    metrics |= stored(model, config)
    metrics |= {name: PROBES[name](model, config) for name in config.probes}
    return make_row(config.to_dict(), metrics, seconds, {"parameters": model.parameter_count(), "cpu": round(cpu, 1)})


def rows_of(unit: RecallConfig) -> Iterator[Row]:
    """Yield the row of a configuration; the runner calls this."""
    yield run(unit)


def trained(config: RecallConfig) -> tuple[Recaller, list[tuple[int, float]], str]:
    """Return the model, its accuracy during training, and how it ended."""
    torch.manual_seed(config.seed)
    model, plan, plateau = Recaller(config.model()), config.training(), Plateau()
    curve: list[tuple[int, float]] = []

    def watch(event: Event) -> None:
        nonlocal plateau
        if event.kind == "eval":
            curve.append((event.step, event.values["accuracy"]))
            plateau = plateau.update(event.values["loss"], plan)  # as fit does, which sets the rate by it
            if ending := ended(config, curve[-1][1], plateau.cuts):
                raise _Enough(ending)

    try:
        result = fit(model, config.source("train"), Kept(config.source("test")), plan, on_event=watch)
    except _Enough as enough:
        return model.eval(), curve, str(enough)
    except TrainingDiverged:
        return model.eval(), curve, "diverged"
    if result.stopped:  # half a run is not a result
        raise KeyboardInterrupt(f"{result.stopped} after step {result.step} of {config.steps}")
    return model.eval(), curve, ""


def ended(config: RecallConfig, accuracy: float, cuts: int) -> str:
    """Return why a run ends at this evaluation, "" if it continues."""
    if config.stop_at and accuracy >= config.stop_at:
        return "stopped"
    if not config.patience:
        return ""
    return "solved" if accuracy >= SOLVED else "settled" if cuts >= CUTS else ""


def stored(model: LanguageModel, config: RecallConfig) -> dict[str, int]:
    """Return the bytes of state of one sequence after its last token: whole model and mixers under test."""
    tokens = config.source("test").batch([0])["tokens"]
    with torch.no_grad():
        _, state = model(tokens)
    assert state is not None
    under_test = [layer.nbytes for name, layer in zip(model_mixers(config.model()), state.layers, strict=True) if name]
    return {"state_bytes": state.nbytes, "mixer_bytes": sum(under_test)}


def model_mixers(config: ModelConfig) -> list[bool]:
    """Return for each layer whether it is the mixer under test, which is last in the pattern."""
    return [(i + 1) % len(config.pattern) == 0 for i in range(config.n_layers)]
