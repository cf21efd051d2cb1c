"""Task files for lm-eval: what they say, and that lm-eval itself takes them from the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet.labs.fewshot.sets import SETS, read_set
from linnet.labs.fewshot.tasks import write_tasks
from tests.labs.fewshot.tiny import write_sets


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sets(tmp_path_factory.mktemp("data")) / "fewshot"


def lines(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_files_hold_the_set(place: Path, tmp_path: Path) -> None:
    configs = write_tasks(tmp_path / "tasks", ["piqa", "winogrande", "lambada"], place)
    assert sorted(configs) == ["lambada", "piqa", "winogrande"]
    for name, config in configs.items():
        assert json.loads((tmp_path / "tasks" / f"{name}.yaml").read_text()) == config
        files = config["dataset_kwargs"]["data_files"]
        given = read_set(name, place)
        assert lines(Path(files["items"])) == given.items
        assert lines(Path(files["examples"])) == given.examples
        assert all(Path(file).is_absolute() for file in files.values())
        assert config["test_split"] != config["fewshot_split"]
    assert [m["metric"] for m in configs["piqa"]["metric_list"]] == ["acc", "acc_norm"]
    assert [m["metric"] for m in configs["winogrande"]["metric_list"]] == ["acc"]


def test_an_unknown_set_writes_nothing(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown few-shot set"):
        write_tasks(tmp_path / "tasks", ["piqa", "none"], place)
    assert not (tmp_path / "tasks").exists()


@pytest.mark.slow
def test_lm_eval_loads_the_folder(place: Path, tmp_path: Path) -> None:
    from linnet.labs.fewshot import LinnetLM  # keeps `datasets` off the hub

    assert LinnetLM is not None
    from lm_eval.tasks import TaskManager

    write_tasks(tmp_path, list(SETS), place)
    tasks = TaskManager(include_path=str(tmp_path), include_defaults=False).load(list(SETS))["tasks"]
    assert sorted(tasks) == sorted(SETS)
    for name, task in tasks.items():
        assert len(list(task.test_docs())) == len(read_set(name, place).items)
