"""ProcessGroup: two processes take the steps of one, whatever the strategy, and their checkpoints are each other's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from linnet.data import order
from linnet.models.config import ModelConfig
from linnet.models.language import LanguageModel
from linnet.train import TrainConfig, fit, read_log
from linnet.train.distributed import VARIABLES, ProcessGroup
from tests.train.processes import close, together

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 has an opinion on fork

# Sums in another order, over several steps and squared in the optimizer: on plain torch 2.1e-5 was seen in float32.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
ROWS, LENGTH, VOCABULARY, BATCH = 32, 12, 11, 8
SHARED = ("ddp", "fsdp")


class Tiny(LanguageModel):
    """Odd sizes, so that two processes hold slices of different length; a tied embedding, a map with parameters."""

    def __init__(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        torch.manual_seed(seed)
        layers = {"n_layers": 2, "mixer": ["elu", "rebased"], "d_model": 15, "n_heads": 3}
        super().__init__(ModelConfig(vocab_size=VOCABULARY, **layers))
        self.to(dtype)

    @torch.no_grad()
    def metrics(self, batch: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Not by way of `loss` or a call of the model: parameters outside the blocks must be whole here too."""
        out, _ = self.backbone(self.embed(batch["tokens"]), output_state=False)
        return {"loss": (out.abs().sum(), torch.tensor(out.numel()))}


def batch(rows: list[int]) -> dict[str, Tensor]:
    """Rows with 1 to LENGTH scored tokens, so that ranks do not count alike."""
    text = torch.stack([torch.randint(VOCABULARY, (LENGTH + 1,), generator=_seeded(row)) for row in rows])
    scored = torch.arange(LENGTH) <= torch.tensor(rows)[:, None] % LENGTH
    return {"tokens": text[:, :-1], "targets": text[:, 1:].where(scored, torch.tensor(-100))}


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Run:
    """The training loop at its plainest."""

    def __init__(self, group: ProcessGroup, dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        self.group, self.model = group, Tiny(dtype, seed)
        self.loss = group.wrap(self.model)
        # eps well above rounding: Adam divides by the gradient's own size, and would make noise of a zero gradient
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, eps=1e-3, weight_decay=0.1, fused=True)

    def steps(self, first: int, last: int, accumulate: int = 1, clip: float = 0.0, each: bool = False) -> Tensor:
        """(loss, norm of the gradient) of each step."""
        return torch.tensor([self._step(step, accumulate, clip, each) for step in range(first, last)]).double()

    def _step(self, step: int, accumulate: int, clip: float, each: bool) -> tuple[float, float]:
        mine = self.group.share(order.rows(0, step, BATCH, ROWS))
        size = len(mine) // accumulate
        nats = count = torch.zeros(())
        for i in range(accumulate):
            with self.group.no_sync(i < accumulate - 1):
                total, n = self.loss(self.group.shard(batch(mine[i * size : (i + 1) * size])))
                total.backward()
            nats, count = nats + total.detach(), count + n
        nats, count = self.group.sum(nats, count)
        norm = self.group.clip(self.model, count, clip, each=each)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(nats / count), norm

    def state(self) -> dict[str, Tensor]:
        moments = self.group.optimizer_state(self.model, self.optimizer)
        model = self.group.model_state(self.model)
        return {f"model/{k}": v for k, v in model.items()} | {f"optimizer/{k}": v for k, v in moments.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        parts = [{k.removeprefix(p): v for k, v in state.items() if k.startswith(p)} for p in ("model/", "optimizer/")]
        self.group.load_model(self.model, parts[0])
        self.group.load_optimizer(self.model, self.optimizer, parts[1])


def train(group: ProcessGroup, dtype: torch.dtype, *how: Any) -> dict[str, Tensor]:
    run = Run(group, dtype, seed=group.rank)  # what rank 1 starts with must not matter
    return {"log": run.steps(0, 6, *how), **run.state()}


PLAIN, PIECES, EACH = (1, 0.0, False), (2, 0.02, False), (1, 0.005, True)  # accumulate, clip, each


@pytest.mark.parametrize("strategy", [*SHARED, "sequence"])
@pytest.mark.parametrize(
    ("how", "dtype"),
    [(PLAIN, torch.float64), (PIECES, torch.float64), (EACH, torch.float64), (PIECES, torch.float32)],
    ids=str,
)
def test_two_processes_take_the_steps_of_one(
    strategy: str, how: tuple[int, float, bool], dtype: torch.dtype, tmp_path: Path
) -> None:
    wanted = train(ProcessGroup.alone(), dtype, 1, *how[1:])
    first, second = together(2, strategy, tmp_path, train, dtype, *how)
    assert torch.equal(second.pop("log"), first["log"])
    assert second == {}  # rank 0 alone holds the whole state
    close(first, wanted, TOLERANCE[dtype])


def test_clipping_is_what_torch_does() -> None:
    """The one process that the others are compared with."""
    ours, theirs = Tiny(), Tiny()
    for model in (ours, theirs):
        model.loss(batch([3, 4]))[0].backward()
    for p in theirs.parameters():
        p.grad /= 10
    norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.02)
    assert ProcessGroup.alone().clip(ours, 10, 0.02) == pytest.approx(float(norm), rel=1e-12)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-4)  # torch adds 1e-6 to the norm


def save(group: ProcessGroup, path: Path) -> dict[str, Tensor]:
    """Three steps, an evaluation, and what a checkpoint would hold."""
    run = Run(group)
    run.steps(0, 3)
    total, n = run.model.metrics(batch(group.share(list(range(4)))))["loss"]
    state = run.state()
    if group.rank == 0:
        save_file(state, path)
    total, n = group.sum(total, n)
    return {"metric": total / n}


def resume(group: ProcessGroup, path: Path) -> dict[str, Tensor]:
    run = Run(group, seed=5)
    run.load(load_file(path) if group.rank == 0 else {})
    return {"log": run.steps(3, 6), **run.state()}


@pytest.mark.parametrize("strategy", SHARED)
def test_a_checkpoint_resumes_with_any_number_of_processes(strategy: str, tmp_path: Path) -> None:
    wanted = Run(ProcessGroup.alone())
    log = wanted.steps(0, 6)[3:]
    one, two = tmp_path / "one", tmp_path / "two"
    metrics = [*together(2, strategy, tmp_path / "a", save, two), save(ProcessGroup.alone(), one)]
    assert all(m["metric"].item() == pytest.approx(metrics[-1]["metric"].item(), rel=1e-10) for m in metrics)
    files = load_file(one), load_file(two)
    close(files[1], files[0], TOLERANCE[torch.float64])
    for path, group in ((one, strategy), (two, "alone"), (two, {"ddp": "fsdp", "fsdp": "ddp"}[strategy])):
        again = together(1 if group == "alone" else 2, group, tmp_path / group, resume, path)[0]
        close(again, {"log": log, **wanted.state()}, TOLERANCE[torch.float64])


def test_loading_takes_copies() -> None:
    run = Run(ProcessGroup.alone())
    run.steps(0, 1)
    state = {name: x.clone() for name, x in run.state().items()}
    kept = {name: x.clone() for name, x in state.items()}
    other = Run(ProcessGroup.alone(), seed=1)
    other.load(state)
    other.steps(1, 2)
    assert all(torch.equal(state[name], kept[name]) for name in kept)


def test_optimizer_names_are_those_of_the_model() -> None:
    run = Run(ProcessGroup.alone())
    run.steps(0, 1)
    names = {n for n, _ in run.model.named_parameters()}
    keys = {"step", "exp_avg", "exp_avg_sq"}
    assert set(run.group.optimizer_state(run.model, run.optimizer)) == {f"{n}.{k}" for n in names for k in keys}


def refusals(group: ProcessGroup) -> dict[str, Tensor]:
    """Every rank raises the same sentence, so that none is left waiting."""
    run = Run(group)
    whole = group.model_state(run.model)
    cut = {name: x[:-1] if name == "embed.weight" else x for name, x in whole.items()}
    less = {name: x for name, x in whole.items() if name != "embed.weight"}
    for state, sentence in ((cut, r"embed.weight.*\[10, 15\]"), (less, "lacks 'embed.weight'")):
        with pytest.raises(ValueError, match=sentence):
            group.load_model(run.model, state if group.rank == 0 else {})
    with pytest.raises(ValueError, match=r"'head.step' belongs to no parameter"):
        group.load_optimizer(run.model, run.optimizer, {"head.step": torch.zeros(())} if group.rank == 0 else {})
    run.model.spare = torch.nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match=r"spare and 0 other parameters do not contribute to the loss.*requires_grad_"):
        run.steps(0, 1)
    return {}


@pytest.mark.parametrize("strategy", SHARED)
def test_what_does_not_fit_is_refused_by_every_rank(strategy: str, tmp_path: Path) -> None:
    together(2, strategy, tmp_path, refusals)


def sums(group: ProcessGroup) -> dict[str, Tensor]:
    big = torch.tensor(2**52 + 1) if group.rank else torch.tensor(1)
    counts, pair = group.sum(big, torch.tensor([0.5, group.rank], dtype=torch.float32))
    assert counts.dtype == torch.int64
    group.barrier()
    return {"counts": counts, "pair": pair, "note": torch.tensor(group.broadcast_json({"a": [group.rank + 7]})["a"])}


def test_sums_keep_shape_and_dtype_and_count_exactly(tmp_path: Path) -> None:
    for result in together(2, "ddp", tmp_path, sums):
        assert result["counts"].item() == 2**52 + 2
        assert result["pair"].tolist() == [1.0, 1.0]
        assert result["note"].tolist() == [7]
    x = torch.ones(2)
    assert ProcessGroup.alone().sum(x)[0] is x


def test_shares_are_contiguous_and_equal() -> None:
    rows = list(range(6))
    assert [ProcessGroup(r, 3, "ddp").share(rows) for r in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert ProcessGroup(1, 3, "sequence").share(rows) == ProcessGroup.alone().share(rows) == rows
    with pytest.raises(ValueError, match="6 rows does not divide over 4 processes; use a multiple of 4"):
        ProcessGroup(0, 4, "fsdp").share(rows)


class Rows:
    """A source of the rows above."""

    length, unit, fingerprint = ROWS, "tokens", "rows"

    def batch(self, rows: list[int]) -> dict[str, Tensor]:
        return batch(rows)

    def units(self, batch: dict[str, Tensor]) -> int:
        return batch["tokens"].numel()


def fitted(group: ProcessGroup, out: Path, steps: int, recompute: bool = False) -> dict[str, Tensor]:
    """The real loop: steps, evaluations on rows that do not divide, a checkpoint, resumed if there is one."""
    every = {"eval_every": 2, "eval_rows": 7, "checkpoint_activations": recompute}
    config = TrainConfig(steps=steps, batch_size=BATCH, schedule="constant", eps=1e-3, autocast="none", **every)
    fit(Tiny(seed=group.rank), Rows(), Rows(), config, out=out, resume=True, group=group)
    return {}


def read(out: Path) -> dict[str, Tensor]:
    folder = out / (out / "latest").read_text(encoding="utf-8").strip()
    log = [e for e in read_log(out / "log.jsonl") if e["kind"] in ("step", "eval")]
    values = {"losses": torch.tensor([e["loss"] for e in log], dtype=torch.float64)}
    return values | load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


@pytest.mark.parametrize(
    ("groups", "recompute"),
    [(("ddp", "alone"), False), (("fsdp", "ddp"), True), (("alone", "fsdp"), False), (("sequence", "sequence"), True)],
    ids=str,
)
def test_fit_resumes_with_another_number_of_processes(groups: tuple[str, str], recompute: bool, tmp_path: Path) -> None:
    fitted(ProcessGroup.alone(), tmp_path / "one", 4)
    for steps, strategy in zip((2, 4), groups, strict=True):
        world = 1 if strategy == "alone" else 2
        together(world, strategy, tmp_path / f"{steps}", fitted, tmp_path / "two", steps, recompute)
    close(read(tmp_path / "two"), read(tmp_path / "one"), TOLERANCE[torch.float64])


def environment(monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)


ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ({}, {"RANK": "0", "WORLD_SIZE": "1", **ADDRESS}):
        environment(monkeypatch, **given)
        group = ProcessGroup.from_env("fsdp")
        assert (group.rank, group.world, group.strategy) == (0, 1, "alone")
        group.barrier()
        group.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"RANK": "0"},
            "^RANK is set but WORLD_SIZE, MASTER_ADDR, MASTER_PORT not; start with torchrun, or unset RANK$",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "^RANK, WORLD_SIZE are set but MASTER_ADDR, MASTER_PORT not"),
        ({"RANK": "2", "WORLD_SIZE": "2", **ADDRESS}, "RANK is 2 with WORLD_SIZE 2; accepted: from 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2", **ADDRESS}, "RANK is 'x'; accepted: an integer"),
    ],
)
def test_half_an_environment_is_refused(given: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, **given)
    with pytest.raises(ValueError, match=sentence):
        ProcessGroup.from_env()


def test_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown strategy 'fsdp2'; did you mean 'fsdp'"):
        ProcessGroup.from_env("fsdp2")


SCRIPT = """
import sys, time
from contextlib import suppress
from pathlib import Path
from linnet.train.distributed import ProcessGroup

group = ProcessGroup.from_env(sys.argv[1])  # first, as in a script that imports nothing of torch.distributed before
from safetensors.torch import save_file
from tests.train.test_distributed import Run

run = Run(group)
result = {"log": run.steps(0, 3), **run.state()}
if group.rank == 0:
    save_file(result, sys.argv[2])
group.barrier()
group.close()  # while run is alive

def threads():  # none where there is no /proc
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            if "gloo" in (name := path.read_text()):
                yield name

until = time.monotonic() + 5  # one that has been joined is listed a moment longer
while list(threads()) and time.monotonic() < until:
    time.sleep(0.01)
assert list(threads()) == [], "they abort the process if they want Python when Python has ended"
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["auto", "fsdp"])
def test_under_torchrun(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    command = [*launch, str(tmp_path / "script.py"), strategy, str(tmp_path / "out")]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = Run(ProcessGroup.alone())
    log = wanted.steps(0, 3)
    close(load_file(tmp_path / "out"), {"log": log, **wanted.state()}, TOLERANCE[torch.float64])
