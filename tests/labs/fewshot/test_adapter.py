"""LinnetLM under lm-eval: log-likelihoods are those of the logits, and a shared context changes nothing.

These import lm-eval, which takes seconds, so they are slow tests.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from linnet.data import ByteTokenizer, Tokenizer
from linnet.models import LanguageModel
from tests.labs.fewshot.tiny import WORDS, language_model

pytestmark = pytest.mark.slow

CLOSE = 2e-5  # float32, relative to nats of tens
MIXERS = ["softmax", "elu", "rebased", "delta", "window", "conv"]
PAIRS = [
    ("the cat sat", " on the mat"),
    ("the cat sat", " down"),
    ("the cat sat", " a"),
    ("a rather longer text that is read before the two choices", " yes"),
    ("a rather longer text that is read before the two choices", " no"),
    ("alone", " here and now"),
    ("", "at the start"),
    ("ends with a space ", "word"),
]


def requests(*args: tuple[Any, ...]) -> list[Any]:
    return [SimpleNamespace(args=each) for each in args]


def adapter(model: LanguageModel, tokenizer: Tokenizer | None = None, **how: Any) -> Any:
    from linnet.labs.fewshot import LinnetLM

    return LinnetLM(model, tokenizer or ByteTokenizer(), **how)


@torch.no_grad()
def by_hand(model: LanguageModel, tokenizer: Tokenizer, context: str, choice: str, first: int) -> tuple[float, bool]:
    """One row alone, the logits of every position."""
    whole = [*tokenizer.prefix, *tokenizer.encode(context + choice)]
    cut = len([*tokenizer.prefix, *tokenizer.encode(context.rstrip())])
    if not context:
        whole, cut = [first, *tokenizer.encode(choice)], 1
    log_p = torch.log_softmax(model(torch.tensor([whole]))[0][0].double(), -1)
    scored = whole[cut:]
    rows = log_p[cut - 1 : len(whole) - 1]
    return float(rows[range(len(scored)), scored].sum()), rows.argmax(-1).tolist() == scored


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), WORDS], ids=["byte", "llama"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_log_likelihoods_are_those_of_the_logits(mixer: str, tokenizer: Tokenizer) -> None:
    model = language_model(mixer, tokenizer)
    first = tokenizer.prefix[0] if tokenizer.prefix else ord("\n")
    wanted = [by_hand(model, tokenizer, *pair, first) for pair in PAIRS]
    for tokens in (1, 100, 4096):
        answers = adapter(model, tokenizer, batch_tokens=tokens).loglikelihood(requests(*PAIRS), disable_tqdm=True)
        for (nats, greedy), (expected, likely) in zip(answers, wanted, strict=True):
            assert nats == pytest.approx(expected, rel=CLOSE)
            assert greedy == likely


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_shared_context_changes_nothing(mixer: str) -> None:
    model = language_model(mixer).double()
    shared = adapter(model).loglikelihood(requests(*PAIRS), disable_tqdm=True)
    alone = adapter(model, reuse=False).loglikelihood(requests(*PAIRS), disable_tqdm=True)
    assert [nats for nats, _ in shared] == pytest.approx([nats for nats, _ in alone], rel=1e-10)
    assert [greedy for _, greedy in shared] == [greedy for _, greedy in alone]


def test_a_context_is_read_once_for_its_choices() -> None:
    """Counted in tokens that go through the embedding."""
    model, seen = language_model("elu"), []
    model.embed.register_forward_hook(lambda module, given, out: seen.append(given[0].numel()))
    pairs = [("x" * 300, f" {i}") for i in range(10, 14)]
    adapter(model).loglikelihood(requests(*pairs), disable_tqdm=True)
    assert sum(seen) == 299 + 4 * 3
    seen.clear()
    adapter(model, reuse=False).loglikelihood(requests(*pairs), disable_tqdm=True)
    assert sum(seen) == 4 * 302


def test_the_greedy_continuation_is_said_to_be_greedy() -> None:
    model = language_model("elu")
    lm = adapter(model)
    with torch.no_grad():
        first = int(model(torch.tensor([list(b"the cat sat")]))[0][0, -1].argmax())
    answers = lm._loglikelihood_tokens([(("", ""), list(b"the cat sat"), [first]), (("", ""), [65, 66], [])])
    assert answers[0][1] is True
    assert answers[1] == (0.0, True)


@pytest.mark.parametrize("positions", ["none", "learned"])
def test_a_long_prompt_loses_its_start(positions: str) -> None:
    model = language_model("softmax", WORDS, positions=positions, max_length=12)
    lm = adapter(model, WORDS)
    pairs = [("abcdefghijklmnopqrstuvw", " xy"), ("abcdefghijklmnopqrstuvw", " z"), ("ab", " c")]
    answers = lm.loglikelihood(requests(*pairs), disable_tqdm=True)
    assert lm.cut == {pairs[0][0]}
    choice = WORDS.encode(pairs[0][0] + " xy")[-3:]
    kept = [1, *WORDS.encode(pairs[0][0])[-(12 - 3 + 1 - 1) :]]  # the begin token stays
    with torch.no_grad():
        log_p = torch.log_softmax(model(torch.tensor([kept + choice[:-1]]))[0][0], -1)
    assert len(kept + choice[:-1]) == 12
    assert answers[0][0] == pytest.approx(float(log_p[range(len(kept) - 1, 12), choice].sum()), rel=CLOSE)


def test_rolling_scores_every_token_once() -> None:
    model = language_model("elu", max_length=8)
    text = "a text of some length"
    ids = list(text.encode())
    whole = adapter(model, context=100).loglikelihood_rolling(requests((text,), ("",)))
    with torch.no_grad():
        log_p = torch.log_softmax(model(torch.tensor([[10, *ids[:-1]]]))[0][0], -1)
    assert whole == [pytest.approx(float(log_p[range(len(ids)), ids].sum()), rel=CLOSE), 0.0]
    (pieces,) = adapter(model).loglikelihood_rolling(requests((text,)))
    nats = 0.0
    for start in range(0, len(ids), 8):  # the last window looks back as far as it can
        end = min(start + 8, len(ids))
        given = [10, *ids][max(end - 8, 0) : end]
        with torch.no_grad():
            log_p = torch.log_softmax(model(torch.tensor([given]))[0][0], -1)
        nats += float(log_p[range(8 - (end - start), 8), ids[start:end]].sum())
    assert pieces == pytest.approx(nats, rel=CLOSE)


def test_text_is_generated_until_a_stop() -> None:
    from linnet.generate import Sampling, generate

    model = language_model("elu", init_std=0.5)
    prompts = ["the cat", "a", "the dog and"]
    wanted = generate(model, prompts, tokenizer=ByteTokenizer(), max_tokens=12, sampling=Sampling(temperature=0))
    how = {"until": [], "max_gen_toks": 12, "do_sample": False}
    result = adapter(model).generate_until(requests(*((prompt, how) for prompt in prompts)))
    assert result == [each.text for each in wanted]
    stop = result[1][2]
    (until,) = adapter(model).generate_until(requests(("a", how | {"until": [stop]})))
    assert until == result[1][: result[1].index(stop)]
    assert len(adapter(model).generate_until(requests(("", how)))) == 1


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="tokenizer has 288 tokens, the model 256"):
        adapter(language_model("elu"), WORDS)
    learned = language_model("elu", positions="learned", max_length=8)
    with pytest.raises(ValueError, match="context is 9; accepted: a whole number from 1 to 8"):
        adapter(learned, context=9)
    assert adapter(language_model("elu", max_length=8), context=9).max_length == 9
    with pytest.raises(ValueError, match="a choice has 10 tokens, but this model has 8 positions"):
        adapter(learned).loglikelihood(requests(("ab", " 123456789")), disable_tqdm=True)


def test_a_choice_longer_than_the_context_is_read_whole() -> None:
    model = language_model("elu", max_length=8)
    lm = adapter(model)
    answers = lm.loglikelihood(requests(("ab", " 123456789")), disable_tqdm=True)
    assert answers == adapter(model, context=99).loglikelihood(requests(("b", " 123456789")), disable_tqdm=True)
    assert lm.cut == {"ab"}
