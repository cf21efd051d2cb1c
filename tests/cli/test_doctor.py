"""`linnet doctor`: true facts, the same in the table and in JSON, and a way out when something is off."""

from __future__ import annotations

import io
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import linnet
from linnet.cli import doctor, main
from linnet.native import library


def printed(report: dict[str, Any]) -> str:
    out = io.StringIO()
    doctor.show(report, Console(file=out, width=200))
    return out.getvalue()


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return doctor.facts()


def test_versions_are_those_installed(report: dict[str, Any]) -> None:
    assert report["versions"]["linnet"] == linnet.__version__
    assert report["versions"]["python"] == platform.python_version()
    for name in ("torch", "numpy", "safetensors"):
        assert report["versions"][name] == version(name)
    assert report["threads"]["torch"] == torch.get_num_threads()


def test_native_facts_are_those_of_the_library(report: dict[str, Any]) -> None:
    for key, value in library.info().items():
        assert report["native"][key] == value
    assert set(report["native"]) >= {
        "loaded",
        "reason",
        "path",
        "abi_version",
        "isa",
        "isas",
        "threads",
        "openmp",
        "size",
    }
    if report["native"]["loaded"]:
        assert report["native"]["size"] == Path(report["native"]["path"]).stat().st_size
        assert report["native"]["isa"] in report["native"]["isas"]
    else:
        assert report["native"]["reason"]


def test_choices_are_those_of_explain_dispatch(report: dict[str, Any]) -> None:
    assert len(report["dispatch"]) == len(doctor.TYPICAL)
    for row in report["dispatch"]:
        choice = linnet.explain_dispatch(
            q_shape=tuple(row["q_shape"]),
            dtype=getattr(torch, row["dtype"]),
            feature_map=row["feature_map"],
            causal=row["causal"],
        )
        assert (row["form"], row["backend"], row["reason"]) == (choice.form, choice.backend, choice.reason)
        assert row["reason"]


def test_the_table_shows_every_fact(report: dict[str, Any]) -> None:
    text = " ".join(printed(report).split())
    for name, value in report["versions"].items():
        assert f"{name} {value}" in text
    for row in report["dispatch"]:
        assert row["case"] in text
        assert row["backend"] in text
    assert report["cpu"]["name"] in text


def test_json_holds_the_same(capsys: pytest.CaptureFixture[str], report: dict[str, Any]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["doctor", "--json"])
    assert not caught.value.code
    assert json.loads(capsys.readouterr().out) == report


def test_a_missing_library_gives_the_reason_and_the_way_out(report: dict[str, Any]) -> None:
    off = dict.fromkeys(report["native"]) | {"loaded": False, "reason": "_linnet.so is not there", "isas": []}
    text = printed(report | {"native": off})
    assert "_linnet.so is not there" in text
    assert "apt-get install g++" in text


def test_a_loaded_library_shows_what_it_is(report: dict[str, Any]) -> None:
    on = {"loaded": True, "reason": None, "path": "lib/_linnet.so", "abi_version": 7, "isa": "avx2"}
    on |= {"isas": ["base", "avx2"], "threads": 3, "openmp": True, "size": 51200}
    text = printed(report | {"native": on})
    for expected in ("lib/_linnet.so", "ABI 7", "avx2", "base, avx2", "threads: 3", "50 KB"):
        assert expected in text
    assert "one thread" in printed(report | {"native": on | {"openmp": False}})


def test_optional_packages_are_those_installed(report: dict[str, Any]) -> None:
    names = {"tokenizers", "tensorboard", "soundfile", "pillow", "matplotlib", "transformers", "gguf"}
    names |= {"scikit-learn", "ray", "lm-eval", "starlette", "redis"}
    assert set(report["optional"]) == names
    text = " ".join(printed(report).split())
    for name, entry in report["optional"].items():
        assert entry["version"] == doctor.installed(name)
        assert f"{name} {entry['version'] or 'not installed'}" in text


@pytest.mark.parametrize(
    ("name", "extra"),
    [("matplotlib", "report"), ("tensorboard", "train"), ("soundfile", "audio"), ("pillow", "vision")],
)
def test_an_optional_package_that_is_missing_names_its_extra(report: dict[str, Any], name: str, extra: str) -> None:
    assert report["optional"][name]["extra"] == extra
    text = printed(report | {"optional": {name: {"version": None, "extra": extra}}})
    assert f"pip install 'linnet[{extra}]'" in text


def test_cpu_is_read_from_cpuinfo(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(
        "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu avx2 fma avx512f zzz\n\nmodel name\t: Other\n"
    )
    assert doctor.cpu(file)["name"] == "Fast One"
    assert doctor.cpu(file)["instruction_sets"] == ["avx2", "fma", "avx512f"]
    file.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert doctor.cpu(file)["instruction_sets"] == ["asimd", "sve"]
    assert doctor.cpu(tmp_path / "none")["instruction_sets"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists instruction sets in a file")
def test_this_processor_has_a_name(report: dict[str, Any]) -> None:
    assert report["cpu"]["cores"] >= 1
    assert report["cpu"]["name"]
