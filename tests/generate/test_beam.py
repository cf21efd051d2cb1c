"""Beam search: a wide beam finds what enumerating everything finds, and one beam is greedy."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

from linnet.data import ByteTokenizer
from linnet.data.llama_tokenizer import LlamaTokenizer
from linnet.generate import Sampling, beam_search, generate, open_engine
from linnet.models import LanguageModel, ModelConfig, build

CLOSE = 1e-9  # float64
BYTES = ByteTokenizer()


def small(vocab_size: int, mixer: str = "elu", seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    model = build(ModelConfig(d_model=8, n_layers=2, n_heads=2, mixer=mixer, vocab_size=vocab_size, init_std=0.7))
    assert isinstance(model, LanguageModel)
    return model.double()


def enumerated(
    model: LanguageModel, prompt: list[int], longest: int, stops: set[int], penalty: float
) -> list[tuple[float, list[int]]]:
    """Return all continuations that end in their first stop token or at the maximum length, best first."""
    every = list(product(range(model.config.vocab_size), repeat=longest))
    with torch.no_grad():
        scores = model(torch.tensor([[*prompt, *tokens] for tokens in every]))[0].log_softmax(-1)  # [B,T,N]
    results = {}
    for row, tokens in enumerate(every):
        end = next((i + 1 for i, token in enumerate(tokens) if token in stops), longest)
        total = sum(float(scores[row, len(prompt) - 1 + i, token]) for i, token in enumerate(tokens[:end]))
        results[tokens[:end]] = total / end**penalty
    return sorted(((score, list(tokens)) for tokens, score in results.items()), reverse=True)


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("stops", [set(), {1}, {0, 2}], ids=str)
def test_a_wide_beam_finds_the_best_of_all(penalty: float, stops: set[int]) -> None:
    model, prompt = small(4, seed=len(stops)), [3, 0]
    wanted = enumerated(model, prompt, 4, stops, penalty)[:5]
    results = beam_search(
        model, prompt, beams=256, max_tokens=4, stop_tokens=sorted(stops), length_penalty=penalty, returned=5
    )
    assert [done.tokens for done in results] == [tokens for _, tokens in wanted]
    assert [done.score for done in results] == pytest.approx([score for score, _ in wanted], abs=CLOSE)
    for done in results:
        stopped = done.tokens[-1] in stops
        assert (done.finish, done.stop) == (("stop", done.tokens[-1]) if stopped else ("length", None))
        assert done.logprobs is not None
        assert done.score == pytest.approx(sum(done.logprobs) / len(done.tokens) ** penalty, abs=CLOSE)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_the_search_does_not_end_too_early(penalty: float) -> None:
    early = 0
    for seed in range(12):
        model = small(4, seed=seed)
        score, tokens = enumerated(model, [2], 5, {1}, penalty)[0]
        (done,) = beam_search(model, [2], beams=1024, max_tokens=5, stop_tokens=[1], length_penalty=penalty)
        assert (done.tokens, done.score) == (tokens, pytest.approx(score, abs=CLOSE))
        early += done.finish == "stop"
    assert early > 0


@pytest.mark.parametrize("mixer", ["elu", "softmax"])
@pytest.mark.parametrize("stops", [[], [17, 30, 41, 42]], ids=str)
def test_one_beam_is_greedy(mixer: str, stops: list[int]) -> None:
    model = small(50, mixer)
    for prompt in ([1, 2, 3], [4], [9, 9]):
        (greedy,) = generate(model, [prompt], max_tokens=15, sampling=Sampling(temperature=0), stop_tokens=stops)
        (done,) = beam_search(model, prompt, beams=1, max_tokens=15, stop_tokens=stops)
        assert (done.tokens, done.finish, done.stop) == (greedy.tokens, greedy.finish, greedy.stop)


@pytest.mark.parametrize("mixer", ["elu", "softmax"])
def test_states_follow_their_beams(mixer: str) -> None:
    model, prompt = small(12, mixer), [3, 1, 4, 1, 5]
    results = beam_search(model, prompt, beams=6, max_tokens=7, returned=6, stop_tokens=[2])
    assert len({tuple(done.tokens) for done in results}) == len(results) == 6
    assert results == sorted(results, key=lambda done: -(done.score or 0))
    for done in results:
        assert done.prompt_tokens == prompt
        assert done.state is not None
        with torch.no_grad():
            whole = model(torch.tensor([prompt + done.tokens]))[0][0, len(prompt) - 1 : -1].log_softmax(1)
            wanted = model.read(torch.tensor([prompt + done.tokens[:-1]]))[1]
        assert done.logprobs == pytest.approx(whole.gather(1, torch.tensor(done.tokens)[:, None])[:, 0].tolist())
        torch.testing.assert_close(done.state.layers, wanted.layers, atol=CLOSE, rtol=CLOSE)


def test_more_beams_are_never_worse_here_and_go_on_from_a_state() -> None:
    model = small(30)
    scores = [beam_search(model, [1, 2, 3, 4], beams=n, max_tokens=8)[0].score or 0.0 for n in (1, 4, 16)]
    assert all(more >= less - CLOSE for less, more in pairwise(scores)), scores
    with torch.no_grad():
        _, state = model.read(torch.tensor([[1, 2, 3]]))
    (done,) = beam_search(model, [4], beams=4, max_tokens=8, states=state)
    assert done.score == pytest.approx(scores[1], abs=CLOSE)


def test_text_ends_before_the_stop_token() -> None:
    model = small(256)
    (done,) = beam_search(model, "It", tokenizer=BYTES, beams=3, max_tokens=6)
    assert done.text == BYTES.decode(done.tokens)
    (cut,) = beam_search(model, "It", tokenizer=BYTES, beams=1, max_tokens=6, stop_tokens=done.tokens[2:3])
    assert cut.finish == "stop"
    assert cut.text == BYTES.decode(cut.tokens[:-1])


def test_text_begins_with_the_space_it_continues_with() -> None:
    """The text is that of `generate`: a Llama tokenizer strips a space only at the start of a complete text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *(f" {i}" for i in range(1000))]
    tokenizer = LlamaTokenizer(pieces, [0.0] * len(pieces))
    model = small(tokenizer.vocab_size)
    (best,) = beam_search(model, "It", tokenizer=tokenizer, beams=1, max_tokens=4)
    (greedy,) = generate(model, ["It"], tokenizer=tokenizer, max_tokens=4, sampling=Sampling(temperature=0))
    assert best.tokens == greedy.tokens
    assert best.text == greedy.text
    assert (best.text or "").startswith(" ")


def test_the_engine_is_left_as_it_was() -> None:
    model = small(20)
    engine = open_engine(model)
    rows = engine.add()
    engine.step(torch.tensor([3]), rows)
    before = engine.state(rows)
    beam_search(model, [1, 2], beams=4, max_tokens=5, engine=engine)
    assert engine.rows == rows
    assert all(torch.equal(a, b) for a, b in zip(before.layers[0], engine.state(rows).layers[0], strict=True))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"beams": 0}, "beams is 0; accepted: a whole number, 1 or more"),
        ({"beams": 2, "returned": 3}, "returned is 3; accepted: a whole number from 1 to 2"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"length_penalty": "long"}, "length_penalty is 'long'"),
        ({"length_penalty": 11}, "length_penalty is 11; accepted: -10 to 10"),
        ({"stop_tokens": [20]}, r"stop_tokens\[0\] is 20; accepted: 0 to 19"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ],
    ids=str,
)
def test_refused(how: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        beam_search(small(20), [1], **how)  # type: ignore[arg-type]
