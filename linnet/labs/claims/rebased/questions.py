"""Multiple-choice questions for a language model, without any package: which choice is the most likely one?

    log P(after | before) = sum_i log P(after_i | before, after_1 .. after_{i-1});   the largest of the choices is taken

Questions, examples and their layout are those of linnet/labs/fewshot, which needs lm-eval for its scores. The examples
of a question depend on the seed and its index: they are the same for every model, so models can be compared question by
question.
R rows, T time, E model width, N vocabulary, S tokens scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from ....data import Tokenizer
from ....models import LanguageModel
from ...fewshot.sets import ItemSet
from ...fewshot.superglue import Item

ROWS = 16  # rows per forward pass
Pair = tuple[str, str]  # before (read), after (scored)
Ids = tuple[list[int], int]  # the tokens of both, and how many of the last are scored


def prompts(given: ItemSet, shots: int, seed: int) -> list[list[Pair]]:
    """Return for each item its choices as pairs, preceded by the examples."""
    questions = []
    for place, item in enumerate(given.items):
        shown = Random(f"{seed} {given.name} {place}").sample(given.examples, shots)
        start = "".join("".join(pair_of(one, one["label"], given.kind)) + "\n\n" for one in shown)
        pairs = [pair_of(item, choice, given.kind) for choice in range(len(item["choices"]))]
        questions.append([(start + before, after) for before, after in pairs])
    return questions


def pair_of(item: Item, choice: int, kind: str) -> Pair:
    """Return one choice of an item (linnet/labs/fewshot/sets.py has the kinds)."""
    if kind == "blank":
        return item["choices"][choice], f" {item['ending']}"
    return item["text"], f" {item['choices'][choice]}"


def answers(
    model: LanguageModel, tokenizer: Tokenizer, questions: Sequence[Sequence[Pair]], context: int
) -> tuple[list[int], int]:
    """Return the chosen answers, and how many questions were truncated to fit into `context` tokens."""
    whole = [[tokens_of(tokenizer, pair) for pair in pairs] for pairs in questions]
    cut = sum(any(len(ids) > context + 1 for ids, _ in pairs) for pairs in whole)
    flat = [(fitted(*ids, context, list(tokenizer.prefix)), ids[1]) for pairs in whole for ids in pairs]
    order = sorted(range(len(flat)), key=lambda i: len(flat[i][0]))  # rows of a batch have similar lengths
    nats = [0.0] * len(flat)
    for first in range(0, len(order), ROWS):
        places = order[first : first + ROWS]
        for place, value in zip(places, log_likelihoods(model, [flat[i] for i in places]), strict=True):
            nats[place] = value
    rest = iter(nats)
    scores = [[next(rest) for _ in pairs] for pairs in whole]
    return [score.index(max(score)) for score in scores], cut


def tokens_of(tokenizer: Tokenizer, pair: Pair) -> Ids:
    """Tokenize both parts as one text, and split where the first part ends when tokenized alone."""
    before, after = pair
    whole = [*tokenizer.prefix, *tokenizer.encode(before + after)]
    return whole, len(whole) - len(tokenizer.prefix) - len(tokenizer.encode(before))


def fitted(ids: list[int], scored: int, context: int, prefix: list[int]) -> list[int]:
    """Return the last tokens so that `context` are read, after the prefix; all scored tokens are kept."""
    most = max(context, scored + len(prefix)) + 1  # the last one is not read
    return ids if len(ids) <= most else prefix + ids[len(ids) - most + len(prefix) :]


@torch.inference_mode()
def log_likelihoods(model: LanguageModel, rows: Sequence[Ids]) -> list[float]:
    """Return the log-likelihood of the scored tokens of each row; logits are computed only at scored positions."""
    longest = max(len(ids) for ids, _ in rows) - 1
    tokens = torch.tensor([ids[:-1] + [0] * (longest + 1 - len(ids)) for ids, _ in rows])  # [R,T]
    h, _ = model.backbone(model.embed_inputs(tokens), output_state=False)  # [R,T,E]; padding follows what is scored
    nats = []
    for row, (ids, scored) in enumerate(rows):
        last = len(ids) - 1
        logits: Tensor = model.apply_head(h[row, last - scored : last], tokens)  # [S,N]
        wanted = torch.tensor(ids[-scored:])
        nats.append(float(log_softmax(logits.float(), dim=-1).gather(-1, wanted[:, None]).double().sum()))
    return nats
