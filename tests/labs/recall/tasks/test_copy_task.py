"""The copy task: the word, the separator, the word again; targets on the second word only."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from linnet.labs.recall.tasks import CopyTask
from linnet.targets import IGNORE

ERRORS = 5  # standard errors that a count of samples may be off


@pytest.mark.parametrize("seq_len", [12, 32, 128])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_second_word_is_the_first(seq_len: int, split: str) -> None:
    recall = CopyTask(seq_len, split=split, size=300).draw(range(300))
    for tokens, targets, distance, pair in zip(*(part.tolist() for part in recall[:4]), strict=True):
        n = tokens.index(0)
        assert seq_len // 4 <= n <= seq_len // 2 - 2
        word = tokens[:n]
        assert all(1 <= symbol <= 10 for symbol in word)
        assert tokens == [*word, 0, *word, *[0] * (seq_len - 2 * n - 1)]
        assert targets == [*[IGNORE] * n, *word, *[IGNORE] * (seq_len - 2 * n)]
        assert targets[n : 2 * n] == tokens[n + 1 : 2 * n + 1]  # the next token
        assert distance == [*[-1] * n, *[n] * n, *[-1] * (seq_len - 2 * n)]
        assert pair == [*[-1] * n, *range(n), *[-1] * (seq_len - 2 * n)]
    assert not recall.updated.any()


def test_lengths_and_symbols_are_uniform() -> None:
    recall = CopyTask(32).draw(range(4000))
    lengths = (recall.targets != IGNORE).sum(1).bincount(minlength=15)[8:]
    assert len(lengths) == 7
    assert (lengths - 4000 / 7).abs().max() < ERRORS * (4000 / 7) ** 0.5
    symbols = recall.tokens[:, 0].bincount(minlength=11)[1:]
    assert (symbols - 400).abs().max() < ERRORS * 400**0.5


def test_train_and_test_share_no_word() -> None:
    def words(split: str, seed: int) -> set[tuple[int, ...]]:
        task = CopyTask(12, symbols=8, split=split, seed=seed, size=4000)
        tokens = task.draw(range(4000 if split == "train" else 300)).tokens.tolist()
        return {tuple(row[: row.index(0)]) for row in tokens}

    train, held = (words(split, 0) | words(split, 1) for split in ("train", "test"))
    assert not train & held
    assert sum(len(word) == 3 for word in train | held) > 0.9 * 512  # nearly every word of three


def test_a_row_has_the_same_bytes_in_every_batch_and_each_seed_its_own() -> None:
    together = CopyTask(32).draw(range(50)).tokens
    assert torch.equal(CopyTask(32).draw([49, 3]).tokens, together[[49, 3]])
    assert not torch.equal(CopyTask(32, seed=1).draw(range(50)).tokens, together)


def test_it_is_a_source() -> None:
    task = CopyTask(32, symbols=20)
    batch = task.batch([0, 1])
    assert task.vocab_size == 21
    assert task.units(batch) == 64
    assert int(batch["tokens"].max()) < 21


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seq_len": 30}, "seq_len is 30; accepted: multiples of 4, such as 32"),
        ({"seq_len": 4}, "seq_len is 4; accepted: a whole number from 8"),
        ({"symbols": 1}, "symbols is 1; accepted: a whole number from 2"),
        ({"seq_len": 8}, "10 symbols have too few words of 2 to keep train and test apart"),
        ({"split": "valid"}, "unknown split 'valid'"),
    ],
)
def test_bad_fields_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        CopyTask(**change)
