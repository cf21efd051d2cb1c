"""evaluate: rows are what each item by hand gives, examples come from those held back, and nothing is said aloud."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.data import ByteTokenizer, data_folder
from linnet.labs.fewshot.sets import SETS, read_set
from linnet.models import LanguageModel
from tests.labs.fewshot.tiny import SIZE, language_model, write_sets

pytestmark = pytest.mark.slow

Capfd = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sets(tmp_path_factory.mktemp("data")) / "fewshot"


def evaluate(*args: Any, **how: Any) -> Any:
    from linnet.labs import fewshot

    return fewshot.evaluate(*args, **how)


@torch.no_grad()
def nats(model: LanguageModel, context: str, choice: str) -> float:
    before, after = list(context.encode()), list(choice.encode())
    log_p = torch.log_softmax(model(torch.tensor([before + after]))[0][0], -1)
    return float(log_p[range(len(before) - 1, len(before) + len(after) - 1), after].sum())


def right(model: LanguageModel, item: dict[str, Any], kind: str) -> tuple[bool, bool]:
    """Is the right choice the most likely one; and per letter?"""
    if kind == "blank":
        scores = [nats(model, choice, " " + item["ending"]) for choice in item["choices"]]
    else:
        scores = [nats(model, item["text"], " " + choice) for choice in item["choices"]]
    per_letter = [score / len(choice) for score, choice in zip(scores, item["choices"], strict=True)]
    return scores.index(max(scores)) == item["label"], per_letter.index(max(per_letter)) == item["label"]


@pytest.mark.parametrize("mixer", ["softmax", "elu"])
def test_zero_shot_rows_are_those_of_every_item_by_hand(place: Path, mixer: str) -> None:
    model = language_model(mixer)
    names = [name for name in SETS if name != "lambada"]
    rows = evaluate(model, ByteTokenizer(), names, (0,), data=place)
    assert [row.task for row in rows] == names
    for row in rows:
        given = read_set(row.task, place)
        hits = [right(model, item, given.kind) for item in given.items]
        n = len(hits)
        mean = sum(hit for hit, _ in hits) / n
        assert (row.items, row.shots, row.cut, row.chance) == (n, 0, 0, given.chance)
        assert row.accuracy == pytest.approx(mean)
        assert row.stderr == pytest.approx(math.sqrt(mean * (1 - mean) / (n - 1)))
        assert row.accuracy_norm == (pytest.approx(sum(hit for _, hit in hits) / n) if given.normed else None)


def test_the_word_of_lambada_and_its_perplexity(place: Path) -> None:
    model = language_model("elu")
    (row,) = evaluate(model, ByteTokenizer(), ["lambada"], (0,), data=place)
    items = read_set("lambada", place).items
    scores = [nats(model, item["text"], " " + item["word"]) for item in items]
    assert row.perplexity == pytest.approx(math.exp(-sum(scores) / len(scores)), rel=1e-4)
    assert (row.chance, row.accuracy_norm) == (0.0, None)


def solved(item: dict[str, Any]) -> str:
    """An item with its answer, as an example has it."""
    if "word" in item:
        return f"{item['text']} {item['word']}"
    right = item["choices"][item["label"]]
    return f"{right} {item['ending']}" if "ending" in item else f"{item['text']} {right}"


def test_examples_stand_before_the_question_and_are_those_held_back(place: Path) -> None:
    from linnet.labs import fewshot

    seen: list[tuple[str, str]] = []

    class Listening(fewshot.LinnetLM):
        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> Any:
            seen.extend(request.args for request in requests)
            return super().loglikelihood(requests, disable_tqdm)

    lm = Listening(language_model("elu"), ByteTokenizer())
    sets = fewshot.open_sets(["piqa", "winogrande", "lambada"], (2,), 3, data=place)
    fewshot.ask(lm, sets, (2,), seed=1)
    for given in sets:
        shown = [solved(item) for item in given.examples]
        for item in given.items:
            questions = item["choices"] if given.kind == "blank" else [item["text"]]
            asked = [context.removesuffix(q) for context, _ in seen for q in questions if context.endswith("\n\n" + q)]
            assert len(asked) == (1 if given.kind == "word" else 2)
            for examples in asked:
                assert sum(f"{example}\n\n" in examples for example in shown) == 2
                assert len(examples) == sum(len(example) + 2 for example in shown if f"{example}\n\n" in examples)
    first = list(seen)
    seen.clear()
    fewshot.ask(lm, sets, (2,), seed=1)
    assert seen == first
    seen.clear()
    fewshot.ask(lm, sets, (2,), seed=2)
    assert seen != first


def test_limits_shots_and_progress(place: Path) -> None:
    reported: list[tuple[int, int]] = []
    model = language_model("elu", max_length=100)
    how = {"data": place, "on_progress": lambda done, total: reported.append((done, total)), "batch_tokens": 300}
    rows = evaluate(model, ByteTokenizer(), ["piqa", "copa"], (0, 1, 5), 4, **how)
    assert [(row.task, row.shots, row.items) for row in rows] == [
        (name, n, 4) for name in ("piqa", "copa") for n in (0, 1, 5)
    ]
    assert [row.cut for row in rows] == [0, 0, 4, 0, 0, 4]
    done, totals = zip(*reported, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {done[-1]}
    assert evaluate(model, ByteTokenizer(), ["cb"], (0,), 1, data=place)[0].stderr is None


def test_nothing_is_said_or_kept(place: Path, tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bars, no remarks, no git, no cache in the home folder; off the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    evaluate(language_model("elu"), ByteTokenizer(), ["piqa", "winogrande"], (0, 1), 2, data=place)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["HF_DATASETS_OFFLINE"] == "1"


def test_bad_requests_are_refused(place: Path) -> None:
    model = language_model("elu")
    for tasks, shots, limit, seed, said in [
        (["pica"], (0,), None, 0, "unknown few-shot set 'pica'; did you mean 'piqa'"),
        ([], (0,), None, 0, "there are 0 sets"),
        (["piqa"], (), None, 0, "0 numbers of examples"),
        (["piqa"], (0, 33), None, 0, "shots is 33; accepted: 0 to 32"),
        (["copa"], (SIZE + 1,), None, 0, f"accepted: 0 to {SIZE}"),
        (["piqa"], (-1,), None, 0, "shots is -1"),
        (["piqa"], (0,), 0, 0, "limit is 0; accepted: 1 or more"),
        (["piqa"], (0,), None, -1, "seed is -1"),
    ]:
        with pytest.raises(ValueError, match=said):
            evaluate(model, ByteTokenizer(), tasks, shots, limit, seed, data=place)


@pytest.mark.skipif(
    data_folder("fewshot") is None or data_folder("tiny-lm") is None, reason="sets and models are not shipped"
)
def test_a_real_model_knows_its_stories_and_answers_questions() -> None:
    from linnet.labs.fewshot import LinnetLM
    from linnet.pretrained import load_llama

    folder = data_folder("tiny-lm")
    assert folder is not None
    model, tokenizer = load_llama(folder / "stories260K.bin", folder / "tok512.bin")
    assert tokenizer is not None
    start = "Once upon a time, there was a little"
    asked = [type("Asked", (), {"args": (start, end)}) for end in (" girl", " stone")]
    girl, stone = LinnetLM(model, tokenizer).loglikelihood(asked, disable_tqdm=True)
    assert girl[1]
    assert girl[0] > stone[0] + 5
    rows = evaluate(model, tokenizer, ["copa", "wsc"], (0, 1), 10)
    assert [(row.items, row.cut) for row in rows] == [(10, 0)] * 4
    assert all(0 <= row.accuracy <= 1 for row in rows)
