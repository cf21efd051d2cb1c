"""The runner: the same rows however they are run, and a unit that fails or dies takes nobody with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from linnet.labs.core import Failure, Row, Store, read_rows, run_all
from linnet.labs.core.runner import check_workers, sentence
from tests.labs.core.units import Count, count

ROOT = Path(__file__).resolve().parents[3]
UNITS = [Count("a"), Count("b", top=2), Count("c", top=1)]
WANTED = {("a", 1, 1), ("a", 2, 4), ("a", 3, 9), ("b", 1, 1), ("b", 2, 4), ("c", 1, 1)}
PATIENCE = 300.0  # seconds until something that should happen at once counts as not happening


def what(rows: list[Row]) -> list[tuple[str, int, int]]:
    return [(row["config"]["name"], row["config"]["i"], row["metrics"]["square"]) for row in rows]


def run(path: Path, units: list[Count], workers: int | str) -> tuple[list[Row], list[Failure]]:
    with Store(path) as store:
        failures = run_all(units, count, store, workers=workers)
    return read_rows(path), failures


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def until(condition: object) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_row_of_every_unit_in_the_order_of_the_unit(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(2)
    try:
        rows, failures = run(tmp_path / "rows.jsonl", UNITS, workers)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert failures == []
    assert set(what(rows)) == WANTED
    assert len(rows) == len(WANTED)
    assert [i for name, i, _ in what(rows) if name == "a"] == [1, 2, 3]
    assert {row["info"]["threads"] for row in rows} == {1}
    processes = {row["info"]["process"] for row in rows}
    assert processes == {os.getpid()} if workers == 1 else os.getpid() not in processes
    assert workers == 1 or {row["info"]["omp"] for row in rows} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_unit_that_fails_is_named_and_the_others_go_on(tmp_path: Path, workers: int) -> None:
    units = [Count("a", fail_at=2), *UNITS[1:]]
    received: list[Failure] = []
    with Store(tmp_path / "rows.jsonl") as store:
        failures = run_all(units, count, store, workers=workers, on_failure=received.append)
        assert set(what(store.rows())) == WANTED - {("a", 2, 4), ("a", 3, 9)}
    assert received == failures
    assert [failure.unit for failure in failures] == ["count a"]
    assert failures[0].error.startswith("ValueError: no 2 for a (units.py:")


def test_a_worker_that_dies_loses_its_unit_only(tmp_path: Path) -> None:
    rows, failures = run(tmp_path / "rows.jsonl", [Count("a", die_at=3), Count("d", die_at=1), *UNITS[1:]], 2)
    assert set(what(rows)) == WANTED - {("a", 3, 9)}
    assert sorted(failures) == [
        ("count a", "its process died (exit code -9)"),
        ("count d", "its process died (exit code -9)"),
    ]


def test_rows_are_stored_as_they_come_and_ctrl_c_ends_the_workers(tmp_path: Path) -> None:
    unit = Count("a", sleep_at=3, note=tmp_path / "pid")

    def stop(row: Row) -> None:
        if row["config"]["i"] == 2:
            raise KeyboardInterrupt

    with Store(tmp_path / "rows.jsonl") as store, pytest.raises(KeyboardInterrupt):
        run_all([unit, Count("b", sleep_at=1)], count, store, workers=2, on_row=stop)
    assert what(read_rows(tmp_path / "rows.jsonl")) == [("a", 1, 1), ("a", 2, 4)]
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_kill_9_of_the_parent_leaves_whole_rows_and_no_workers(tmp_path: Path) -> None:
    path, note = tmp_path / "rows.jsonl", tmp_path / "pid"
    code = (
        "from linnet.labs.core import Store, run_all\nfrom tests.labs.core.units import Count, count\n"
        "from pathlib import Path\nif __name__ == '__main__':\n"
        f"    run_all([Count('a', sleep_at=3, note=Path({str(note)!r})), Count('b', sleep_at=1)], count,\n"
        f"            Store({str(path)!r}), workers=2)\n"
    )
    (tmp_path / "main.py").write_text(code)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "main.py")], env={**os.environ, "PYTHONPATH": str(ROOT)})
    until(lambda: path.exists() and len(read_rows(path)) == 2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert what(read_rows(path)) == [("a", 1, 1), ("a", 2, 4)]
    until(lambda: not alive(int(note.read_text())))
    Store(path).close()  # the lock went with the process


def test_nothing_to_do_is_nothing(tmp_path: Path) -> None:
    assert run(tmp_path / "rows.jsonl", [], 4) == ([], [])


@pytest.mark.parametrize("wrong", [0, -1, "0", "two", "1.5", "Ray"])
def test_workers_are_a_number_or_ray(tmp_path: Path, wrong: int | str) -> None:
    with pytest.raises(ValueError, match=r"workers is .*; accepted: a number of processes of 1 or more, or ray"):
        run(tmp_path / "rows.jsonl", UNITS, wrong)
    assert [check_workers(fine) for fine in ("2", 3, "ray")] == [2, 3, "ray"]


def test_threads_are_one_or_more(tmp_path: Path) -> None:
    with Store(tmp_path / "rows.jsonl") as store, pytest.raises(ValueError, match="threads is 0; accepted: 1 or more"):
        run_all(UNITS, count, store, threads=0)


def test_an_error_without_a_place_is_still_a_sentence() -> None:
    assert sentence(ValueError("two\nlines")) == "ValueError: two lines"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray warns of its own future
def test_ray_gives_the_same_rows_and_is_left_as_it_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # a worker of Ray imports this module too
    units = [Count("a", fail_at=3), Count("d", die_at=1), *UNITS[1:]]
    rows, failures = run(tmp_path / "first.jsonl", units, "ray")
    assert set(what(rows)) == WANTED - {("a", 3, 9)}
    assert [i for name, i, _ in what(rows) if name == "a"] == [1, 2]
    assert {row["info"]["threads"] for row in rows} == {1}
    assert os.getpid() not in {row["info"]["process"] for row in rows}
    assert [failure.unit for failure in sorted(failures)] == ["count a", "count d"]
    assert sorted(failures)[0].error.startswith("ValueError: no 3 for a")
    assert not ray.is_initialized()  # started by us: stopped by us

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        rows, failures = run(tmp_path / "second.jsonl", UNITS, "ray")
        assert (set(what(rows)), failures) == (WANTED, [])
        assert ray.is_initialized()  # somebody else's: left running
    finally:
        ray.shutdown()
