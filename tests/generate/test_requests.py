"""Requests: invalid ones are refused in one sentence, with the index of the prompt, and nothing changes."""

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
    rows = engine.add(rows=2)
    engine.step(torch.tensor([5, 6]), rows)
    return engine, rows


CASES: list[tuple[Any, dict[str, Any], str]] = [
    (["It", ""], {}, "prompt 1 is ''; accepted: one token or more"),
    (["It", []], {}, "prompt 1 is []; accepted: one token or more"),
    (["It", torch.tensor([], dtype=torch.long)], {}, "prompt 1 is []; accepted: one token or more"),
    (
        ["It"],
        {"states": state(1), "prompts": [""]},
        "prompt 0 is ''; accepted: one token or more; to continue from a state",
    ),
    ([[1], [2, 300]], {}, "prompt 1[1] is 300; accepted: 0 to 255; use the tokenizer the model was"),
    ([[1], [-1]], {}, "prompt 1[0] is -1; accepted: 0 to 255"),
    ([[1], [1.5]], {}, "prompt 1[0] is 1.5; accepted: token ids"),
    ([torch.zeros(1, 2)], {}, "prompt 0 is torch.float32 [1, 2]; accepted: integers [T]"),
    ([], {}, "prompts is []; accepted: a list of 1 or more prompts"),
    ([1, 2], {}, "prompt 0 is 1; accepted: a text, or token ids as a list or a tensor [T]"),
    ("It", {}, "prompts is one str; accepted: a list of prompts; use [prompt]"),
    (["It"], {"tokenizer": None}, "prompt 0 is a str, but there is no tokenizer"),
    (["It"], {"max_tokens": 0}, "max_tokens is 0; accepted: a whole number, 1 or more"),
    (["It"], {"max_tokens": 2.0}, "max_tokens is 2.0"),
    (["It"], {"stop": ["a", ""]}, "stop is ''; accepted: strings of 1 or more characters"),
    (
        ["It"],
        {"stop": ["abc"], "max_tokens": 2},
        "stop is 'abc'; accepted: strings of up to 2 bytes, the most that 2 tokens hold",
    ),
    (
        ["It"],
        {"stop": "é", "max_tokens": 1},
        "stop is 'é'; accepted: strings of up to 1 bytes, the most that 1 tokens hold",
    ),
    ([[1]], {"stop": ["a"], "tokenizer": None}, "stop is ('a',); accepted: none without a tokenizer"),
    (["It"], {"stop_tokens": [256]}, "stop_tokens[0] is 256; accepted: 0 to 255"),
    (["It"], {"logprobs": -1}, "logprobs is -1; accepted: a whole number from 0 to 256"),
    (["It"], {"logprobs": 257}, "logprobs is 257"),
    (["It"] * 3, {"states": state(2)}, "states has 2 rows for 3 prompts; accepted: one for each, or one"),
    (["It"], {"states": state(1, OTHER)}, "use the model that produced the state"),
]


@pytest.mark.parametrize(("prompts", "how", "sentence"), CASES, ids=[case[2][:40] for case in CASES])
def test_refused_and_the_engine_is_as_it_was(prompts: Any, how: dict[str, Any], sentence: str) -> None:
    engine, rows = running()
    before = engine.state(rows)
    texts: list[str] = []
    arguments = {"tokenizer": BYTES, "engine": engine, "on_text": lambda _, text: texts.append(text)} | how
    prompts = arguments.pop("prompts", prompts)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        generate(MODEL, prompts, **arguments)
    assert isinstance(error.value, StateError) == ("state" in sentence.split(";")[0] or "another model" in sentence)
    assert texts == []
    assert engine.rows == rows
    for old, new in zip(before.layers, engine.state(rows).layers, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))


def test_the_same_words_from_stream_and_beams() -> None:
    for call in (stream, beam_search):
        with pytest.raises(ValueError, match="prompt 0 is ''; accepted: one token or more"):
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
    with pytest.raises(ValueError, match="accepted: strings of up to 18 bytes, the most that 3 tokens hold"):
        generate(model, ["w"], tokenizer=tokenizer, stop=["whale " * 5], max_tokens=3)


def test_a_tokenizer_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the tokenizer has 256 tokens, the model 300; use the tokenizer that"):
        generate(small(vocab_size=300), ["It"], tokenizer=BYTES)


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="a Forecaster does not generate text; accepted: a language model"):
        generate(small(task="forecast", input_dim=1), [[1]])
    assert isinstance(OTHER, LanguageModel)
    with pytest.raises(ValueError, match=r"the engine runs another model; open one for this model"):
        generate(MODEL, [[1]], engine=open_engine(OTHER))


def test_learned_positions_have_room_or_the_request_is_refused() -> None:
    model = small(positions="learned", max_length=8)
    assert isinstance(model, LanguageModel)
    (done,) = generate(model, ["It was"], tokenizer=BYTES, max_tokens=3)  # reads 6 + 2
    assert len(done.tokens) == 3
    with pytest.raises(
        ValueError, match=r"accepted: 1 to 3 after prompt 1 \(6 tokens with its state\) in the 8 learned"
    ):
        generate(model, ["It", "It was"], tokenizer=BYTES, max_tokens=4)
    read = state(1, model)
    assert len(generate(model, ["It"], tokenizer=BYTES, states=read, max_tokens=4)[0].tokens) == 4
    with pytest.raises(ValueError, match=r"accepted: 1 to 4 after prompt 0 \(5 tokens with its state\)"):
        generate(model, ["It"], tokenizer=BYTES, states=read, max_tokens=5)
    with pytest.raises(ValueError, match=r"accepted: none after prompt 0 .*; use a shorter prompt"):
        generate(model, ["It was long"], tokenizer=BYTES, max_tokens=1)


def test_sampling_is_checked_when_it_is_made() -> None:
    with pytest.raises(ValueError, match=r"top_p is 1\.5"):
        generate(MODEL, ["It"], tokenizer=BYTES, sampling=Sampling(top_p=1.5))
