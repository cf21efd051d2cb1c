"""Jobs: a run's folder is enough to open its data again, and what a kind of data decides about a model is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.data import BPETokenizer, ByteTokenizer, TextSource
from linnet.models import Model, preset
from linnet.train import TrainConfig, checkpoint
from linnet.train.jobs import (
    FILE,
    KINDS,
    NAMES,
    TASKS,
    Data,
    Job,
    bytes_per_token,
    check_same_data,
    open_data,
    read_job,
)
from linnet.train.jobs import run as train
from tests.cli.command import write_csv, write_npz, write_pngs, write_speech, write_text

EXACT = 1e-10
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2}
QUICK: dict[str, Any] = {"steps": 2, "batch_size": 2, "autocast": "none", "eval_rows": 2}


def job_of(kind: str, settings: dict[str, Any], data: Data, **changes: Any) -> Job:
    model = preset("char-small").replace(**(data.fields | SMALL))
    return Job(kind=kind, data=settings, model=model, train=TrainConfig(**(QUICK | changes)))


@pytest.fixture
def text(tmp_path: Path) -> tuple[Job, Data]:
    settings = {"paths": [str(write_text(tmp_path / "book.txt"))], "seq_len": 16}
    data = open_data("text", settings, tmp_path / "run", begun=False)
    return job_of("text", settings, data), data


def test_every_kind_has_its_names_and_its_task() -> None:
    assert set(KINDS) == set(NAMES) == set(TASKS)


def test_a_job_goes_to_json_and_back(text: tuple[Job, Data]) -> None:
    job, _ = text
    assert Job.from_dict(json.loads(json.dumps(job.to_dict()))) == job


def test_a_run_is_opened_from_its_folder(text: tuple[Job, Data], tmp_path: Path) -> None:
    job, data = text
    model, result = train(job, data, tmp_path / "run")
    assert result.step == 2
    assert read_job(tmp_path / "run") == job
    again = Model.from_pretrained(tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    opened = open_data(job.kind, job.data, tmp_path / "run", begun=True)
    assert (opened.train.fingerprint, opened.valid.fingerprint) == (data.train.fingerprint, data.valid.fingerprint)
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded is not None
    assert loaded.trainer["meta"] == job.to_dict()


def test_weights_come_from_the_seed_and_the_generator_is_left_alone(text: tuple[Job, Data], tmp_path: Path) -> None:
    job, data = text
    torch.manual_seed(123)
    state = torch.get_rng_state()
    first, _ = train(job, data, tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    second, _ = train(job, data, tmp_path / "b")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_refused_resume_does_not_change_run_json(text: tuple[Job, Data], tmp_path: Path) -> None:
    job, data = text
    train(job, data, tmp_path / "run")
    before = (tmp_path / "run" / FILE).read_bytes()
    with pytest.raises(ValueError, match=r"lr is 0\.5 but was"):
        train(job_of("text", dict(job.data), data, lr=0.5), data, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / FILE).read_bytes() == before


def test_the_first_setting_that_differs_is_named(text: tuple[Job, Data], tmp_path: Path) -> None:
    job, data = text
    train(job, data, tmp_path / "run")
    check_same_data(tmp_path / "run", "text", {**job.data, "paths": ["elsewhere.txt"], "allow_binary": True})
    with pytest.raises(ValueError, match="seq_len is 8 but was 16"):
        check_same_data(tmp_path / "run", "text", {**job.data, "seq_len": 8})
    (tmp_path / "run" / FILE).write_text(json.dumps(job.to_dict() | {"data": {**job.data, "valid_fraction": 0.5}}))
    with pytest.raises(ValueError, match=r"valid_fraction is None but was 0\.5"):
        check_same_data(tmp_path / "run", "text", job.data)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"kind": "text", "data": {}, "model": {"widht": 1}, "train": {}}']
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ValueError, match=r"run.json(:| is) .* start the run again"):
        read_job(tmp_path)


def test_a_tokenizer_is_kept_and_read_again_only_once_there_is_a_run(tmp_path: Path) -> None:
    book = str(write_text(tmp_path / "book.txt"))
    settings = {"paths": [book], "seq_len": 16, "tokenizer": "bpe", "vocab_size": 280}
    data: Any = open_data("text", settings, tmp_path, begun=False)
    assert data.fields["vocab_size"] == 280
    again: Any = open_data("text", {**settings, "vocab_size": 300}, tmp_path, begun=True)
    assert again.train.tokenizer.fingerprint == data.train.tokenizer.fingerprint
    anew: Any = open_data("text", {**settings, "tokenizer": "byte"}, tmp_path, begun=False)
    assert isinstance(anew.train.tokenizer, ByteTokenizer)
    assert open_data("text", settings, tmp_path, begun=True).fields["vocab_size"] == 256


@pytest.mark.parametrize("text", ["plain words", "Häuser und Bäume, 木と森, 🦜 "])
def test_bytes_per_token_are_those_of_the_text(tmp_path: Path, text: str) -> None:
    """Whatever characters a token cuts through."""
    file = tmp_path / "text.txt"
    file.write_text(text * 40, encoding="utf-8")
    coder = BPETokenizer.train([text * 3], 270)
    ids = coder.encode(text * 40)
    source = TextSource(file, coder, 8, "valid", valid_fraction=1.0)  # every token but the first is predicted
    first = len(coder.decode(ids[:1]).encode())  # of ASCII in both texts, so it is whole
    expected = (len((text * 40).encode()) - first) / (len(ids) - 1)
    assert bytes_per_token(source) == pytest.approx(expected, rel=EXACT)
    rows = next(n for n in range(1, 9) if "\ufffd" not in coder.decode(ids[1 : 8 * n + 1]))  # ends with a character
    some = coder.decode(ids[1 : 8 * rows + 1])
    assert bytes_per_token(source, rows) == pytest.approx(len(some.encode()) / (8 * rows), rel=EXACT)
    assert bytes_per_token(TextSource(file, ByteTokenizer(), 8, "valid", valid_fraction=1.0)) == 1.0


@pytest.mark.parametrize(
    ("kind", "settings", "fields"),
    [
        ("text", {"seq_len": 32}, {"task": "language", "causal": True, "vocab_size": 256, "max_length": 32}),
        ("image", {}, {"task": "image", "causal": True, "vocab_size": 17, "max_length": 64}),
        ("speech", {"n": 16}, {"task": "speech", "causal": False, "vocab_size": 21, "input_dim": 16}),
        (
            "stream",
            {"context": 32, "horizon": 3},
            {"task": "forecast", "input_dim": 1, "output_dim": 1, "horizon": 3, "max_length": 32},
        ),
    ],
)
def test_what_the_data_decide(kind: str, settings: dict[str, Any], fields: dict[str, Any]) -> None:
    data = open_data(kind, settings, None, begun=False)
    assert data.fields.items() >= fields.items()
    assert (data.test is None) == (kind == "text")
    assert len({part.fingerprint for part in (data.train, data.valid, data.test) if part is not None}) >= 2


def test_learned_positions_reach_as_far_as_the_longest_recording() -> None:
    data = open_data("speech", {"n": 16}, None, begun=False)
    assert data.test is not None
    parts = [part.batch(range(part.length))["features"].shape[1] for part in (data.train, data.valid, data.test)]
    assert data.fields["max_length"] == max(parts)


def test_own_images_have_a_test_part_only_where_there_is_one(tmp_path: Path) -> None:
    one = open_data("image", {"name": str(write_npz(tmp_path / "one.npz"))}, None, begun=False)
    assert one.test is None
    (tmp_path / "set").mkdir()
    write_npz(tmp_path / "set" / "my_train.npz")
    assert open_data("image", {"name": str(tmp_path / "set")}, None, begun=False).test is None
    write_npz(tmp_path / "set" / "my_test.npz")
    test = open_data("image", {"name": str(tmp_path / "set")}, None, begun=False).test
    assert test is not None
    assert test.length == 20
    for part in ("train", "test"):
        write_pngs(tmp_path / "pngs" / part)
    assert open_data("image", {"name": str(tmp_path / "pngs")}, None, begun=False).test is not None
    (tmp_path / "set" / "my_test.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ValueError, match="not a complete zip file"):
        open_data("image", {"name": str(tmp_path / "set")}, None, begun=False)


def test_own_speech_has_its_characters_as_symbols(tmp_path: Path) -> None:
    data = open_data("speech", {"name": str(write_speech(tmp_path / "wavs"))}, None, begun=False)
    assert data.symbols == ("<blank>", " ", "a", "b", "c")
    assert data.fields["vocab_size"] == 5
    assert data.test is None


def test_a_stream_is_cached_in_the_folder_of_the_run(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "load.csv")
    data: Any = open_data("stream", {"name": str(file), "context": 8}, tmp_path / "run", begun=False)
    assert data.train.columns == ("load", "wind")
    assert [path.suffix for path in sorted((tmp_path / "run").iterdir())] == [".f32", ".json"]


def test_an_unknown_kind_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown kind of data 'imge'; did you mean 'image'"):
        open_data("imge", {}, None, begun=False)
