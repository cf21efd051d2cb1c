"""`linnet import`: a folder that loads as ours, whole or not at all, and one sentence for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linnet.cli.import_model import import_model
from linnet.data import ByteTokenizer, load_tokenizer
from linnet.data.llama_tokenizer import LlamaTokenizer
from linnet.models import Model
from linnet.pretrained import load_llama
from tests.pretrained.llama_files import write_bin, write_gguf, write_hf
from tests.pretrained.llama_numpy import Sizes, random_parts

SIZES = Sizes()
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *(f" w{i}" for i in range(41))]
CODER = LlamaTokenizer(PIECES, [0.0] * len(PIECES))
FILES = ["config.json", "model.safetensors", "tokenizer.json"]


def run(*args: object) -> None:
    import_model([str(arg) for arg in args], exit_on_error=False, result_action="return_value")


def test_a_file_becomes_a_folder_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_bin(tmp_path / "m.bin", SIZES, random_parts(SIZES))
    CODER.save(tmp_path / "t.json")
    out = tmp_path / "models" / "mine"
    run(path, "--tokenizer", tmp_path / "t.json", "--out", out)
    assert sorted(file.name for file in out.iterdir()) == FILES
    assert [file.name for file in out.parent.iterdir()] == ["mine"]
    model, _ = load_llama(path)
    assert Model.from_pretrained(out).fingerprint() == model.fingerprint()
    assert load_tokenizer(out).fingerprint == CODER.fingerprint
    message = capsys.readouterr().out
    for part in ("2 layers, width 24, 4 heads (2 for keys)", "300 tokens (llama)", f"linnet generate text {out}"):
        assert part in message
    with torch.inference_mode():
        assert torch.equal(Model.from_pretrained(out)(torch.tensor([[1, 5]]))[0], model(torch.tensor([[1, 5]]))[0])


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_the_tokenizer_that_lies_with_the_model(kind: str, tmp_path: Path) -> None:
    parts = random_parts(SIZES)
    (tmp_path / "out").mkdir()
    if kind == "hf":
        path = write_hf(tmp_path / "m", SIZES, parts)
        CODER.save(path)
    else:
        pytest.importorskip("gguf")
        path = write_gguf(tmp_path / "m.gguf", SIZES, parts, pieces=(PIECES, [0.0] * len(PIECES)))
    run(path, "--out", tmp_path / "out")  # an empty folder may be there already
    assert load_tokenizer(tmp_path / "out").fingerprint == CODER.fingerprint
    ByteTokenizer().save(tmp_path / "byte.json")
    with pytest.raises(ValueError, match=r"byte\.json has 256 tokens, but .* is a model of 300"):
        run(path, "--out", tmp_path / "other", "--tokenizer", tmp_path / "byte.json")
    assert not (tmp_path / "other").exists()


def test_nothing_is_written_when_something_is_wrong(tmp_path: Path) -> None:
    path = write_bin(tmp_path / "m.bin", SIZES, random_parts(SIZES))
    with pytest.raises(ValueError, match=r"m\.bin has no tokenizer; add --tokenizer: llama2\.c's tokenizer\.bin"):
        run(path, "--out", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing; accepted: a Hugging Face folder"):
        run(tmp_path / "nothing", "--out", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*t\.bin; accepted: a llama2\.c tokenizer"):
        run(path, "--out", tmp_path / "out", "--tokenizer", tmp_path / "t.bin")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.bin"]
    for taken in (path, tmp_path):
        with pytest.raises(ValueError, match="accepted: a folder that does not exist yet, or is empt"):
            run(path, "--out", taken, "--tokenizer", tmp_path / "t.bin")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bin(tmp_path / "m.bin", SIZES, random_parts(SIZES))
    CODER.save(tmp_path / "t.json")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LlamaTokenizer, "save", full)
    with pytest.raises(OSError, match="No space left"):
        run(path, "--tokenizer", tmp_path / "t.json", "--out", tmp_path / "out")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.bin", "t.json"]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    message = capsys.readouterr().out
    for part in (
        "a Hugging Face folder",
        "GGUF",
        "never pickled",
        "--tokenizer",
        "linnet generate text models/stories",
    ):
        assert part in message
