"""lm-eval's own Hugging Face model runs on a converted model and tokenizer, to the log-likelihoods of linnet's."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from linnet.data import BPETokenizer, ByteTokenizer, Tokenizer
from tests.hf.nets import HYBRID, net

pytestmark = pytest.mark.slow
CLOSE = {"abs": 2e-4}  # float32 logits of both, summed over up to 70 tokens
TEXT = "Call me Ishmael.\nSome years ago, never mind how long precisely, I went to sea.\n"
PAIRS = [("Call me", " Ishmael"), ("Call me", " now"), ("", "Whale"), ("To be\n", "or not\nto be")]


def bpe() -> BPETokenizer:
    return BPETokenizer.train([TEXT * 5], 300)


def requests(kind: str, arguments: list[Any]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(request_type=kind, doc={}, arguments=given, idx=i) for i, given in enumerate(arguments)]


@pytest.mark.parametrize("make", [ByteTokenizer, bpe])
def test_log_likelihoods_are_those_of_linnet(hf: ModuleType, make: type[Tokenizer], tmp_path: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    from linnet.labs.fewshot.adapter import LinnetLM

    tokenizer = make()
    model = net(torch.float32, **HYBRID, vocab_size=tokenizer.vocab_size, max_length=40, init_std=0.15)
    wrapped, words = hf.to_hf(model, tokenizer)
    wrapped.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    theirs = HFLM(str(tmp_path), device="cpu", dtype="float32", batch_size=2, max_length=40)
    ours = LinnetLM(model, tokenizer)
    assert theirs.prefix_token_id == theirs.eot_token_id == words.eos_token_id >= tokenizer.vocab_size
    pairs = [lm.loglikelihood(requests("loglikelihood", PAIRS), disable_tqdm=True) for lm in (ours, theirs)]
    for (a, likeliest), (b, same) in zip(*pairs, strict=True):
        assert b == pytest.approx(a, **CLOSE)
        assert same == likeliest
    whole = requests("loglikelihood_rolling", [(TEXT,), ("Whale",)])  # the first in several windows
    assert theirs.loglikelihood_rolling(whole, disable_tqdm=True) == pytest.approx(
        ours.loglikelihood_rolling(whole, disable_tqdm=True), **CLOSE
    )
    more = requests("generate_until", [("Call me", {"until": ["zzz"], "max_gen_toks": 6, "do_sample": False})])
    assert theirs.generate_until(more, disable_tqdm=True) == ours.generate_until(more, disable_tqdm=True)
