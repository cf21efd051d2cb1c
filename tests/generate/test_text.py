"""Text: greedy and sampled tokens against whole forward passes, rows against their neighbours, states, stops, streams.

float64 models run on torch's engine, where a batch of any size gives the same tokens; float32 ones on the one
that open_engine chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from linnet.data import ByteTokenizer
from linnet.errors import StateError
from linnet.generate import Generation, Sampling, generate, generation, open_engine, stream
from linnet.generate.sampling import Draws, choose
from linnet.models import LanguageModel, ModelConfig, ModelState, build

CLOSE = 1e-9  # float64 log-probabilities and states
CLOSE_32 = 2e-4  # float32, native or torch
BYTES = ByteTokenizer()
PROMPTS = ["It was a dark night", "I", "Call me", "the rain fell é"]
MIXERS: list[str | tuple[str, ...]] = [("conv", "elu"), "rebased", "softmax", ("window", "taylor")]


def small(mixer: str | tuple[str, ...] = ("conv", "elu"), **changes: Any) -> LanguageModel:
    torch.manual_seed(1)
    shape = {"d_model": 16, "n_layers": 2, "n_heads": 2, "key_dim": 4, "positions": "rotary", "init_std": 0.3}
    model = build(ModelConfig(mixer=mixer, **(shape | changes)))
    assert isinstance(model, LanguageModel)
    return model.double()


def naive(model: LanguageModel, prompt: list[int], count: int, how: Sampling, row: int) -> list[int]:
    """Return tokens, each from a forward pass over all earlier ones."""
    tokens, draws = list(prompt), Draws(how.seed, row)
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]))[0][:, -1]
        seen = np.isin(np.arange(logits.shape[1]), tokens)[None]
        tokens += choose(logits, how, [draws], seen)
    return tokens[len(prompt) :]


def same(a: ModelState, b: ModelState) -> None:
    torch.testing.assert_close(a.layers, b.layers, atol=0.0, rtol=0.0)
    assert torch.equal(a.position, b.position)


@pytest.mark.parametrize("mixer", MIXERS, ids=str)
@pytest.mark.parametrize(
    "how",
    [
        Sampling(temperature=0),
        Sampling(seed=4),
        Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.2, seed=9),
    ],
    ids=["greedy", "plain", "filtered"],
)
def test_tokens_are_those_of_whole_forward_passes(mixer: str | tuple[str, ...], how: Sampling) -> None:
    model = small(mixer)
    completions = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=9, sampling=how)
    for i, (done, prompt) in enumerate(zip(completions, PROMPTS, strict=True)):
        assert done.prompt_tokens == list(prompt.encode())
        assert done.tokens == naive(model, done.prompt_tokens, 9, how, i)
        assert done.text == BYTES.decode(done.tokens)
        assert (done.finish, done.stop, done.row, done.seed) == ("length", None, i, how.seed)


def test_default_sampling_draws_with_seed_0() -> None:
    model = small()
    (done,) = generate(model, ["It"], tokenizer=BYTES, max_tokens=20)
    assert done.tokens == naive(model, [73, 116], 20, Sampling(), 0)


def test_a_row_does_not_depend_on_the_others_or_on_when_they_end() -> None:
    model, how = small(), Sampling(seed=2)
    alone = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=12, sampling=how)
    stops = [alone[0].tokens[3], alone[2].tokens[6]]
    stopping = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=12, sampling=how, stop_tokens=stops)
    assert len({len(done.tokens) for done in stopping}) > 1
    for a, b in zip(alone, stopping, strict=True):
        assert a.tokens[: len(b.tokens)] == b.tokens
    others = generate(model, ["x", "other words", *PROMPTS[2:]], tokenizer=BYTES, max_tokens=12, sampling=how)
    assert [done.tokens for done in others[2:]] == [done.tokens for done in alone[2:]]


def test_equal_prompts_are_read_once_and_drawn_apart() -> None:
    model, how = small(), Sampling(seed=7)
    completions = generate(model, ["It was", "I", "It was"], tokenizer=BYTES, max_tokens=10, sampling=how)
    assert completions[0].tokens != completions[2].tokens
    for i in (0, 2):
        assert completions[i].tokens == naive(model, completions[i].prompt_tokens, 10, how, i)


def test_long_prompts_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(("conv", "softmax"))
    engine, sizes = open_engine(model), []
    read = engine.read
    monkeypatch.setattr(engine, "read", lambda x, row: (sizes.append(len(x)), read(x, row))[1])
    monkeypatch.setattr(generation, "READ", 4)
    greedy = Sampling(temperature=0)
    (done,) = generate(model, ["It was a dark"], tokenizer=BYTES, max_tokens=5, sampling=greedy, engine=engine)
    assert sizes == [4, 4, 4, 1]
    assert done.tokens == naive(model, done.prompt_tokens, 5, Sampling(temperature=0), 0)


def test_tokens_and_tensors_are_prompts_too_and_need_no_tokenizer() -> None:
    model = small()
    how: dict[str, Any] = {"max_tokens": 6, "sampling": Sampling(seed=1)}
    completions = generate(model, [[73, 116], torch.tensor([73]), (5, 6)], **how)
    assert [done.text for done in completions] == [None] * 3
    assert completions[0].tokens == generate(model, ["It"], tokenizer=BYTES, **how)[0].tokens


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_log_probabilities_are_those_of_the_model(temperature: float) -> None:
    model = small()
    how = Sampling(temperature=temperature, top_k=50, seed=3)
    completions = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=7, sampling=how, logprobs=3)
    for done in completions:
        whole = torch.tensor([done.prompt_tokens + done.tokens])
        with torch.no_grad():
            wanted = model(whole)[0][0, len(done.prompt_tokens) - 1 : -1].log_softmax(1)
        at = torch.tensor(done.tokens)
        torch.testing.assert_close(torch.tensor(done.logprobs).double(), wanted.gather(1, at[:, None])[:, 0])
        values, tokens = wanted.topk(3)
        assert done.top is not None
        assert [[token for token, _ in place] for place in done.top] == tokens.tolist()
        np.testing.assert_allclose([[value for _, value in place] for place in done.top], values, atol=CLOSE)
    (bare,) = generate(model, ["It"], tokenizer=BYTES, max_tokens=2, logprobs=0)
    assert bare.logprobs is not None
    assert (len(bare.logprobs), bare.top) == (2, None)
    assert generate(model, ["It"], tokenizer=BYTES, max_tokens=2)[0].logprobs is None


@pytest.mark.parametrize("mixer", MIXERS, ids=str)
def test_the_state_has_read_all_but_the_last_token(mixer: str | tuple[str, ...]) -> None:
    model = small(mixer)
    stops = [b" "[0], b"e"[0]]
    for done in generate(model, PROMPTS, tokenizer=BYTES, max_tokens=8, stop_tokens=stops):
        read = torch.tensor([done.prompt_tokens + done.tokens[:-1]])
        assert done.state is not None
        with torch.no_grad():
            wanted, next_token = model.read(read)[1], torch.tensor([7])
            torch.testing.assert_close(
                model.step(next_token, done.state)[0], model.step(next_token, wanted)[0], atol=CLOSE, rtol=CLOSE
            )
        assert torch.equal(done.state.position, wanted.position)


@pytest.mark.parametrize("mixer", MIXERS, ids=str)
def test_going_on_from_states_is_as_if_never_stopped(mixer: str | tuple[str, ...]) -> None:
    model, greedy = small(mixer), Sampling(temperature=0)
    whole = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=12, sampling=greedy)
    first = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=5, sampling=greedy)
    states = ModelState.join([done.state for done in first if done.state is not None])
    rest = generate(model, [done.tokens[-1:] for done in first], max_tokens=7, sampling=greedy, states=states)
    assert [a.tokens + b.tokens for a, b in zip(first, rest, strict=True)] == [done.tokens for done in whole]


def test_one_state_serves_all_prompts() -> None:
    model, greedy = small(), Sampling(temperature=0)
    with torch.no_grad():
        _, state = model.read(torch.tensor([BYTES.encode("Once upon ")]))
    kept = state.clone()
    completions = generate(
        model, ["a time", "a hill", "a time"], tokenizer=BYTES, max_tokens=6, sampling=greedy, states=state
    )
    for done, prompt in zip(completions, ("a time", "a hill", "a time"), strict=True):
        assert done.tokens == naive(model, BYTES.encode("Once upon " + prompt), 6, greedy, 0)
    same(state, kept)


def test_equal_prompts_from_different_states_are_not_mixed_up() -> None:
    model, greedy = small(), Sampling(temperature=0)
    begun = [BYTES.encode(text) for text in ("A lamb ", "The grey wolf ")]
    with torch.no_grad():
        states = ModelState.join([model.read(torch.tensor([tokens]))[1] for tokens in begun])
    completions = generate(model, ["sat"] * 2, tokenizer=BYTES, max_tokens=6, sampling=greedy, states=states)
    for done, tokens in zip(completions, begun, strict=True):
        assert done.tokens == naive(model, tokens + BYTES.encode("sat"), 6, greedy, 0)
        assert done.state is not None
        assert done.state.position.tolist() == [len(tokens) + 3 + 5]


def test_stop_strings_cut_the_text_and_keep_the_tokens() -> None:
    model = small()
    (whole,) = generate(model, ["It"], tokenizer=BYTES, max_tokens=60)
    assert whole.text is not None
    stop = whole.text[20:23]
    at = whole.text.index(stop)
    (done,) = generate(model, ["It"], tokenizer=BYTES, max_tokens=60, stop=["never to be seen", stop])
    assert (done.text, done.finish, done.stop) == (whole.text[:at], "stop", stop)
    assert done.tokens == whole.tokens[: len(done.tokens)]
    assert BYTES.decode(done.tokens).endswith(stop)


def test_a_stop_token_is_among_the_tokens_and_not_in_the_text() -> None:
    model = small()
    (whole,) = generate(model, ["It"], tokenizer=BYTES, max_tokens=30)
    token = whole.tokens[11]
    at = whole.tokens.index(token)
    (done,) = generate(model, ["It"], tokenizer=BYTES, max_tokens=30, stop_tokens=[token])
    assert (done.tokens, done.finish, done.stop) == (whole.tokens[: at + 1], "stop", token)
    assert done.text == BYTES.decode(whole.tokens[:at])


def test_text_comes_piece_by_piece_for_each_row() -> None:
    texts: dict[int, list[str]] = {0: [], 1: []}
    completions = generate(
        small(), PROMPTS[:2], tokenizer=BYTES, max_tokens=40, on_text=lambda row, text: texts[row].append(text)
    )
    for done in completions:
        assert "".join(texts[done.row]) == done.text
        assert len(texts[done.row]) > 5
        assert "" not in texts[done.row]


def test_an_engine_that_runs_is_left_as_it_was() -> None:
    model = small()
    engine = open_engine(model)
    rows = engine.add(rows=2)
    engine.step(torch.tensor([5, 6]), rows)
    before = engine.state(rows)
    completions = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=4, engine=engine)
    assert [done.tokens for done in completions] == [
        done.tokens for done in generate(model, PROMPTS, tokenizer=BYTES, max_tokens=4)
    ]

    def fail(row: int, text: str) -> None:
        raise RuntimeError("the reader left")

    with pytest.raises(RuntimeError, match="the reader left"):
        generate(model, PROMPTS, tokenizer=BYTES, max_tokens=40, engine=engine, on_text=fail)
    assert engine.rows == rows
    same(engine.state(rows), before)


def test_stream_gives_what_generate_gives() -> None:
    model, how = small(), {"tokenizer": BYTES, "max_tokens": 20, "logprobs": 0}
    pieces = list(stream(model, "It", **how))
    (done,) = generate(model, ["It"], **how)  # type: ignore[arg-type]
    assert [piece.token for piece in pieces] == done.tokens
    assert [piece.logprob for piece in pieces] == done.logprobs
    assert "".join(piece.text for piece in pieces) == done.text
    assert [piece.completion is not None for piece in pieces] == [False] * 19 + [True]
    last = pieces[-1].completion
    assert last is not None
    assert last.state is not None
    assert (last.text, last.finish) == (done.text, "length")


def test_a_stream_that_is_closed_leaves_the_engine() -> None:
    model = small()
    engine = open_engine(model)
    never_begun = stream(model, "It", tokenizer=BYTES, engine=engine)
    assert engine.rows == []
    pieces = stream(model, "It", tokenizer=BYTES, engine=engine)
    next(pieces)
    assert len(engine.rows) == 1
    pieces.close()  # type: ignore[attr-defined]
    assert engine.rows == []
    del never_begun


def test_a_generation_left_early_keeps_what_it_has() -> None:
    model = small()
    whole = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=20)
    with Generation(model, PROMPTS, tokenizer=BYTES, max_tokens=20) as run:
        for _ in range(6):
            run.step()
    for done, all_of_it in zip(run.completions, whole, strict=True):
        assert (done.tokens, done.finish) == (all_of_it.tokens[:6], "interrupted")
        assert done.text == BYTES.decode(done.tokens)
        assert done.state is not None
        assert int(done.state.position) == len(done.prompt_tokens) + 5
    assert not run.live


def test_a_generation_steps_between_its_beginning_and_its_end() -> None:
    run = Generation(small(), [[1]], max_tokens=2)
    with pytest.raises(StateError, match="no row is running; call step inside `with Generation"):
        run.step()
    with run:
        while run.live:
            run.step()
        with pytest.raises(StateError, match="no row is running"):
            run.step()
    with pytest.raises(StateError, match="has already started; open another"), run:
        pass
    assert len(run.completions[0].tokens) == 2


def test_float32_models_run_on_the_engine_that_is_found() -> None:
    model = small().float()
    completions = generate(model, PROMPTS, tokenizer=BYTES, max_tokens=8, logprobs=0)
    for done in completions:
        whole = torch.tensor([done.prompt_tokens + done.tokens])
        with torch.no_grad():
            wanted = model(whole)[0][0, len(done.prompt_tokens) - 1 : -1].log_softmax(1)
        at = torch.tensor(done.tokens)
        np.testing.assert_allclose(done.logprobs, wanted.gather(1, at[:, None])[:, 0], atol=CLOSE_32)
