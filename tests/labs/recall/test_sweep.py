"""The sweep: which runs it makes, that a killed one goes on, that search seeds only choose, and what its table says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linnet.labs.core import read_rows
from linnet.labs.core.clock import CLOCK
from linnet.labs.core.results import ROWS, make_row
from linnet.labs.core.runner import Hooks
from linnet.labs.recall.config import TEST_ROWS, RecallConfig
from linnet.labs.recall.document import document
from linnet.labs.recall.sweep import SEARCH_SEED, Plan, chosen, summarise
from linnet.labs.recall.work import cost, run_plan
from linnet.layers import MIXERS

SMALL = RecallConfig(d_model=16, seq_len=16, pairs=2, vocab_size=32, steps=2, batch_size=4)
PLAN = Plan(
    mixers=("softmax", "elu"), states=(680,), lengths=(16,), pairs=(2,), rates=(1e-3, 1e-2), seeds=2, base=SMALL
)


@pytest.fixture(scope="module", autouse=True)
def few_rows() -> Iterator[None]:
    """Nothing is learned here, so few held-out sequences are scored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linnet.labs.recall.run.TEST_ROWS", 16)
        yield


def made_up(config: RecallConfig, accuracy: float, choosing: float | None = None, step: int | None = None) -> Any:
    metrics = {"accuracy": accuracy, "chosen_by": accuracy if choosing is None else choosing, "transition": step}
    metrics |= {"mixer_bytes": 100, "state_bytes": 200}
    return make_row(config.to_dict(), metrics, 1.0, {"parameters": 10})


def test_a_mixer_with_a_state_of_its_own_runs_once_the_others_at_every_size() -> None:
    cells = Plan().cells()
    names = [cell.mixer for cell in cells]
    assert names.count("softmax") == 1
    assert all(names.count(name) == 3 for name in ("based", "rebased", "elu", "delta"))
    assert len(Plan().runs()) == 13 * 3 * 3


def test_rows_are_kept_and_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    received: list[Any] = []
    assert run_plan(PLAN, tmp_path, hooks=Hooks(start=received.append)) == []
    rows = read_rows(tmp_path / ROWS)
    assert len(rows) == 8 == len(received[0])
    before = (tmp_path / ROWS).read_bytes()
    run_plan(PLAN, tmp_path, hooks=Hooks(start=received.append))
    assert received[1] == []
    assert (tmp_path / ROWS).read_bytes() == before
    assert (tmp_path / CLOCK).exists()


def test_a_killed_sweep_finds_the_same_rows(tmp_path: Path) -> None:
    run_plan(PLAN, tmp_path / "whole")
    torn = shutil.copytree(tmp_path / "whole", tmp_path / "torn")
    lines = (torn / ROWS).read_bytes().splitlines(keepends=True)
    (torn / ROWS).write_bytes(b"".join(lines[:3]) + lines[3][:40])  # killed in the middle of a line
    run_plan(PLAN, torn)

    def result(folder: Path) -> dict[str, Any]:
        return {repr(row["config"]): row["metrics"] for row in read_rows(folder / ROWS)}

    assert result(torn) == result(tmp_path / "whole")


def test_search_seeds_choose_the_rate_and_are_not_reported(tmp_path: Path) -> None:
    plan = Plan(
        mixers=("elu",), states=(680,), lengths=(16,), pairs=(2,), rates=(1e-3, 1e-2), seeds=2, search=1, base=SMALL
    )
    run_plan(plan, tmp_path)
    configs = [RecallConfig.from_dict(row["config"]) for row in read_rows(tmp_path / ROWS)]
    searches = [config for config in configs if config.stop_at]
    assert {config.seed for config in searches} == {SEARCH_SEED}
    assert len(searches) == 2
    assert sorted(config.seed for config in configs if not config.stop_at) == [0, 1]
    (cell,) = summarise(read_rows(tmp_path / ROWS))
    assert (cell.accuracy.seeds, cell.rates) == (2, 1)


def test_the_rate_is_chosen_by_other_sequences_than_those_reported() -> None:
    """0.01 is better on the sequences that are reported, 0.001 on those for choosing: 0.001 is taken."""
    cell = SMALL.replace(mixer="elu")
    rows = [made_up(cell.replace(lr=1e-2, seed=s), 0.9, choosing=0.1) for s in range(3)]
    rows += [made_up(cell.replace(lr=1e-3, seed=s), 0.5, choosing=0.6, step=100 * (s + 1)) for s in range(3)]
    (result,) = summarise(rows)
    assert result.config.lr == 1e-3
    assert (result.accuracy.mean, result.rates, result.transition, result.solved) == (0.5, 2, 200, 0.0)
    search = [made_up(cell.replace(lr=lr, seed=SEARCH_SEED, stop_at=0.99), lr) for lr in (1e-3, 1e-2)]
    assert chosen(cell, search) == 1e-2
    with pytest.raises(ValueError, match="no search run of elu"):
        chosen(cell, rows)


def test_window_of_rates_is_over_the_means() -> None:
    cell = SMALL.replace(mixer="elu")
    by_rate = {1e-3: (0.99, 0.97), 1e-2: (1.0, 1.0), 1e-1: (0.99, 0.2)}
    rows = [made_up(cell.replace(lr=lr, seed=s), a) for lr, pair in by_rate.items() for s, a in enumerate(pair)]
    (result,) = summarise(rows)
    assert result.window == pytest.approx(1.0)
    assert document(rows, 2.0)["cells"][0]["accuracy"]["mean"] == 1.0


def test_long_runs_begin_first(tmp_path: Path) -> None:
    base = SMALL.to_dict()
    assert cost(base | {"steps": 4}) > cost(base)
    assert cost(base | {"mixer": "mamba"}) > cost(base)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mixers": ("based", "rebazed")}, "did you mean 'rebased'"),
        ({"mixers": ()}, "mixers has no value"),
        ({"seeds": 0}, "seeds is 0"),
        ({"states": (17,)}, "cannot be given a state of 17 bytes"),
        ({"lengths": (300,)}, "not above seq_len 300"),
        ({"pairs": (99,)}, "use at most 16 pairs"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Plan(**change)


def test_every_mixer_can_be_trained_on_recall() -> None:
    """One step of each: the sweep takes any name of MIXERS."""
    for name in MIXERS:
        RecallConfig(mixer=name).model()


@pytest.mark.slow
def test_ray_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.labs.recall.run.TEST_ROWS", TEST_ROWS)  # as in the processes of Ray
    ray = pytest.importorskip("ray")
    try:
        assert run_plan(PLAN, tmp_path / "ray", workers="ray") == []
    finally:
        ray.shutdown()
    run_plan(PLAN, tmp_path / "here")
    ours, theirs = (
        {repr(row["config"]): row["metrics"] for row in read_rows(tmp_path / name / ROWS)} for name in ("here", "ray")
    )
    assert ours == theirs
