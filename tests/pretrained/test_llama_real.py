"""The two small real models of the folder tiny-lm: logits, loss on their stories, and generated text.

The texts are named where they are measured; nats per token are means after <s>.
"""

from __future__ import annotations

import gzip
import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from linnet.data import data_folder
from linnet.pretrained import load_llama
from tests.pretrained.llama_numpy import logits

pytestmark = pytest.mark.skipif(data_folder("tiny-lm") is None, reason="the folder tiny-lm is not on this machine")
CLOSE = {"atol": 1e-4, "rtol": 1e-4}  # float32 model, float64 reference
NATS = 0.002  # of the means below
FILES = {"260K": ("stories260K.bin", "tok512.bin"), "15M": ("stories15M_f16.npz", "tokenizer32k.bin.gz")}
PARTS = ("tok_embeddings", "attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3", "norm")
WRITTEN = {
    "260K": "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she "
    "saw a big, red ball.",
    "15M": "Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine. One day, "
    "she saw a big, red ball in the sky. It was the sun!",
}


def folder() -> Any:
    result = data_folder("tiny-lm")
    assert result is not None
    return result


@lru_cache
def real(name: str) -> Any:
    file, tokenizer = FILES[name]
    return load_llama(folder() / file, folder() / tokenizer)


@lru_cache
def sample() -> str:
    return gzip.decompress((folder() / "tinystories_sample.txt.gz").read_bytes()).decode()


def nats(name: str, texts: list[str], most: int) -> tuple[float, int]:
    """Return the mean over the first `most` tokens of each text, and their number."""
    model, tokenizer = real(name)
    total, n = 0.0, 0
    for text in texts:
        ids = torch.tensor([[*tokenizer.prefix, *tokenizer.encode(text)[:most]]])
        with torch.inference_mode():
            part, count = model.loss({"tokens": ids[:, :-1], "targets": ids[:, 1:]})
        total, n = total + float(part), n + int(count)
    return total / n, n


@pytest.mark.parametrize("name", ["260K", pytest.param("15M", marks=pytest.mark.slow)])
def test_greedy_text(name: str) -> None:
    model, tokenizer = real(name)
    ids = [*tokenizer.prefix, *tokenizer.encode("Once upon a time")]
    with torch.inference_mode():
        answer, state = model.read(torch.tensor([ids]))
        while len(tokenizer.decode(ids)) < len(WRITTEN[name]):
            ids.append(int(answer.argmax()))
            answer, state = model.step(torch.tensor(ids[-1:]), state)
    assert tokenizer.decode(ids) == WRITTEN[name]


def test_logits_of_the_small_one_are_those_of_the_plain_forward_pass() -> None:
    model, tokenizer = real("260K")
    dim, hidden, layers, heads, kv_heads, vocab, _ = np.fromfile(folder() / FILES["260K"][0], "<i4", 7)
    flat, at, parts = np.fromfile(folder() / FILES["260K"][0], "<f4", offset=28), 0, {}
    shared = dim // heads * kv_heads
    shapes = [(vocab, dim), (layers, dim), (layers, dim, dim), (layers, shared, dim), (layers, shared, dim)]
    shapes += [(layers, dim, dim), (layers, dim), (layers, hidden, dim), (layers, dim, hidden), (layers, hidden, dim)]
    for part, shape in zip(PARTS, [*shapes, (dim,)], strict=True):
        parts[part] = flat[at : at + int(np.prod(shape))].reshape(shape)
        at += int(np.prod(shape))
    ids = [1, *tokenizer.encode(sample())[:300]]
    with torch.inference_mode():
        result = model(torch.tensor([ids]))[0][0]
    torch.testing.assert_close(result.double(), torch.from_numpy(logits(parts, ids, heads, kv_heads)), **CLOSE)


def test_nats_of_the_small_one() -> None:
    """The first 500 tokens of the sample, as it is and with one newline between paragraphs."""
    result, n = nats("260K", [sample()], 500)
    assert (result, n) == (pytest.approx(1.4583, abs=NATS), 500)
    result, _ = nats("260K", [sample().replace("\n\n", "\n")], 500)
    assert result == pytest.approx(1.4138, abs=NATS)


@pytest.mark.slow
def test_nats_and_logits_of_the_larger_one() -> None:
    """The first 25 stories of the sample, at most 255 tokens of each; the logits on 40 tokens of the first."""
    stories = [story for story in re.split(r"(?<!\n)\n(?!\n)", sample()) if story][:25]
    result, n = nats("15M", stories, 255)
    assert (result, n) == (pytest.approx(1.1197, abs=NATS), 4497)
    model, tokenizer = real("15M")
    with np.load(folder() / FILES["15M"][0]) as file:
        parts = {part: file[part] for part in PARTS}
    ids = [1, *tokenizer.encode(stories[0])[:40]]
    with torch.inference_mode():
        ours = model(torch.tensor([ids]))[0][0]
    torch.testing.assert_close(ours.double(), torch.from_numpy(logits(parts, ids, 6, 6)), **CLOSE)
