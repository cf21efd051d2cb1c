"""`linnet icl explain`: tables, JSON, a page, the worked example, and one sentence for each mistake."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from linnet.labs.icl.explain import explain
from linnet.labs.icl.explain_example import worked_example
from linnet.regress.model import ICLTransformer
from tests.cli.command import help_without_torch, linnet, refused
from tests.labs.icl.explained import small

Capsys = pytest.CaptureFixture[str]
FAST = ("--no-ablation", "--sequences", "30")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "diag.safetensors"
    small().save(path)
    return path


def test_tables(file: Path, capsys: Capsys) -> None:
    done = linnet(capsys, "icl", "explain", file, *FAST)
    assert done.status == 0
    document = explain(ICLTransformer.load(file), sequences=30, ablation=False)
    flat = " ".join(done.out.split())
    for layer in document["layers"]:
        assert f"{layer['number']}. {layer['sentence']}" in flat
    for title in ("DIAG, 2 layers, 2 heads", "sigma from U2", "omegas", "sigma = 0: medians", "sigma = 2: medians"):
        assert title in flat
    for title in ("at each sigma", "known methods", "gradient descent", "Bayes", "TunedRR"):
        assert title in flat
    assert "without an omega" not in flat


def test_json_is_the_document(file: Path, capsys: Capsys) -> None:
    done = linnet(capsys, "icl", "explain", file, *FAST, "--noise", "1,3", "--seed", "4", "--json")
    assert done.status == 0
    from linnet.labs.icl.noise import Noise

    want = explain(ICLTransformer.load(file), Noise.parse("1,3"), sequences=30, seed=4, ablation=False)
    assert json.loads(done.out) == want


def test_ablation_and_full_have_tables_of_their_own(tmp_path: Path, capsys: Capsys) -> None:
    small("full", layers=1, heads=1, d=2, n=4).save(tmp_path / "full.safetensors")
    done = linnet(capsys, "icl", "explain", tmp_path / "full.safetensors", "--sequences", "20")
    assert done.status == 0
    assert "the nearest DIAG weights" in done.out
    assert "ω_xy and ω_yy" in done.out


def test_a_page_beside_the_tables(file: Path, tmp_path: Path, capsys: Capsys) -> None:
    out = tmp_path / "page.html"
    done = linnet(capsys, "icl", "explain", file, *FAST, "--out", out)
    assert done.status == 0
    assert str(out) in done.out.replace("\n", "")
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_example(capsys: Capsys) -> None:
    done = linnet(capsys, "icl", "explain", "--example")
    assert (done.status, done.err) == (0, "")
    for line in (
        "tokens (x, y) = (1, 1), (2, 3); the query is (1, 0).",
        "A  = ω_xx Sigma = -0.1 * 5 = -0.5",
        "M' = (1 + A) M - b w = 0.9068 * 0.5 - (-0.0308) * 0.7 = 0.47496",
        "u' = (1 + A) u + a b = 0.9068 * (-0.14) + 0.8 * (-0.0308) = -0.151592",
        "a' = (1 + e) a + c u = 0.9495 * 0.8 + (-0.1848) * (-0.14) = 0.785472",
        "w' = (1 + e) w - M c = 0.9495 * 0.7 - 0.5 * (-0.1848) = 0.75705",
        "so token 1 is x = M' 1 + 1 u' = 0.36, y = a' 1 - w' 1 = 0.1",
        "The model predicts 0.75705; least squares predicts 1.4.",
    ):
        assert line in done.out
    assert "lambda = 1.01" in done.out
    assert json.loads(linnet(capsys, "icl", "explain", "--example", "--json").out) == worked_example()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "no model was given; accepted: a file of linnet icl train, or --example"),
        (("FILE", "--example"), "but --example has its own model; leave one of the two out"),
        (("--example", "--noise", "U5"), "--noise is U5, but --example"),
        (("nowhere.safetensors",), "nowhere.safetensors is not a file; accepted: a model that linnet icl wrote"),
        (("FILE", "--noise", "loud"), "noise is 'loud'; accepted: 'U5'"),
        (("FILE", "--noise", "U-1"), "sigma is -1.0; accepted"),
        (("FILE", "--sequences", "1"), "1 sequences were requested; accepted: 2 or more"),
        (("FILE", "--seed", "-3"), "the seed is -3; accepted"),
        (("FILE", "--out", "page.png"), "--out is page.png; accepted: a name that ends in .html"),
        (("FILE", "--out", "nowhere/page.html"), "accepted: a file name in an existing, writable folder"),
    ],
)
def test_bad_input_is_one_sentence(
    args: tuple[str, ...], said: str, file: Path, elsewhere: None, capsys: Capsys
) -> None:
    assert said in refused(capsys, "icl", "explain", *(str(file) if arg == "FILE" else arg for arg in args))
    assert list(Path().iterdir()) == []


def test_other_files_are_refused(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"p": torch.zeros(2)}, path)
    assert "is a file of format 'unknown', not 'linnet-icl'" in refused(capsys, "icl", "explain", path)
    path.write_bytes(b"text")
    assert "is not a whole safetensors file" in refused(capsys, "icl", "explain", path)


def test_the_page_needs_no_matplotlib(
    file: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = tmp_path / "page.html"
    assert linnet(capsys, "icl", "explain", file, "--sequences", 20, "--no-ablation", "--out", page).status == 0
    assert "<svg" in page.read_text(encoding="utf-8")


def test_help_teaches_without_torch() -> None:
    assert "linnet icl explain --example" in help_without_torch("icl", "explain")
