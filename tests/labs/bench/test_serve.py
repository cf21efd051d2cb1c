"""`linnet bench serve`: the weights that llama.cpp gets, the client's arithmetic, and a run against a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.labs.bench import serve_models
from linnet.labs.bench.serve import LINEAR, LLAMA, LLAMA_PYTHON, SOFTMAX, Bench, ServeSettings
from linnet.labs.bench.serve_client import Stream, gaps, quantile, summary
from linnet.pretrained import load_pretrained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    serve_models.write_models(path, "tiny")
    return path


def test_the_gguf_file_has_the_softmax_weights_and_the_same_tokens(folder: Path) -> None:
    model, tokenizer = load_pretrained(folder / "softmax.gguf")
    ours = linnet.load(folder / "softmax")
    tokens = torch.randint(512, (1, 50))
    torch.testing.assert_close(model(tokens)[0], ours.model(tokens)[0])
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    text = serve_models.prompt(100, 1)
    assert tokenizer is not None
    assert ours.tokenizer is not None
    for each in (tokenizer, ours.tokenizer):
        assert len(each.prefix) + len(each.encode(text)) == 100
    assert tokenizer.encode(text) == ours.tokenizer.encode(text)


def test_linear_and_softmax_models_are_of_one_size_and_never_end(folder: Path) -> None:
    linear, softmax = (linnet.load(folder / name).model for name in ("linear", "softmax"))
    assert linear.parameter_count() == softmax.parameter_count()
    assert linear.state_bytes(1) == linear.state_bytes(1000)
    for model in (linear, softmax):
        assert not model.head.weight[:259].any()
        assert model(torch.randint(512, (1, 50)))[0].argmax(-1).min() >= 259  # text, and no end token


def test_prompts_differ() -> None:
    assert len({serve_models.prompt(64, seed) for seed in range(100)}) == 100


def stream(*times: float, counted: int | None = None) -> Stream:
    return Stream(sent=1.0, times=list(times), counted=counted, done=True)


def test_a_summary_of_streams() -> None:
    row = summary([stream(2, 3, 4, 5), stream(3, 3.5, 4, 6)])
    assert row["tokens"] == 8
    assert row["seconds"] == 5
    assert row["tokens_per_second"] == 8 / 5
    assert row["decoding_tokens_per_second"] == 4 / 2  # from 3, when both have begun, to 5, when the first ends
    assert (row["first_token_p50_s"], row["first_token_max_s"]) == (1, 2)
    assert (row["gap_p50_s"], row["gap_p99_s"]) == (1, 2)
    assert summary([stream(2, 3, counted=5)])["tokens"] == 5  # as the server counts: two came in one event
    problem = summary([stream(2), Stream(problem="full")])["problem"]
    assert problem == "1 of 2 streams: full; tokens that arrived: 1"


def test_gaps_lie_within_the_time_and_quantiles_are_values() -> None:
    assert gaps([stream(1, 2, 4, 8)], 1.5, 5) == [2]
    assert quantile([], 0.5) is None
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile(range(1, 101), 0.5) == 50
    assert quantile([7], 0.99) == 7


def test_what_is_missing_is_left_out_with_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    bench = Bench(ServeSettings(size="tiny"), folder)
    assert "--llama PATH" in bench.cell(LLAMA, 1, 8)["left_out"]
    assert "--llama-python PATH" in bench.cell(LLAMA_PYTHON, 1, 8)["left_out"]
    monkeypatch.setattr("linnet.labs.bench.serve_process.available_bytes", lambda: 1000)
    assert bench.cell(SOFTMAX, 8, 512)["left_out"].startswith("a cache of 0.0 GB")


@pytest.mark.slow
def test_a_server_is_measured(folder: Path) -> None:
    bench = Bench(ServeSettings(size="tiny", tokens=8, session=300, long=600, limit=60.0, rounds=1), folder)
    row: dict[str, Any] = bench.cell(LINEAR, 3, 40)
    assert row["tokens"] == 24
    assert 0 < row["first_token_p50_s"] <= row["first_token_max_s"] < row["seconds"]
    row = bench.stall(LINEAR)
    assert row["gaps"] > 0 or "problem" in row
    row = bench.sessions()
    assert len(row["fork_s"]) == 20
    assert min(*row["fork_s"], *row["continue_s"]) > 0
    assert bench.bare(2, 20, 4) > 0


@pytest.mark.slow
def test_a_server_with_other_weights_is_refused(folder: Path) -> None:
    bench = Bench(ServeSettings(size="tiny", tokens=4), folder)
    bench._wanted["linear"] = "abcd"
    assert "wrong: it continues with" in bench.cell(LINEAR, 1, 16)["left_out"]
