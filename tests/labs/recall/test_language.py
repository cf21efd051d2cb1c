"""Language models split by recall: the split against plain torch, rows that come again, one comparison to a folder."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.data import TextSource
from linnet.errors import StateError
from linnet.labs.core import read_rows
from linnet.labs.core.results import ROWS
from linnet.labs.core.runner import Hooks
from linnet.labs.recall import language
from linnet.labs.recall.language import evaluate, measured, rows_of, run_plan, train
from linnet.labs.recall.language_config import BUDGETS, Plan, TextConfig, Unit, make_plan
from linnet.labs.recall.language_text import Text, prepared
from linnet.models import LanguageModel
from tests.cli.command import write_text

CLOSE = 1e-5
TINY = TextConfig(**BUDGETS["smoke"]["base"])


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "book.txt")


@pytest.fixture(scope="module")
def text(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Text:
    return prepared([str(book)], 256, tmp_path_factory.mktemp("tokens"))


def plan(book: Path, **fields: Any) -> Plan:
    return make_plan("smoke", {}, **{"text": (str(book),), "mixers": ("softmax", "rebased"), **fields})


def test_the_split_is_that_of_every_target_by_itself(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "BATCH", 3)  # several batches, the last one smaller
    torch.manual_seed(0)
    model = LanguageModel(TINY.model(256))
    windows, bigrams = text.windows("valid", 32), text.bigrams()
    most = bigrams.most(0.5)
    rows = range(2, windows.length)  # the last one is padded
    sums = {"hits": [0.0, 0], "rest": [0.0, 0]}
    for row in rows:
        batch = windows.batch([row])
        scores = model.eval()(batch["tokens"])[0].detach().log_softmax(-1)[0]
        pairs = list(zip(batch["tokens"][0].tolist(), batch["targets"][0].tolist(), strict=True))
        for t, (token, target) in enumerate(pairs):
            if target >= 0:
                rare = int(bigrams.of(torch.tensor(token), torch.tensor(target))) <= most
                part = sums["hits" if rare and (token, target) in pairs[:t] else "rest"]
                part[0], part[1] = part[0] - float(scores[t, target]), part[1] + 1
    result = evaluate(model, windows, bigrams, most, rows)
    assert {part: count for part, (_, count) in result.items()} == {part: count for part, (_, count) in sums.items()}
    assert min(count for _, count in sums.values()) > 10
    for part, (nats, _) in result.items():
        assert nats == pytest.approx(sums[part][0], rel=CLOSE)
    assert sum(count for _, count in result.values()) == windows.units(windows.batch(rows))


def test_measures() -> None:
    result = measured({"hits": (2.0, 4), "rest": (10.0, 4)})
    assert result["hits"] == {"loss": 0.5, "perplexity": exp(0.5), "bits": 0.5 / log(2), "targets": 4}
    assert result["all"]["loss"] == 12 / 8
    nothing = measured({"hits": (0.0, 0), "rest": (1e9, 1)})
    assert nothing["hits"]["loss"] != nothing["hits"]["loss"]
    assert nothing["all"]["perplexity"] > 1e300


def test_a_row_comes_again_to_the_last_bit(text: Text) -> None:
    unit = Unit(TINY.replace(mixer="based", seed=3), text)
    (first,), (again,) = (list(rows_of(unit)) for _ in range(2))
    (other,) = rows_of(Unit(TINY.replace(mixer="based", seed=4), text))
    assert first["metrics"] == again["metrics"] != other["metrics"]
    assert first["config"] == unit.missing()[0]
    assert str(unit) == "based on , rate 0.003, seed 3"
    assert first["metrics"]["chosen_by"] < 0
    assert first["info"]["parameters"] > 0


def test_the_seed_decides_the_weights_too(text: Text) -> None:
    """At a rate of nothing only the start is left."""
    losses = [next(rows_of(Unit(TINY.replace(seed=seed, lr=1e-30), text)))["metrics"]["all"]["loss"] for seed in (0, 1)]
    assert losses[0] != losses[1]


class Interrupted(TextSource):
    """Ctrl-C comes while the second batch is read."""

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        self.reads = getattr(self, "reads", 0) + 1
        if self.reads == 2:
            signal.raise_signal(signal.SIGINT)
        return super().batch(rows)


def test_half_a_run_is_no_row(book: Path, text: Text) -> None:
    source = Interrupted(str(book), text.tokenizer(), 32)
    with pytest.raises(KeyboardInterrupt):
        train(LanguageModel(TINY.model(256)), source, TINY.replace(steps=50))
    assert source.reads < 5  # a step or so after the signal


def test_what_diverges_says_so(text: Text) -> None:
    config = TINY.replace(lr=1e30, steps=5)
    assert train(LanguageModel(config.model(256)), text.windows("train", 32), config) == "diverged"


def test_only_what_is_missing_is_run(book: Path, tmp_path: Path) -> None:
    assert run_plan(plan(book, mixers=("softmax",)), tmp_path) == []
    before = (tmp_path / ROWS).read_bytes()
    started: list[str] = []
    hooks = Hooks(start=lambda configs: started.extend(config["mixer"] for config in configs))
    assert run_plan(plan(book), tmp_path, hooks=hooks) == []
    assert started == ["rebased"]
    assert (tmp_path / ROWS).read_bytes().startswith(before)
    rows = read_rows(tmp_path / ROWS)
    assert [row["config"]["mixer"] for row in rows] == ["softmax", "rebased"]
    assert rows[0]["metrics"]["all"]["targets"] == rows[1]["metrics"]["all"]["targets"]
    assert {row["config"]["text"] for row in rows} == {"book.txt"}


def test_a_folder_holds_one_comparison(book: Path, tmp_path: Path) -> None:
    run_plan(plan(book, mixers=("softmax",)), tmp_path)
    before = (tmp_path / ROWS).read_bytes()
    other = make_plan("smoke", {"steps": 4}, text=(str(book),))
    with pytest.raises(StateError, match="holds rows with steps 3, and 4 is requested; name another folder"):
        run_plan(other, tmp_path)
    changed = write_text(tmp_path / "book.txt", 1300)
    with pytest.raises(StateError, match="holds rows with data"):
        run_plan(plan(changed), tmp_path)
    assert (tmp_path / ROWS).read_bytes() == before


@pytest.mark.parametrize(
    ("fields", "base", "sentence"),
    [
        ({"mixers": ("rebasd",)}, {}, "unknown mixer 'rebasd'; did you mean 'rebased'"),
        ({"mixers": ()}, {}, "mixers has no value"),
        ({"seeds": 0}, {}, "seeds is 0"),
        ({}, {"rare": 0.0}, "rare is 0.0"),
        ({}, {"vocab_size": 100}, "vocab_size is 100; accepted: a whole number, 256 or more"),
        ({}, {"steps": 0}, "steps is 0"),
        ({"rates": (-1.0,)}, {}, "lr is -1.0"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], base: dict[str, Any], sentence: str, book: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_plan("smoke", base, **{"text": (str(book),), **fields})


def test_a_text_that_is_too_short(book: Path, text: Text) -> None:
    with pytest.raises(
        ValueError, match=r"has \d+ held-out windows of 32 tokens; accepted: more than chosen_on \(500\)"
    ):
        make_plan("smoke", {"chosen_on": 500}, text=(str(book),)).units(text)


def test_budgets() -> None:
    with pytest.raises(ValueError, match="unknown budget 'hours'; did you mean 'hour'"):
        make_plan("hours", {})
    hour = make_plan("hour", {}, text=("shipped",))
    assert len(hour.configs()) == 3 * 2 * 5
    assert hour.configs()[0].mixer == "softmax"  # the slowest first
    assert TextConfig.from_dict(TINY.to_dict()) == TINY
    narrow, wide = (TextConfig(mixer=mixer).model(2048).key_dim for mixer in ("rebased", "softmax"))
    assert (narrow, wide) == (16, None)
