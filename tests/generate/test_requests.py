"""Requests: what cannot be is refused in one sentence, by the index of the prompt, and nothing has changed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from linnet.data import BPETokenizer, ByteTokenizer
from linnet.errors import StateError
from linnet.generate import Engine, Sampling, beam_search, generate, open_engine, stream
from linnet.models import LanguageModel, Model, ModelConfig, ModelState, build

BYTES = ByteTokenizer()


def small(**changes: Any) -> Model:
    torch.manual_seed(0)
    return build(ModelConfig(d_model=16, n_layers=1, n_heads=2, **changes))


MODEL = small()
OTHER = build(ModelConfig(d_model=8, n_layers=1, n_heads=2))


def state(rows: int, model: Model = MODEL) -> ModelState:
    assert isinstance(model, LanguageModel)
    return model.read(torch.zeros(rows, 3, dtype=torch.long))[1]


def running() -> tuple[Engine, list[int]]:
    assert isinstance(MODEL, LanguageModel)
    engine = open_engine(MODEL)
    rows = engine.join(rows=2)
    engine.step(torch.tensor([5, 6]), rows)
    return engine, rows


CASES: list[tuple[Any, dict[str, Any], str]] = [
    (["It", ""], {}, "prompt 1 has no tokens; give at least one token"),
    (["It", []], {}, "prompt 1 has no tokens"),
    (["It", torch.tensor([], dtype=torch.long)], {}, "prompt 1 has no tokens"),
    (["It"], {"states": state(1), "prompts": [""]}, "prompt 0 has no tokens; give at least one token, also to go on"),
    ([[1], [2, 300]], {}, "prompt 1: token 300 at 1 is outside the vocabulary; accepted: 0 to 255"),
    ([[1], [-1]], {}, "prompt 1: token -1 at 0 is outside the vocabulary"),
    ([[1], [1.5]], {}, "prompt 1 has 1.5 at 0; accepted: token numbers"),
    ([torch.zeros(1, 2)], {}, "prompt 0 is torch.float32 [1, 2]; accepted: whole numbers [T]"),
    ([], {}, "prompts is empty"),
    ([1, 2], {}, "prompt 0 is 1; accepted: a text, or token numbers as a list or a tensor [T]"),
    ("It", {}, "prompts is one str; accepted: a list of prompts; use [prompt]"),
    (["It"], {"tokenizer": None}, "prompt 0 is a str, but there is no tokenizer"),
    (["It"], {"max_tokens": 0}, "max_tokens is 0; accepted: a whole number, 1 or more"),
    (["It"], {"max_tokens": 2.0}, "max_tokens is 2.0"),
    (["It"], {"stop": ["a", ""]}, "stop has ''; accepted: strings of 1 or more characters"),
    (["It"], {"stop": ["abc"], "max_tokens": 2}, "the stop string 'abc' has 3 bytes, but 2 tokens hold 2 at most"),
    (["It"], {"stop": "é", "max_tokens": 1}, "the stop string 'é' has 2 bytes, but 1 tokens hold 1 at most"),
    ([[1]], {"stop": ["a"], "tokenizer": None}, "stop is ('a',), but there is no tokenizer"),
    (["It"], {"stop_tokens": [256]}, "stop_tokens: token 256 at 0 is outside the vocabulary"),
    (["It"], {"logprobs": -1}, "logprobs is -1; accepted: a whole number, 0 to 256"),
    (["It"], {"logprobs": 257}, "logprobs is 257"),
    (["It"] * 3, {"states": state(2)}, "states has 2 rows for 3 prompts; accepted: one for each, or one"),
    (["It"], {"states": state(1, OTHER)}, "use the model the state was made by"),
]


@pytest.mark.parametrize(("prompts", "how", "sentence"), CASES, ids=[case[2][:40] for case in CASES])
def test_refused_and_the_engine_is_as_it_was(prompts: Any, how: dict[str, Any], sentence: str) -> None:
    engine, rows = running()
    before = engine.state(rows)
    said: list[str] = []
    arguments = {"tokenizer": BYTES, "engine": engine, "on_text": lambda _, text: said.append(text)} | how
    prompts = arguments.pop("prompts", prompts)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        generate(MODEL, prompts, **arguments)
    assert isinstance(error.value, StateError) == ("state" in sentence.split(";")[0] or "another model" in sentence)
    assert said == []
    assert engine.rows == rows
    for old, new in zip(before.layers, engine.state(rows).layers, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))


def test_the_same_words_from_stream_and_beams() -> None:
    for call in (stream, beam_search):
        with pytest.raises(ValueError, match="prompt 0 has no tokens"):
            call(MODEL, "", tokenizer=BYTES)
        with pytest.raises(ValueError, match="max_tokens is 0"):
            call(MODEL, "It", tokenizer=BYTES, max_tokens=0)


def test_a_stop_that_just_fits_is_taken() -> None:
    (done,) = generate(MODEL, ["It"], tokenizer=BYTES, stop=["abc"], max_tokens=3)
    assert done.finish in ("length", "stop")


def test_stops_of_a_learned_tokenizer_are_measured_by_its_longest_token() -> None:
    tokenizer = BPETokenizer.train(["whale " * 50], 262)
    model = small(vocab_size=tokenizer.vocab_size)
    assert len(tokenizer.encode("whale whale")) < 11
    generate(model, ["w"], tokenizer=tokenizer, stop=["whale whale"], max_tokens=3)
    with pytest.raises(ValueError, match="has 30 bytes, but 3 tokens hold 18 at most"):
        generate(model, ["w"], tokenizer=tokenizer, stop=["whale " * 5], max_tokens=3)


def test_a_tokenizer_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the tokenizer has 256 tokens, the model 300; use the tokenizer that"):
        generate(small(vocab_size=300), ["It"], tokenizer=BYTES)


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="a Forecaster does not write text; accepted: a language model"):
        generate(small(task="forecast", input_dim=1), [[1]])
    assert isinstance(OTHER, LanguageModel)
    with pytest.raises(ValueError, match=r"the engine runs another model; open one for this model"):
        generate(MODEL, [[1]], engine=open_engine(OTHER))


def test_learned_positions_have_room_or_the_request_is_refused() -> None:
    model = small(positions="learned", max_length=8)
    assert isinstance(model, LanguageModel)
    (done,) = generate(model, ["It was"], tokenizer=BYTES, max_tokens=3)  # reads 6 + 2
    assert len(done.tokens) == 3
    with pytest.raises(ValueError, match=r"after prompt 1 \(6 tokens with its state\) there is room for 3 in the 8"):
        generate(model, ["It", "It was"], tokenizer=BYTES, max_tokens=4)
    read = state(1, model)
    assert len(generate(model, ["It"], tokenizer=BYTES, states=read, max_tokens=4)[0].tokens) == 4
    with pytest.raises(ValueError, match=r"\(5 tokens with its state\) there is room for 4 .*; ask for 4 at most"):
        generate(model, ["It"], tokenizer=BYTES, states=read, max_tokens=5)
    with pytest.raises(ValueError, match=r"there is room for 0 .*; use a shorter prompt"):
        generate(model, ["It was long"], tokenizer=BYTES, max_tokens=1)


def test_sampling_is_checked_when_it_is_made() -> None:
    with pytest.raises(ValueError, match=r"top_p is 1\.5"):
        generate(MODEL, ["It"], tokenizer=BYTES, sampling=Sampling(top_p=1.5))
