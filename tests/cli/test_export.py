"""`linnet export`: what `linnet import` reads back, whole or not at all, and a sentence for what cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.cli.export_model import export_model
from linnet.cli.import_model import import_model
from linnet.data import BPETokenizer, ByteTokenizer
from linnet.models import Model
from linnet.pretrained.huggingface import ARCHITECTURES
from tests.pretrained.test_export import MADE, made


def run(app: object, *args: object) -> None:
    app([str(arg) for arg in args], exit_on_error=False, result_action="return_value")  # type: ignore[operator]


def test_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bpe = BPETokenizer.train(["a text to learn, and another to read"], 300)
    made(MADE["qwen3_next"], vocab_size=bpe.vocab_size).save_pretrained(tmp_path / "ours")
    bpe.save(tmp_path / "ours")
    run(export_model, tmp_path / "ours", "--out", tmp_path / "theirs")
    run(import_model, tmp_path / "theirs", "--out", tmp_path / "again")
    run(export_model, tmp_path / "again", "--out", tmp_path / "last")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "last" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    said = capsys.readouterr().out
    for part in (
        f"{tmp_path / 'theirs'}: model_type qwen3_next, ",
        "3 layers (2 gated_delta, 1 softmax), width 32;",
        "AutoModelForCausalLM.from_pretrained",
    ):
        assert part in said
    assert "left out" not in said


def test_another_architecture_and_a_tokenizer_without_a_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(MADE["qwen3_next"], vocab_size=256).save_pretrained(tmp_path / "m")
    ByteTokenizer().save(tmp_path / "m")
    run(export_model, tmp_path / "m", "--out", tmp_path / "out", "--model-type", "qwen3_5_text")
    said = capsys.readouterr().out
    assert "model_type qwen3_5_text" in said
    assert "the tokenizer (byte) has no form that transformers reads, and was left out" in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_what_is_refused_writes_nothing(tmp_path: Path) -> None:
    made(MADE["llama"], mixer="elu").save_pretrained(tmp_path / "m")
    for args, sentence in (
        ((), "mixer is 'elu'; accepted: 'softmax'"),
        (("--model-type", "gpt2"), "unknown model_type 'gpt2'"),
        (("--checkpoint", "best"), "is not the folder of a run; leave it out"),
    ):
        with pytest.raises(ValueError, match=sentence):
            run(export_model, tmp_path / "m", "--out", tmp_path / "out", *args)
    with pytest.raises(ValueError, match="a folder that does not exist yet, or is empty"):
        run(export_model, tmp_path / "m", "--out", tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert isinstance(Model.from_pretrained(tmp_path / "m"), Model)


@pytest.mark.parametrize("app", [import_model, export_model], ids=["import", "export"])
def test_help_teaches_every_architecture(app: object, capsys: pytest.CaptureFixture[str]) -> None:
    run(app, "--help")
    said = capsys.readouterr().out
    for name in (*ARCHITECTURES, "linnet import mamba2-130m/ --out models/mamba2"):
        assert name in said
