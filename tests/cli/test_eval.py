"""`linnet eval`: the numbers are those of the model on held-out data, beside baselines, in words and in JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from linnet.cli.eval import Subject, _errors
from linnet.cli.eval_step import _offset
from linnet.data.baselines import persistence
from linnet.data.speech import BLANK, SpeechSource, in_memory
from linnet.data.stream import StreamSource, generated_stream
from linnet.models import Model
from linnet.models.ctc import error_rate
from linnet.train.evaluation import evaluate
from linnet.train.jobs import open_data, read_job
from tests.cli.command import TINY, linnet, refused, write_text

CLOSE = 2e-5  # float32, relative
Capsys = pytest.CaptureFixture[str]


def eval_json(capsys: Capsys, *args: object) -> dict[str, Any]:
    done = linnet(capsys, "eval", *args, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize(
    ("kind", "split", "names"),
    [
        ("text", "valid", {"loss", "bits", "bits_per_byte"}),
        ("image", "test", {"loss", "bits_per_dim"}),
        ("speech", "test", {"loss", "per"}),
        ("stream", "test", {"loss", "mse", "mae", "persistence", "ridge"}),
    ],
)
def test_the_numbers_are_those_of_the_model(capsys: Capsys, runs: Path, kind: str, split: str, names: set[str]) -> None:
    document = eval_json(capsys, runs / kind, "--rows", "6", "--batch-size", "4")
    assert set(document) == {"step", "best", "split", "rows"} | names
    assert (document["step"], document["split"], document["rows"]) == (4, split, 6)
    job = read_job(runs / kind)
    data = open_data(job.kind, job.data, runs / kind, begun=True)
    source = data.valid if split == "valid" else data.test
    assert source is not None
    expected = evaluate(Model.from_pretrained(runs / kind), source, batch_size=6, rows=6)
    for name in names & expected.keys():
        assert document[name] == pytest.approx(expected[name], rel=CLOSE)
    text = linnet(capsys, "eval", runs / kind, "--rows", "6").out
    what = {"text": " (windows of 32 tokens, end to end)", "stream": " (windows of 64 steps, end to end)"}.get(kind, "")
    assert text.startswith(f"step 4 (the best checkpoint by held-out loss), 6 examples{what} of the {split} part: ")
    assert f"{document['loss']:.4f}" in text


def test_bits_of_a_byte_tokenizer_are_per_byte(capsys: Capsys, runs: Path) -> None:
    document = eval_json(capsys, runs / "text")
    assert document["bits"] == document["bits_per_byte"] == pytest.approx(document["loss"] / math.log(2), rel=CLOSE)


def test_bits_per_byte_of_a_bpe(capsys: Capsys, runs: Path) -> None:
    """The nats of all held-out tokens, over the bytes of the text that they stand for."""
    document = eval_json(capsys, runs / "bpe")
    job = read_job(runs / "bpe")
    valid: Any = open_data(job.kind, job.data, runs / "bpe", begun=True).valid
    targets = torch.cat([valid.batch([row])["targets"][0] for row in range(valid.length)])
    ids = targets[targets >= 0].tolist()
    text = valid.tokenizer.decode(ids)
    assert (runs / "book.txt").read_text().endswith(text)
    nats = document["loss"] * len(ids)
    assert document["bits_per_byte"] == pytest.approx(nats / math.log(2) / len(text.encode()), rel=CLOSE)
    assert document["bits_per_byte"] < 0.8 * document["bits"]
    shown = linnet(capsys, "eval", runs / "bpe").out
    assert f"{document['bits']:.4f} bits/token, {document['bits_per_byte']:.4f} bits/byte" in shown


def test_streams_are_compared_with_their_baselines(capsys: Capsys, runs: Path) -> None:
    document = eval_json(capsys, runs / "stream")
    test = StreamSource(generated_stream(8192, 0), context=64, horizon=2, split="test")
    assert document["persistence"]["mse"] == pytest.approx(persistence(test).mse, rel=CLOSE)
    assert document["ridge"]["mse"] < document["persistence"]["mse"]
    text = linnet(capsys, "eval", runs / "stream").out
    assert f"persistence: {document['persistence']['mse']:.4f} MSE" in text
    assert f"ridge: {document['ridge']['mse']:.4f} MSE" in text


def test_speech_by_a_beam(capsys: Capsys, runs: Path) -> None:
    """Over exactly the requested rows, though they do not fill a batch."""
    document = eval_json(capsys, runs / "speech", "--rows", "5", "--batch-size", "3", "--beam", "4")
    job = read_job(runs / "speech")
    source: Any = open_data(job.kind, job.data, runs / "speech", begun=True).test
    batch = source.batch(range(5))
    model: Any = Model.from_pretrained(runs / "speech").eval()
    decoded = model.decode(batch["features"], batch["lengths"], 4)
    wanted = [u.targets for u in source.utterances[:5]]
    edits, symbols = error_rate(decoded, [list(row) for row in wanted])
    assert document["per_beam"] == pytest.approx(edits / symbols, rel=CLOSE)
    text = linnet(capsys, "eval", runs / "speech", "--rows", "5", "--beam", "4").out
    assert f"beam 4: {document['per_beam']:.4f} PER" in text


def test_a_checkpoint_and_a_split_by_name(capsys: Capsys, runs: Path) -> None:
    older = eval_json(capsys, runs / "image", "--checkpoint", "step-00000002", "--split", "valid", "--rows", "4")
    newest = eval_json(capsys, runs / "image", "--split", "valid", "--rows", "4")
    assert (older["step"], newest["step"], newest["split"]) == (2, 4, "valid")
    assert older["loss"] != newest["loss"]


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("text", ("--beam", "4"), "--beam is 4, but this is a run on text"),
        ("speech", ("--beam", "-1"), "--beam is -1; accepted: a whole number, 0 or more"),
        ("text", ("--rows", "-1"), "--rows is -1"),
        ("text", ("--batch-size", "0"), "--batch-size is 0; accepted: a whole number, 1 or more"),
        ("text", ("--checkpoint", "step-9"), "accepted: best, newest, step-00000002, step-00000004"),
    ],
)
def test_a_bad_option_is_one_sentence(
    capsys: Capsys, runs: Path, kind: str, options: tuple[str, ...], named: str
) -> None:
    assert named in refused(capsys, "eval", runs / kind, *options)


NEEDS = "the native decoder"
MOST = 0.002  # bits that 8-bit weights may cost after four steps; measured 0.0002


def eval_stepped(capsys: Capsys, *args: object) -> dict[str, Any]:
    """As `eval_json`, or a skip where weights cannot be rounded."""
    done = linnet(capsys, "eval", *args, "--json")
    if done.status and NEEDS in done.err:
        pytest.skip(done.err)
    assert done.status == 0, done.err
    document: dict[str, Any] = json.loads(done.out)
    return document


@pytest.mark.parametrize(("kind", "name"), [("text", "bits"), ("bpe", "bits"), ("image", "bits_per_dim")])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_stepping_is_the_parallel_form_but_for_rounding(
    capsys: Capsys, runs: Path, kind: str, name: str, backend: str
) -> None:
    """All rows, so that with text the last one ends early; and nothing else in the document changes."""
    args = (runs / kind, "--rows", "7") if kind == "image" else (runs / kind,)
    plain = eval_json(capsys, *args)
    document = eval_stepped(capsys, *args, "--weights", "float32", "--backend", backend, "--batch-size", "5")
    extra = document.pop("stepped")
    assert document.keys() == plain.keys()
    assert document[name] == pytest.approx(plain[name], rel=CLOSE)
    assert (extra["weights"], extra["backend"]) == ("float32", backend)
    for key in plain.keys() - {"step", "best", "split", "rows"}:
        assert extra[key] == pytest.approx(plain[key], rel=CLOSE)
    assert extra["difference"] == extra[name] - document[name]


@pytest.mark.parametrize(
    ("kind", "name", "unit"), [("text", "bits", "bits/token"), ("image", "bits_per_dim", "bits/dim")]
)
def test_rounded_weights_compared_with_exact_ones(capsys: Capsys, runs: Path, kind: str, name: str, unit: str) -> None:
    args = (runs / kind, "--rows", "6", "--weights", "int8")
    document = eval_stepped(capsys, *args)
    extra = document["stepped"]
    assert 0 < abs(extra["difference"]) < MOST
    assert extra["difference"] == extra[name] - document[name]
    first, second = linnet(capsys, "eval", *args).out.splitlines()
    assert first.startswith("step 4 (the best checkpoint by held-out loss), 6 examples")
    share = 100 * extra["difference"] / document[name]
    assert second.startswith(f"     stepped: {extra['loss']:.4f} nats, {extra[name]:.4f} bits/")
    assert second.endswith(f" with int8 weights (native): {extra['difference']:+.4f} {unit}, {share:+.2f} %")


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("speech", ("--weights", "int8"), "--weights is int8, but this is a run on speech; accepted: a run on text or"),
        ("stream", ("--weights", "float32"), "--weights is float32, but this is a run on stream"),
        ("text", ("--backend", "torch"), "--backend is torch, but nothing is stepped; add --weights"),
        ("text", ("--weights", "int8", "--backend", "torch"), "weights 'int8' need the native decoder"),
        ("text", ("--length", "64"), "--length is 64, but the examples of a run have their own length"),
        ("text", ("--length", "0"), "--length is 0; accepted: a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_stepped_is_one_sentence(
    capsys: Capsys, runs: Path, kind: str, options: tuple[str, ...], named: str
) -> None:
    assert named in refused(capsys, "eval", runs / kind, *options)


def test_progress_counts_all_rows() -> None:
    """The second batch of two, five rows after seven others, halfway and at its end."""
    seen: list[float] = []
    report = _offset(lambda done, total: seen.append(done / total), 7, 5, 12)
    report(5, 10)
    report(10, 10)
    assert seen == [pytest.approx(9.5 / 12), 1.0]


def test_other_data_than_it_was_trained_on_are_refused(capsys: Capsys, tmp_path: Path) -> None:
    """A text that has grown has its end elsewhere: what is held out now was trained on."""
    book = write_text(tmp_path / "book.txt")
    linnet(capsys, "train", "text", book, *TINY, "--seq-len", "32", "--out", tmp_path / "run")
    write_text(book, 2400)
    assert "are not those it was trained on" in refused(capsys, "eval", tmp_path / "run")
    book.unlink()
    assert "there is no file" in refused(capsys, "eval", tmp_path / "run")


def test_a_run_without_a_checkpoint(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes((runs / "image" / "run.json").read_bytes())
    assert "has no checkpoint yet" in refused(capsys, "eval", tmp_path)


def test_help_describes_every_option(capsys: Capsys) -> None:
    text = linnet(capsys, "eval", "--help").out
    for expected in (
        "--checkpoint", "--split", "--rows", "--batch-size", "--beam", "--json", "newest",
        "--weights", "--backend", "--text", "--length",
    ):  # fmt: skip
        assert expected in text


class Parrot:
    """A recogniser that always returns the same labels."""

    def decode(self, features: torch.Tensor, lengths: torch.Tensor, beam: int | None) -> list[list[int]]:
        return [[1, 2, 3, 1], [1, 3, 2]][: len(lengths)]  # "ab a", "a b"


def test_words_are_counted_between_spaces() -> None:
    """References "ab b" and "a b": one letter of seven and one word of four are wrong."""
    wanted = [(1, 2, 3, 2), (1, 3, 2)]
    spoken = [in_memory(str(i), torch.zeros(20, 2), labels) for i, labels in enumerate(wanted)]
    source = SpeechSource(spoken, [BLANK, "a", "b", " "])
    subject = Subject("speech", Parrot(), source, {}, SimpleNamespace(symbols=source.phones))
    symbols, words = _errors(subject, 2, 2, None)
    assert (symbols, words) == (pytest.approx(1 / 7), pytest.approx(1 / 4))
