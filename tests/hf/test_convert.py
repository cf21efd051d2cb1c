"""Conversions share the network: nothing is copied, folders of linnet load, and what has no counterpart is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from linnet.data import ByteTokenizer
from linnet.models import LanguageModel, ModelConfig, build, preset
from linnet.train import fit
from tests.hf.nets import N, net, tokens
from tests.train.toy import Letters, settings, small_model

pytestmark = pytest.mark.slow


def test_there_and_back_is_the_same_network(hf: ModuleType) -> None:
    model = net()
    before = model.fingerprint()
    wrapped = hf.to_hf(model)
    assert hf.from_hf(wrapped) is model
    assert model.fingerprint() == before
    assert not wrapped.training
    wrapped.train()
    wrapped(tokens(), labels=tokens()).loss.backward()
    assert model.embed.weight.grad is not None
    classifier = build(ModelConfig(task="classify", vocab_size=3, source_vocab_size=N))
    assert hf.from_hf(hf.to_hf(classifier)) is classifier


def test_weights_survive_both_ways_through_folders(hf: ModuleType, tmp_path: Path) -> None:
    model = net(torch.float32, mixer="favor")
    model.save_pretrained(tmp_path / "ours")
    hf.LinnetForCausalLM.from_linnet(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    back = hf.from_hf(hf.LinnetForCausalLM.from_pretrained(tmp_path / "theirs"))
    assert back.fingerprint() == model.fingerprint()
    back.save_pretrained(tmp_path / "again")
    assert LanguageModel.from_pretrained(tmp_path / "again").fingerprint() == model.fingerprint()


def test_a_run_gives_its_checkpoint(hf: ModuleType, tmp_path: Path) -> None:
    model = small_model()
    fit(model, Letters(), Letters(5), settings(steps=2, save_every=2), out=tmp_path)
    assert hf.from_hf(hf.LinnetForCausalLM.from_linnet(tmp_path)).fingerprint() == model.fingerprint()


def test_with_a_tokenizer(hf: ModuleType) -> None:
    model = net(vocab_size=256)
    wrapped, tokenizer = hf.to_hf(model, ByteTokenizer())
    batch = tokenizer(["To be", "or not to be"], padding=True, return_tensors="pt")
    out = wrapped.generate(**batch, do_sample=False, max_new_tokens=4)
    assert out.shape == (2, 12 + 4)
    alone = wrapped.generate(tokenizer("To be", return_tensors="pt").input_ids, do_sample=False, max_new_tokens=4)
    assert out[0, 12:].tolist() == alone[0, 5:].tolist()


def test_what_is_refused(hf: ModuleType, tmp_path: Path) -> None:
    image = build(preset("digits"))
    with pytest.raises(ValueError, match="a ImageModel has no Hugging Face form; accepted: a LanguageModel"):
        hf.to_hf(image)
    with pytest.raises(ValueError, match="the tokenizer has 256 tokens and the model 31"):
        hf.to_hf(net(), ByteTokenizer())
    with pytest.raises(ValueError, match="the model is a Linear; accepted"):
        hf.from_hf(torch.nn.Linear(1, 1))
    image.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a 'image' model; accepted: a 'language' model"):
        hf.LinnetForCausalLM.from_linnet(tmp_path)
