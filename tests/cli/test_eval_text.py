"""`linnet eval FOLDER --text FILE`: every token of the text scored once, in pieces, whatever the tokenizer's prefix."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.cli import main
from linnet.cli.eval_text import Pieces
from linnet.data import ByteTokenizer, Tokenizer
from linnet.data.llama_tokenizer import BOS, LlamaTokenizer
from linnet.models import Model, ModelConfig, build
from tests.cli.command import TINY, linnet, refused, write_text

Capsys = pytest.CaptureFixture[str]
CLOSE = 2e-5  # float32, relative
SIZE = 50
WORDS = [" the", " whale", " ship", " ", "t", "h", "e", "w", "a", "l", "s", "i", "p"]
LEARNED = ["th", "wh", "al", "sh", "ip", " t", " w", " s", "the", " th", "wha", " whal", *WORDS]
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *LEARNED]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `byte` (no prefix) and `llama` (a begin token), a text, and the same text packed."""
    folder = tmp_path_factory.mktemp("place")
    book = write_text(folder / "book.txt", 150)
    (folder / "book.txt.gz").write_bytes(gzip.compress(book.read_bytes()))
    coders: dict[str, Tokenizer] = {"byte": ByteTokenizer(), "llama": LlamaTokenizer(PIECES, [0.0] * len(PIECES))}
    shape: dict[str, Any] = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.2, "mixer": "softmax"}
    torch.manual_seed(0)
    for name, coder in coders.items():
        build(ModelConfig(**shape, positions="rotary", vocab_size=coder.vocab_size)).save_pretrained(folder / name)
        coder.save(folder / name)
    return folder


def by_hand(folder: Path, text: str) -> tuple[float, int, int]:
    """Nats, tokens, and bytes: each piece through the model alone."""
    model: Any = Model.from_pretrained(folder).eval()
    llama = folder.name == "llama"
    coder: Tokenizer = LlamaTokenizer(PIECES, [0.0] * len(PIECES)) if llama else ByteTokenizer()
    ids = coder.encode(text)
    first, nats = (0, 0.0) if llama else (1, 0.0)
    for start in range(first, len(ids), SIZE):
        piece = ids[start : start + SIZE]
        before = [BOS] if llama else [ids[start - 1]]
        with torch.no_grad():
            logits = model(torch.tensor([before + piece[:-1]]))[0][0]
        nats -= float(torch.log_softmax(logits, -1)[range(len(piece)), piece].sum())
    sizes: Any = coder.token_bytes
    return nats, len(ids) - first, sum(len(sizes[i]) for i in ids[first:])


@pytest.mark.parametrize("file", ["book.txt", "book.txt.gz"])
@pytest.mark.parametrize("name", ["byte", "llama"])
def test_every_token_once(capsys: Capsys, place: Path, name: str, file: str) -> None:
    args = ("eval", place / name, "--text", place / file, "--length", SIZE, "--batch-size", 3)
    done = linnet(capsys, *args, "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    nats, count, size = by_hand(place / name, (place / "book.txt").read_text())
    assert set(document) == {"text", "rows", "loss", "bits", "bits_per_byte"}
    assert document["rows"] == -(-count // SIZE) > 3
    assert count % SIZE  # the last piece is short
    assert document["loss"] == pytest.approx(nats / count, rel=CLOSE)
    assert document["bits"] == pytest.approx(nats / count / math.log(2), rel=CLOSE)
    assert document["bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=CLOSE)
    shown = linnet(capsys, *args).out
    assert shown.startswith(f"{document['rows']} pieces of {place / file}: {document['loss']:.4f} nats, ")


@pytest.mark.parametrize("name", ["byte", "llama"])
def test_stepped_as_well(capsys: Capsys, place: Path, name: str) -> None:
    args = ("eval", place / name, "--text", place / "book.txt", "--length", SIZE, "--rows", 4)
    done = linnet(capsys, *args, "--weights", "float32", "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    for key in ("loss", "bits", "bits_per_byte"):
        assert document["stepped"][key] == pytest.approx(document[key], rel=CLOSE)
    assert abs(document["stepped"]["difference"]) < CLOSE * document["bits"]
    assert document["rows"] == 4


def test_a_prefix_of_several_tokens() -> None:
    """Between them nothing is scored."""
    coder = ByteTokenizer()
    coder.prefix = (7, 8, 9)
    batch = Pieces([1, 2, 3, 4, 5], coder, 3).batch([0, 1])
    assert batch["tokens"].tolist() == [[7, 8, 9, 1, 2], [7, 8, 9, 4, 0]]
    assert batch["targets"].tolist() == [[-100, -100, 1, 2, 3], [-100, -100, 4, 5, -100]]


def test_a_run_is_measured_on_its_own_data(capsys: Capsys, place: Path) -> None:
    """But one of its checkpoints is a model like any other, with the tokenizer of the run."""
    text, run = place / "book.txt", place / "run"
    with pytest.raises(SystemExit) as left:
        main.main(["train", "text", str(text), "--seq-len", "32", *TINY, "--out", str(run)])
    assert not left.value.code
    assert "is a run with its own held-out data" in refused(capsys, "eval", run, "--text", text)
    done = linnet(capsys, "eval", run / "checkpoints" / "step-00000004", "--text", text)
    assert done.status == 0, done.err
    assert f"pieces of {text}: " in done.out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "holds a model without data to measure it on; add --text FILE"),
        (("--text", "none.txt"), "there is no file none.txt"),
        (("--text", "book.txt", "--checkpoint", "step-1"), "--checkpoint is step-1, but --text measures a model on"),
        (("--text", "book.txt", "--split", "valid"), "--split is valid, but --text"),
        (("--text", "book.txt", "--beam", "4"), "--beam is 4, but --text"),
        (("--text", "one.txt"), "one.txt has 1 tokens; accepted: a text of 2 or more"),
    ],
)
def test_a_bad_option_is_one_sentence(
    capsys: Capsys, place: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], named: str
) -> None:
    monkeypatch.chdir(place)
    Path("one.txt").write_text("a")
    assert named in refused(capsys, "eval", "byte", *options)


def test_other_models_read_no_text(capsys: Capsys, place: Path, tmp_path: Path) -> None:
    build(ModelConfig(task="image", d_model=16, n_heads=2, n_layers=1, vocab_size=17)).save_pretrained(tmp_path)
    assert "holds a model for the task 'image'" in refused(capsys, "eval", tmp_path, "--text", place / "book.txt")
