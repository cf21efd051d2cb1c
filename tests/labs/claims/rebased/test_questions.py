"""Questions without lm-eval: likelihoods equal those by hand, and prompts are laid out as the sets say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from linnet.data import ByteTokenizer
from linnet.labs.claims.rebased.questions import answers, fitted, log_likelihoods, prompts, tokens_of
from linnet.labs.fewshot.sets import ItemSet, read_set
from linnet.models import LanguageModel
from tests.labs.fewshot.tiny import WORDS, language_model, write_sets

EXAMPLES = [{"text": f"shown {i}", "choices": ["no", "yes"], "label": i % 2} for i in range(4)]
ITEMS = [{"text": f"asked {i}", "choices": ["no", "perhaps", "yes"], "label": 2} for i in range(3)]
SET = ItemSet("some", "choice", False, ITEMS, EXAMPLES)


@torch.no_grad()
def by_hand(model: LanguageModel, before: str, after: str) -> float:
    first, last = list(before.encode()), list(after.encode())
    log_p = torch.log_softmax(model(torch.tensor([first + last]))[0][0], -1)
    return float(log_p[range(len(first) - 1, len(first) + len(last) - 1), last].sum())


@pytest.mark.parametrize("mixer", ["softmax", "rebased"])
def test_likelihoods_in_a_batch_are_those_of_each_row_alone(mixer: str) -> None:
    model, pairs = language_model(mixer), [("a long beginning", " x"), ("b", " and a longer end")]
    result = log_likelihoods(model, [tokens_of(ByteTokenizer(), pair) for pair in pairs])
    assert result == pytest.approx([by_hand(model, *pair) for pair in pairs], rel=1e-5)


def test_the_most_likely_choice_is_taken() -> None:
    model, questions = language_model(), prompts(SET, 1, 0)
    wanted = []
    for pairs in questions:
        nats = [by_hand(model, *pair) for pair in pairs]
        wanted.append(nats.index(max(nats)))
    assert answers(model, ByteTokenizer(), questions, context=1024) == (wanted, 0)


def test_a_context_that_is_too_long_loses_its_start() -> None:
    model, end = language_model(), ["no", "perhaps"]
    questions = [[("forgotten " * 9 + "here", after) for after in end], [("here", after) for after in end]]
    (long, _), cut = answers(model, ByteTokenizer(), questions, context=4 + len("perhaps") - 1)
    assert cut == 1
    nats = [by_hand(model, ("forgotten " * 9 + "here")[-11 + len(after) :], after) for after in end]
    assert long == nats.index(max(nats))


def test_prompts_show_solved_examples_and_are_the_same_for_every_model() -> None:
    result = prompts(SET, 1, 0)
    assert result == prompts(SET, 1, 0) != prompts(SET, 1, 1)
    for item, pairs in zip(ITEMS, result, strict=True):
        assert [after for _, after in pairs] == [" no", " perhaps", " yes"]
        shown, asked = pairs[0][0].split("\n\n")
        assert asked == item["text"]
        assert shown in {"shown 0 no", "shown 1 yes", "shown 2 no", "shown 3 yes"}
    *all_shown, _ = prompts(SET, 4, 0)[0][0][0].split("\n\n")
    assert sorted(all_shown) == ["shown 0 no", "shown 1 yes", "shown 2 no", "shown 3 yes"]
    assert prompts(SET, 0, 0)[0][0] == ("asked 0", " no")


def test_a_blank_is_scored_by_its_ending(tmp_path: Path) -> None:
    given = read_set("winogrande", write_sets(tmp_path) / "fewshot").first(1)
    (before, after), (other, same) = prompts(given, 0, 0)[0]
    assert before.endswith("so Ann")
    assert other.endswith("so Bo")
    assert after == same == " waved."


def test_a_tokenizer_with_a_prefix_keeps_it_out_of_what_is_scored() -> None:
    ids, scored = tokens_of(WORDS, ("a", " th"))
    assert ids[0] == WORDS.prefix[0]
    assert WORDS.decode(ids[-scored:]).strip() == "th"
    assert ids[1:-scored] == WORDS.encode("a")


def test_the_prefix_stays_when_the_start_goes() -> None:
    ids = [1, *range(10, 20)]
    assert fitted(ids, 2, 10, [1]) == ids  # ten are read, the last is not
    assert fitted(ids, 2, 4, [1]) == [1, 16, 17, 18, 19]
    assert fitted(ids, 6, 4, [1]) == [1, 13, 14, 15, 16, 17, 18, 19]  # all six are scored, one token before them
    assert fitted(ids, 2, 4, []) == [15, 16, 17, 18, 19]
