"""Files that linnet wrote at the last commit before linnet/labs still load, with what they held.

tests/files_before has one of each kind, written by its write.py; expected.json says what was computed then. What is
stored is compared exactly, what is computed from it to TOLERANCE, which no processor exceeds.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linnet
from linnet.data import load_tokenizer
from linnet.data.token_file import tokens_of
from linnet.generate import Session
from linnet.models import Model, ModelState
from linnet.regress import ICLTransformer
from linnet.train import read_log
from tests.cli.command import linnet as command

FILES = Path(__file__).parent / "files_before"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}  # float32 logits of tiny models; losses after ten steps
KINDS = {"linear": "State", "softmax": "KVState", "window": "WindowState", "conv": "ConvState", "matrix": "MatrixState"}


def close(loaded: Any, expected: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(loaded), torch.tensor(expected), check_dtype=False, **TOLERANCE)


def held(state: Any) -> dict[str, Any]:
    return {name: None if x is None else x.tolist() for name, x in state._asdict().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_file_of_one_layer(kind: str) -> None:
    state = getattr(linnet, KINDS[kind]).load(FILES / "states" / f"{kind}.safetensors", model="m", tokenizer="t")
    assert held(state) == EXPECTED["states"][kind]


def test_a_state_file_of_version_2() -> None:
    path = FILES / "states" / "all.safetensors"
    header = linnet.read_header(path)
    assert [layer.kind for layer in header.layers] == list(KINDS)
    assert (header.tokens, header.model, header.config) == (3, "m", {"d_model": 8})
    assert header.extras["position"].shape == (2,)
    assert [held(state) for state in linnet.load_states(path)] == list(EXPECTED["states"].values())


@pytest.fixture(scope="module")
def model() -> Model:
    return linnet.load(FILES / "model").model


def test_a_model_folder(model: Model) -> None:
    expected = EXPECTED["model"]
    assert model.fingerprint() == expected["fingerprint"]
    config = json.loads(json.dumps(model.config.to_dict()))
    assert {name: config.pop(name) for name in expected["config"]} == expected["config"]
    assert not any(config.values())  # the options of later versions are off
    with torch.no_grad():
        close(model(torch.tensor(expected["tokens"]))[0], expected["logits"])


def test_the_state_of_a_model_continues(model: Model) -> None:
    state = ModelState.load(FILES / "model-state.safetensors", model=model)
    assert state.position.tolist() == [5, 5]
    with torch.no_grad():
        close(model(torch.tensor([[11], [12]]), state)[0][:, -1], EXPECTED["model"]["next_logits"])


def test_a_session_continues(model: Any) -> None:
    with Session.load(FILES / "session.safetensors", model) as session:
        assert session.tokens == EXPECTED["model"]["tokens"][0]
        close(session.logits, EXPECTED["model"]["logits"][0][-1])
        assert [session.sample() for _ in range(4)] == EXPECTED["model"]["greedy"]


def test_a_run_loads_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = EXPECTED["run"]
    run = tmp_path / "run"
    shutil.copytree(FILES / "run", run)
    loaded = linnet.load(run)
    assert loaded.folder.name == expected["folder"]
    assert loaded.tokenizer is not None
    with torch.no_grad():
        close(loaded.model(torch.tensor([[67, 97, 108]]))[0][0, -1], expected["logits"])
    assert linnet.load(run, checkpoint="4").folder.name == "step-00000004"
    assert command(capsys, "train", "resume", run, "--steps", 10).status == 0
    lines = [line for line in read_log(run / "log.jsonl") if line["kind"] == "step"]
    assert [line["step"] for line in lines] == [step for step, _ in expected["losses"]]
    close([line["loss"] for line in lines], [loss for _, loss in expected["losses"]])


@pytest.mark.parametrize("kind", ["byte", "bpe", "llama"])
def test_a_tokenizer(kind: str) -> None:
    expected, tokenizer = EXPECTED["tokenizers"][kind], load_tokenizer(FILES / "tokenizers" / f"{kind}.json")
    text = (FILES / "tokenizers" / "book.txt").read_text(encoding="utf-8") + "\u00e9"
    assert tokenizer.encode(text) == expected["ids"]
    assert (tokenizer.fingerprint, tokenizer.vocab_size) == (expected["fingerprint"], expected["vocab_size"])


def test_a_token_file_is_used_not_built_again(tmp_path: Path) -> None:
    for path in (FILES / "tokenizers").glob("book.txt*"):
        shutil.copy(path, tmp_path)
    os.utime(tmp_path / "book.txt", (1, 1))  # as it was when the token file was written
    file = next(tmp_path.glob("*.tokens"))
    before = file.stat().st_ino
    tokenizer = load_tokenizer(FILES / "tokenizers" / "bpe.json")
    ids = tokens_of(tmp_path / "book.txt", tokenizer, tmp_path)
    assert ids.tolist() == tokenizer.encode((tmp_path / "book.txt").read_text(encoding="utf-8"))
    assert [path.stat().st_ino for path in tmp_path.glob("*.tokens")] == [before]


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_an_in_context_model(kind: str) -> None:
    model = ICLTransformer.load(FILES / "icl" / f"{kind}.safetensors")
    assert (model.config.kind, model.config.layers, model.config.d, model.config.made) == (kind, 2, 3, {"seed": 0})
    assert {name: x.tolist() for name, x in model.state_dict().items()} == EXPECTED["icl"][kind]


def test_the_state_of_a_regressor() -> None:
    from linnet.regress import InContextRegressor

    expected, regressor = EXPECTED["icl"], InContextRegressor.load(FILES / "icl" / "state.safetensors")
    assert (regressor.count_, regressor.forget_factor) == (expected["count"], 0.9)
    np.testing.assert_allclose(regressor.predict(expected["x"]), expected["predicted"], rtol=1e-6)


@pytest.mark.slow
def test_a_hugging_face_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("linnet.hf")
    words = transformers.AutoTokenizer.from_pretrained(FILES / "hf")
    ids = words("Call me", return_tensors="pt")["input_ids"]
    assert ids.tolist() == EXPECTED["hf"]["ids"]
    with torch.no_grad():
        close(
            transformers.AutoModelForCausalLM.from_pretrained(FILES / "hf")(ids).logits[0, -1], EXPECTED["hf"]["logits"]
        )
