"""The table's rows: what is trained from what, kept in which order, and the same after a kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.errors import StateError
from linnet.labs.core import Row, Store, make_row, read_rows
from linnet.labs.core.clock import CLOCK, Clock, minutes, read_runs
from linnet.labs.core.results import ROWS
from linnet.labs.core.runner import Hooks
from linnet.labs.icl.evaluate import CHUNK, evaluate_model, measure
from linnet.labs.icl.noise import Noise
from linnet.labs.icl.recipes import Cell, Trained, train_cell
from linnet.labs.icl.regression import Regression
from linnet.labs.icl.table import MODELS, run_table, sums_to_tune_on
from linnet.labs.icl.table_units import BASELINES, Chain, Plan, Rules, make_units
from linnet.regress.gram import Gram
from linnet.regress.model import ICLTransformer
from tests.labs.core.stand_in import KILL, train

ROOT = Path(__file__).resolve().parents[3]
SMALL = Plan(kinds=("diag", "gd++"), layers=(2, 4), noise=("U5", "{1,3}"), sequences=300)
CHAIN = Plan(kinds=("diag",), layers=(4,), noise=("U5",), sequences=300)
CONST_RR_U5, ERRORS = 0.361, 4.0  # the expectation, and how many standard errors from it are accepted


def result(out: Path) -> dict[tuple[Any, ...], Any]:
    """Metrics by what the row is of; refuses a row that is there twice."""
    rows = read_rows(out / ROWS)
    named = {tuple(sorted(row["config"].items())): row["metrics"] for row in rows}
    assert len(named) == len(rows)
    return named


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert run_table(SMALL, out, train=train) == []
    return out


def test_every_depth_of_a_chain_and_every_baseline_has_a_row(whole: Path) -> None:
    rows = read_rows(whole / ROWS)
    cells = {(row["config"]["kind"], row["config"]["layers"]) for row in rows if "layers" in row["config"]}
    assert cells == {(kind, layers) for kind in ("diag", "gd++") for layers in (1, 2, 3, 4)}
    others = [(row["config"]["kind"], row["config"]["noise"]) for row in rows if "layers" not in row["config"]]
    assert sorted(others) == sorted((name, noise) for name in BASELINES for noise in SMALL.noise)
    assert len(rows) == 2 * 4 * 2 + len(others)


def test_a_row_is_the_score_of_its_saved_model(whole: Path) -> None:
    model = ICLTransformer.load(whole / MODELS / "gd++-1,3-L3-s0.safetensors")
    score = asdict(evaluate_model(model, Noise.parse("1,3"), 300))
    wanted = {"experiment": "icl-table", "kind": "gd++", "noise": "{1,3}", "layers": 3, "seed": 0, "recipe": "fast"}
    (row,) = [row for row in read_rows(whole / ROWS) if wanted.items() <= row["config"].items()]
    assert row["metrics"] == score
    assert row["info"]["steps"] == 3
    assert row["seconds"] >= row["info"]["train_seconds"]


def test_models_grow_from_the_one_before(whole: Path) -> None:
    shallow, deep = (ICLTransformer.load(whole / MODELS / f"diag-U5-L{k}-s0.safetensors") for k in (3, 4))
    assert deep.p[:3].equal(shallow.p)
    assert deep.p.shape[0] == 4


def test_baselines_are_measured_as_the_models_are(tmp_path: Path) -> None:
    plan = Plan(kinds=("diag",), layers=(1,), noise=("U5",), sequences=4000)
    run_table(plan, tmp_path, train=train)
    rows = {row["config"]["kind"]: row for row in read_rows(tmp_path / ROWS)}
    const, ada, tuned, bayes = (rows[name]["metrics"] for name in ("const_rr", "ada_rr", "tuned_rr", "bayes"))
    assert abs(const["sharp"] - CONST_RR_U5) < ERRORS * const["sharp_se"]
    assert bayes["sharp"] < tuned["sharp"] < ada["sharp"] < const["sharp"] < rows["ols"]["metrics"]["sharp"]
    assert tuned["loss"] <= ada["loss"]  # tuned on these very sequences, and AdaRR is one of its settings
    assert rows["tuned_rr"]["info"].keys() == {"c", "cap"}
    assert {row["metrics"]["oracle"] for row in rows.values()} == {const["oracle"]}  # the same sequences for all
    assert rows["gd_ada_rr"]["metrics"]["sharp"] == pytest.approx(ada["sharp"], rel=0.05)


def test_tuning_sees_the_test_sequences() -> None:
    problem, count, seen = Regression(Noise.parse("U5")), CHUNK + 5, []

    def zero(gram: Gram) -> Tensor:
        seen.append(gram.s)
        return gram.alpha * 0

    measure(zero, problem, count)
    gram, weights = sums_to_tune_on(problem, count)
    assert gram.s.equal(torch.cat(seen))
    assert weights.shape == (count, 10)


@pytest.mark.parametrize("stop_after", [1, 3, 6])
def test_stopped_and_started_again_gives_the_same_rows(whole: Path, tmp_path: Path, stop_after: int) -> None:
    rows: list[Row] = []

    def stop(row: Row) -> None:
        rows.append(row)
        config = row["config"]
        name = f"{config['kind']}-{config['noise'].strip('{}')}-L{config['layers']}-s0.safetensors"
        assert (tmp_path / MODELS / name).is_file()  # the model is there before its row is
        if len(rows) == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_table(SMALL, tmp_path, train=train, hooks=Hooks(row=stop))
    assert len(read_rows(tmp_path / ROWS)) == stop_after
    again: list[Row] = []
    run_table(SMALL, tmp_path, train=train, hooks=Hooks(row=again.append))
    assert len(again) == len(result(whole)) - stop_after
    assert result(tmp_path) == result(whole)
    run_table(SMALL, tmp_path, train=train, hooks=Hooks(row=lambda row: pytest.fail("nothing was missing")))


def test_kill_9_in_the_middle_of_a_chain_then_the_same_rows_on_two_processes(whole: Path, tmp_path: Path) -> None:
    out, note = tmp_path / "out", tmp_path / "kill"
    note.touch()
    code = (
        "from pathlib import Path\nfrom linnet.labs.icl.table import run_table\n"
        "from tests.labs.core.stand_in import train\nfrom tests.labs.icl.test_table import SMALL\n"
        f"run_table(SMALL, Path({str(out)!r}), train=train)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        KILL: str(note),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(read_rows(out / ROWS)) == 3
    with (out / ROWS).open("ab") as file:
        file.write(b'{"format": 1, "config": {"experiment": "icl-ta')  # as if killed while it wrote
    (out / MODELS / ".diag-U5-L4-s0.safetensors.0123.tmp").write_bytes(b"half")
    assert run_table(SMALL, out, train=train, workers=2) == []
    assert result(out) == result(whole)
    assert list((out / MODELS).glob(".*")) == []
    assert [run["rows"] for run in read_runs(out / CLOCK)] == [3, len(result(whole)) - 3]


def test_a_model_that_was_deleted_is_trained_again_without_a_second_row(tmp_path: Path) -> None:
    run_table(Plan(**{**asdict(CHAIN), "layers": (3,)}), tmp_path, train=train)
    lost = tmp_path / MODELS / "diag-U5-L2-s0.safetensors"
    before = ICLTransformer.load(lost)
    lost.unlink()
    again: list[Row] = []
    assert run_table(CHAIN, tmp_path, train=train, hooks=Hooks(row=again.append)) == []
    assert [row["config"]["layers"] for row in again] == [4]
    assert ICLTransformer.load(lost).p.equal(before.p)


def test_a_saved_model_of_another_cell_is_refused_and_named(tmp_path: Path) -> None:
    run_table(Plan(**{**asdict(CHAIN), "layers": (3,)}), tmp_path, train=train)
    models = tmp_path / MODELS
    (models / "diag-U5-L3-s0.safetensors").write_bytes((models / "diag-U5-L2-s0.safetensors").read_bytes())
    (failure,) = run_table(CHAIN, tmp_path, train=train)
    assert failure.unit == "diag on U5, seed 0"
    assert "holds a diag model of 2 layers, not diag of 3; delete it" in failure.error


def test_the_paper_recipe_trains_what_is_asked_for_only(tmp_path: Path) -> None:
    plan = Plan(kinds=("diag",), layers=(2, 4), noise=("U5",), seeds=2, recipe="paper", sequences=300)
    assert run_table(plan, tmp_path, train=train) == []
    rows = [row["config"] for row in read_rows(tmp_path / ROWS) if "layers" in row["config"]]
    assert [(row["layers"], row["seed"]) for row in rows] == [(4, 0), (2, 0), (4, 1), (2, 1)]


@pytest.mark.parametrize(
    ("kind", "recipe", "depths"), [("diag", "fast", [1, 2, 3]), ("full", "fast", [3]), ("diag", "paper", [3])]
)
def test_a_single_model_trains_no_shallower_one_without_need(
    kind: str, recipe: str, depths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, shares = [], []

    def train_one(cell: Cell, *previous_and_report: Any) -> Trained:
        *previous, report = previous_and_report
        assert not seen or previous[0] is not None
        seen.append(cell.layers)
        report(1.0)
        return Trained(ICLTransformer(cell.config), {})

    for name in ("grow.train", "full.train", "recipes.paper"):
        monkeypatch.setattr(f"linnet.labs.icl.{name}", train_one)
    assert train_cell(Cell(kind, "U5", 3, recipe=recipe), None, shares.append).model.config.layers == 3
    assert seen == depths
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_units_are_those_with_something_left_the_longest_first(tmp_path: Path) -> None:
    plan = Plan(kinds=("gd++", "full"), layers=(2,), noise=("U5",), sequences=300)
    with Store(tmp_path / "rows.jsonl") as store:
        first, second, rules = make_units(plan, tmp_path, store)
        assert isinstance(first, Chain)
        assert isinstance(second, Chain)
        assert isinstance(rules, Rules)
        assert (first.kind, second.kind) == ("full", "gd++")
        assert (first.depths, second.depths) == ((2,), (1, 2))  # FULL grows from nothing
        for config in (second.config(1), *first.missing(), rules.config("bayes")):
            store.append(make_row(config, {}, 0.0))
        left, others = make_units(plan, tmp_path, store)
        assert left.missing() == [second.config(2)]
        assert len(others.missing()) == len(BASELINES) - 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sequences": 301}, "holds rows of sequences 300, and 301 is requested; name another folder with --out"),
        ({"recipe": "paper"}, "holds rows of recipe fast, and paper is requested"),
    ],
)
def test_rows_of_another_protocol_are_refused(whole: Path, change: dict[str, Any], expected: str) -> None:
    before = (whole / ROWS).read_bytes()
    with pytest.raises(StateError, match=expected):
        run_table(Plan(**{**asdict(SMALL), **change}), whole, train=train)
    assert (whole / ROWS).read_bytes() == before


def test_rows_of_another_experiment_are_refused(tmp_path: Path) -> None:
    with Store(tmp_path / ROWS) as store:
        store.append(make_row({"experiment": "recall"}, {}, 0.0))
    with pytest.raises(StateError, match="holds rows of experiment recall, not icl-table"):
        run_table(SMALL, tmp_path, train=train)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kinds": ("digg",)}, "unknown model 'digg'; did you mean 'diag'"),
        ({"recipe": "slow"}, "unknown recipe 'slow'"),
        ({"layers": (1, 9)}, "layers is 9; accepted: 1 to 8"),
        ({"layers": (0,)}, "layers is 0; accepted: 1 to 8"),
        ({"noise": ("V5",)}, "noise is 'V5'; accepted: 'U5' for uniform"),
        ({"noise": ("1,3",)}, "noise is '1,3'; accepted: its canonical name, '{1,3}'"),
        ({"seeds": 0}, "seeds is 0; accepted: 1 or more"),
        ({"seeds": 1001}, "seeds is 1001; accepted: 1 to 1000"),
        ({"sequences": 1}, "sequences is 1; accepted: 2 or more"),
        ({"layers": ()}, "nothing is requested"),
    ],
)
def test_a_plan_of_something_else_is_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        Plan(**{**asdict(SMALL), **change})


def test_wall_clock_adds_up_over_runs(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    for seconds in (30.0, 90.0):
        clock = Clock(path, 2)
        clock.began -= seconds
        clock.tick()
        clock.tick(2)
    assert minutes(path) == pytest.approx(2.0, abs=0.1)
    assert [run["rows"] for run in read_runs(path)] == [3, 3]
    path.write_text('{"format": 2, "runs": []}')
    with pytest.raises(StateError, match=r"format is 2; accepted: 1; delete it"):
        minutes(path)
