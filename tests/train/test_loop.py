"""The loop against a plain one written out here; accumulation, schedules, evaluation, events; one process and two."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from linnet.data.order import rows
from linnet.models import LanguageModel
from linnet.train import Event, ProcessGroup, TrainConfig, checkpoint, fit, read_log
from linnet.train.loop import step_seed
from linnet.train.optim import learning_rate
from tests.train.processes import close, together
from tests.train.toy import Letters, settings, small_model

FLOAT32 = 2e-5
PINNED = [
    1279368494785126216,
    2382078301196010449,
    5352869105593375612,
    6396520470166291297,
    4219455967998378185,
]  # a resume depends on them


def weights(model: LanguageModel) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in model.state_dict().items()}


def plain(model: LanguageModel, source: Letters, config: TrainConfig) -> list[float]:
    """The same mathematics without this package's loop."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=config.betas, eps=config.eps)
    losses = []
    for step in range(config.steps):
        torch.manual_seed(step_seed(config.seed, step, 0))
        total, count = model.train().loss(source.batch(rows(config.seed, step, config.batch_size, source.length)))
        mean = total / count
        optimizer.zero_grad()
        mean.backward()
        if config.clip_each:
            for p in model.parameters():
                torch.nn.utils.clip_grad_norm_(p, config.clip_each)
        elif config.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        optimizer.step()
        losses.append(mean.item())
    return losses


@pytest.mark.parametrize("changes", [{}, {"clip": 0.0}, {"clip": 0.1}, {"clip_each": 0.05}])
def test_equal_to_the_plain_loop(changes: dict[str, float]) -> None:
    config = settings(
        eps=1e-3, **changes
    )  # an eps that keeps rounding of tiny gradients from becoming steps of size lr
    ours, theirs, losses = small_model(), small_model(), []
    fit(ours, Letters(), None, config, on_event=lambda e: losses.append(e.values["loss"]) if e.kind == "step" else None)
    assert losses == pytest.approx(plain(theirs, Letters(), config), rel=FLOAT32)
    close(weights(ours), weights(theirs), 10 * FLOAT32)  # six steps of rounding


@pytest.mark.parametrize("accumulate", [2, 4, 8])
def test_accumulation_is_the_same_step(accumulate: int) -> None:
    whole, parts = small_model(dropout=0.0), small_model(dropout=0.0)
    fit(whole, Letters(), None, settings(eps=1e-3))
    fit(parts, Letters(), None, settings(eps=1e-3, accumulate=accumulate))
    close(weights(parts), weights(whole), 10 * FLOAT32)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "radam"},
        {"schedule": "plateau", "plateau_patience": 1, "eval_every": 1, "lr": 0.3, "clip": 0.0},
        {"accumulate": 2, "checkpoint_activations": True},
        {"clip_each": 0.1, "decay_all": True, "schedule": "linear"},
    ],
    ids=str,
)
@pytest.mark.parametrize("cut", [2, 5])
def test_resume_is_bit_for_bit(tmp_path: Path, changes: dict[str, object], cut: int) -> None:
    config = settings(steps=8, **changes)
    whole, half, again = small_model(), small_model(), small_model(3)
    fit(whole, Letters(), Letters(5), config, out=tmp_path / "whole")

    class Cut(Exception):
        pass

    def stop(event: Event) -> None:
        if (event.kind, event.step) == ("step", cut + 1):
            raise Cut

    saving = settings(steps=8, **changes, save_every=cut)
    with pytest.raises(Cut):
        fit(half, Letters(), Letters(5), saving, out=tmp_path / "two", on_event=stop)
    fit(again, Letters(), Letters(5), config, out=tmp_path / "two", resume=True)
    first, second = (checkpoint.load(tmp_path / name) for name in ("whole", "two"))
    for a, b in ((first.model, second.model), (first.optimizer, second.optimizer)):
        assert set(a) == set(b)
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert first.trainer["progress"]["plateau"] == second.trainer["progress"]["plateau"]
    clocked = ("seconds", "units_per_second", "seconds_left")
    logs = [
        [{k: v for k, v in line.items() if k not in clocked} for line in read_log(tmp_path / name / "log.jsonl")]
        for name in ("whole", "two")
    ]
    assert logs[0] == logs[1]
    assert len(logs[0]) >= 9  # 8 steps and the last evaluation


def test_plateau_lowers_the_learning_rate(tmp_path: Path) -> None:
    config = settings(steps=8, schedule="plateau", plateau_patience=1, eval_every=1, lr=1.0, clip=0.0, warmup=0)
    fit(small_model(), Letters(), Letters(5), config, out=tmp_path)
    lines = list(read_log(tmp_path / "log.jsonl"))
    rates = [line["lr"] for line in lines if line["kind"] == "step"]
    losses = [line["loss"] for line in lines if line["kind"] == "eval"]
    expected, rate, best = [], 1.0, math.inf
    for loss in losses:
        expected.append(rate)
        rate, best = (rate, loss) if loss < best * (1 - 1e-4) else (rate / 2, best)
    assert rates == expected
    assert rates[-1] < 1.0


def test_it_learns() -> None:
    model = small_model()
    result = fit(model, Letters(400), Letters(20, seed=9), settings(steps=120, batch_size=16))
    assert result.metrics["loss"] < 1.3 < math.log(11)  # one letter in ten is noise
    assert (result.step, result.stopped, result.checkpoint) == (120, "", None)


def test_events_and_log_agree(tmp_path: Path) -> None:
    events: list[Event] = []
    config = settings(steps=6, eval_every=2, save_every=3, log_every=2)
    result = fit(small_model(), Letters(), Letters(5), config, out=tmp_path, meta={"job": 1}, on_event=events.append)
    kinds = [(e.kind, e.step) for e in events]
    assert kinds == [
        ("start", 0), ("step", 1), ("step", 2), ("eval", 2), ("step", 3), ("save", 3), ("step", 4), ("eval", 4),
        ("step", 5), ("step", 6), ("eval", 6), ("save", 6), ("done", 6),
    ]  # fmt: skip
    assert events[0].values == {"steps": 6, "unit": "tokens"}
    assert events[0].text == "from the start; precision: float32, as requested"
    step = events[1].values
    assert set(step) == {"loss", "lr", "grad_norm", "units", "seconds", "units_per_second", "seconds_left"}
    assert step["units"] == Letters().units(Letters().batch(rows(0, 0, 8, 40)))
    assert step["lr"] == 0.005
    lines = [(line["kind"], line["step"]) for line in read_log(tmp_path / "log.jsonl")]
    assert lines == [("step", 2), ("eval", 2), ("step", 4), ("eval", 4), ("step", 6), ("eval", 6)]
    assert result.metrics == events[-3].values
    trainer = json.loads((result.checkpoint / "trainer.json").read_text())
    assert (trainer["meta"], trainer["data"]["train"]) == ({"job": 1}, "letters-40-12-0")


def test_keep_and_the_best(tmp_path: Path) -> None:
    """A huge rate makes the first evaluation the best one: it is kept in addition to the newest."""
    config = settings(steps=5, lr=3.0, clip=0.0, warmup=0, schedule="constant", eval_every=1, save_every=1, keep=1)
    result = fit(small_model(), Letters(), Letters(5), config, out=tmp_path)
    losses = {line["step"]: line["loss"] for line in read_log(tmp_path / "log.jsonl") if line["kind"] == "eval"}
    assert result.best_step == min(losses, key=losses.get) != 5
    assert checkpoint.names(tmp_path) == [f"step-{n:08d}" for n in (result.best_step, 5)]


def test_the_best_is_one_that_was_saved(tmp_path: Path) -> None:
    """The loss only rises, so step 1 has the lowest; step 2 is the best there is a checkpoint of."""
    config = settings(steps=6, lr=3.0, clip=0.0, warmup=0, schedule="constant", eval_every=1, save_every=2, keep=1)
    result = fit(small_model(), Letters(), Letters(5), config, out=tmp_path)
    losses = {line["step"]: line["loss"] for line in read_log(tmp_path / "log.jsonl") if line["kind"] == "eval"}
    assert min(losses, key=losses.get) == 1
    assert result.best_step == min((2, 4, 6), key=losses.get)
    assert f"step-{result.best_step:08d}" in checkpoint.names(tmp_path)


def test_dropout_and_order_are_functions_of_the_seed() -> None:
    runs = []
    for seed in (0, 0, 1):
        model = small_model()
        fit(model, Letters(), None, settings(seed=seed))
        runs.append(weights(model)["embed.weight"])
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_step_seeds_never_change() -> None:
    assert [step_seed(*n) for n in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2**64 - 1, 10**9, 63))] == PINNED
    assert len({step_seed(s, n, r) for s in range(5) for n in range(50) for r in range(4)}) == 1000


def test_the_caller_is_left_alone() -> None:
    model = small_model().eval()
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    fit(model, Letters(), Letters(5), settings())
    assert torch.equal(torch.rand(3), wanted)
    assert not model.training


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"train": Letters(0)}, "the training data has no example"),
        (
            {"config": settings(eval_every=2)},
            "eval_every is 2, but there is no held-out data; accepted: 0, or pass valid",
        ),
        ({"meta": {"a": object()}}, "meta cannot be stored as JSON"),
        (
            {"group": ProcessGroup(0, 3, "ddp")},
            "batch_size is 8; accepted: a multiple of accumulate x processes = 1 x 3",
        ),
    ],
    ids=["data", "eval", "meta", "group"],
)
def test_refused_before_anything_runs(given: dict[str, object], sentence: str) -> None:
    usual = {"model": small_model(), "train": Letters(), "valid": None, "config": settings()}
    with pytest.raises(ValueError, match=f"^{sentence}"):
        fit(**(usual | given))


def test_forced_precision_reaches_the_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 itself may crash here, so the loss only looks at whether autocast is on."""
    from linnet.train import autocast

    monkeypatch.setattr(autocast, "measure_speedup", lambda *sizes: (2.0, ""))
    seen = []

    class Looks(LanguageModel):
        def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            seen.append(torch.is_autocast_enabled("cpu"))
            with torch.autocast("cpu", enabled=False):
                return super().loss(batch)

    fit(Looks(small_model().config), Letters(), Letters(5), settings(steps=2, autocast="bf16"))
    assert seen
    assert all(seen)


def trained(group: ProcessGroup, out: Path, steps: int, accumulate: int) -> dict[str, Tensor]:
    """Runs on every rank: six steps in float32 without dropout, an evaluation of 5 rows, a checkpoint."""
    torch.set_num_threads(1)
    model = small_model(dropout=0.0)
    config = settings(steps=steps, eps=1e-3, accumulate=accumulate, eval_every=2, save_every=3, schedule="constant")
    result = fit(model, Letters(), Letters(5), config, out=out, resume=True, group=group)
    return {"loss": torch.tensor(result.loss), "valid": torch.tensor(result.metrics["loss"])}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_train_what_one_does(tmp_path: Path, strategy: str) -> None:
    """Steps 1 to 3 with two processes, 4 to 6 with one, against one process throughout; and vice versa."""
    wanted = trained(ProcessGroup.alone(), tmp_path / "one", 6, 1)
    for first, second in ((2, 1), (1, 2)):
        out = tmp_path / f"{first} then {second}"
        for world, steps in ((first, 3), (second, 6)):
            results = together(world, strategy, tmp_path / f"{first}{world}", trained, out, steps, 2)
        close(results[0], wanted, 10 * FLOAT32)
        one, two = (checkpoint.load(path) for path in (tmp_path / "one", out))
        close(two.model, one.model, 10 * FLOAT32)
        assert set(two.optimizer) == set(one.optimizer)
        lines = [[x["loss"] for x in read_log(path / "log.jsonl")] for path in (tmp_path / "one", out)]
        # the run in two parts ends its first part with an evaluation of its own, at step 3
        assert lines[1][:4] + lines[1][5:] == pytest.approx(lines[0], rel=10 * FLOAT32)
