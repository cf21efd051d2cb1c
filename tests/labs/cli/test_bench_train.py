"""`linnet bench train`: what it counts, what it writes, what it refuses."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
import torch
from rich.console import Console

from linnet.cli import main
from linnet.labs.bench import recall, train
from linnet.labs.bench.train import TrainSettings, race, step_flops, subject
from linnet.labs.cli import bench_frame, bench_train
from linnet.models import preset
from tests.cli.command import help_without_torch

TINY: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2, "vocab_size": 17}


def status(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", "train", *args])
    return int(caught.value.code or 0)


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    before = torch.get_num_threads()
    result = race(TrainSettings(threads=1, tokens=128, rounds=3, lengths=(64,)), 64, **TINY)
    torch.set_num_threads(before)
    return result


def test_a_row_follows_from_its_times(row: dict[str, Any]) -> None:
    assert (row["length"], row["batch"], row["tokens"], row["threads"]) == (64, 2, 128, 1)
    assert list(row["mixers"]) == ["elu", "rebased", "softmax"]
    softmax = row["mixers"]["softmax"]
    for entry in row["mixers"].values():
        assert 0 < entry["min_s"] <= entry["median_s"]
        assert entry["rounds"] == 3
        assert entry["tokens_per_s"] == pytest.approx(128 / entry["min_s"])
        assert entry["ratio"] == pytest.approx(softmax["min_s"] / entry["min_s"])
        percent = 100 * entry["flops"] / entry["min_s"] / (row["sgemm"]["gflops"] * 1e9)
        assert entry["sgemm_percent"] == pytest.approx(percent)
        assert abs(entry["loss"] - math.log(17)) < 0.5
        assert entry["extra_bytes"] is None or entry["extra_bytes"] > 0
    json.dumps(row, allow_nan=False)


def test_recurrent_mixers_are_compared_with_elu() -> None:
    before = torch.get_num_threads()
    names = ("elu", "gla", "mamba")
    row = race(TrainSettings(threads=1, tokens=128, rounds=3, lengths=(64,), mixers=names), 64, **TINY)
    torch.set_num_threads(before)
    assert list(row["mixers"]) == list(names)
    assert row["mixers"]["gla"]["flops"] is None
    assert row["mixers"]["gla"]["sgemm_percent"] is None
    elu = row["mixers"]["elu"]["min_s"]
    assert row["mixers"]["mamba"]["ratio_elu"] == pytest.approx(elu / row["mixers"]["mamba"]["min_s"])
    text = io.StringIO()
    document = {**bench_frame.new_document(recall=False, rounds=3, rows=[row])}
    bench_train.show(document, Console(file=text, width=150))
    assert "/ elu" in text.getvalue()


def test_all_mixers_are_meant_by_one_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def one(settings: TrainSettings, length: int) -> dict[str, Any]:
        asked.append(settings.mixers)
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "race", one)
    assert status("--mixers", "all", "--json") == 130
    assert asked == [tuple(train.CHANGES)]


def test_flops_are_those_of_the_matrices_and_the_attention() -> None:
    config = preset("char-6x256")
    matrices = 6 * (6 * (256 * 768 + 256 * 256 + 2 * 256 * 1024) + 256 * 256)
    assert step_flops(config, 32, 256, 4096) == 4096 * (matrices + 6 * 8 * 14 * 32 * 32)
    assert step_flops(config, None, 255, 4096) == 4096 * (matrices + 6 * 8 * 7 * 64 * 128)
    small = config.replace(key_dim=16)
    less = 6 * 6 * 256 * 256
    assert step_flops(small, 136, 256, 1) == matrices - less + 6 * 8 * 14 * 136 * 32


def test_matrices_counted_are_the_weights_of_the_model() -> None:
    """Every weight but the norms, the biases and the map is a matrix; tied, the embedding is the head."""
    one = subject("elu", 8, 8, **{**TINY, "bias": False})
    norms = 2 * 5 * 32
    attention = 2 * 2 * 14 * 16 * 16
    assert one.flops == 8 * (6 * (one.parameters - norms) + attention)


def test_a_step_learns() -> None:
    one = subject("elu", 32, 64, **TINY)
    first = one.step()
    for _ in range(20):
        last = one.step()
    assert last < first


def test_tables(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(train, "race", lambda settings, length: row)
    document = bench_train.measure(TrainSettings(rounds=3), Console(file=io.StringIO()))
    assert document["format"] == bench_frame.FORMAT
    assert len(document["rows"]) == 3
    out = io.StringIO()
    bench_train.show(document, Console(file=out, width=150))
    for expected in ("2 x 64 tokens, threads 1", "faster than softmax", "rebased", "% of sgemm"):
        assert expected in out.getvalue()
    assert status("--json", "--quick") == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == len(train.QUICK["lengths"])


def test_recall_has_a_table_of_its_own(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {**row["mixers"]["rebased"], "ratio_products": 2.5, "ratio_products_median": 2.25, "sgemm_percent": None}
    lengths = []

    def one(settings: TrainSettings, length: int) -> dict[str, Any]:
        lengths.append((length, settings.tokens, settings.rounds, settings.mixers))
        return {**row, "mixers": {"rebased": entry}}

    monkeypatch.setattr(recall, "race", one)
    assert status("--recall", "--quick", "--mixers", "rebased") == 0
    out = capsys.readouterr().out
    assert lengths == [(256, 16384, 3, ("rebased",)), (1024, 16384, 3, ("rebased",))]
    for expected in ("than products", "2.50 (2.25)"):
        assert expected in out
    assert status("--recall", "--quick", "--json") == 0
    assert json.loads(capsys.readouterr().out)["recall"]


def test_an_interrupted_run_shows_what_it_has(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(settings: TrainSettings, length: int) -> dict[str, Any]:
        if length > 256:
            raise KeyboardInterrupt
        return row

    monkeypatch.setattr(train, "race", stop)
    assert status("--json") == 130
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--rounds", "2"], "--rounds is 2"),
        (["--threads", "4096"], "--threads is 4096"),
        (["--lengths", "1000"], "--lengths has 1000; accepted: divisors of the 4096"),
        (["--mixers", "softmacks"], "did you mean 'softmax'?"),
        (["--mixers", "deltas"], "did you mean 'delta'?"),
        (["--recall", "--mixers", "torch maps"], "unknown mixer 'torch maps'"),
        (["--recall", "--lengths", "1000"], "--lengths has 1000; accepted: divisors of the 16384"),
    ],
)
def test_a_bad_option_is_one_sentence(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_help_teaches_without_torch() -> None:
    text = help_without_torch("bench", "train")
    assert "linnet bench train --quick" in text
    assert "linnet bench train --recall" in text
