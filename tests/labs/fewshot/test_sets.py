"""Sets from files: every kind read as it is asked, examples never scored, and what is missing or damaged named."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.data import data_folder
from linnet.labs.fewshot.sets import HELD_BACK, SETS, read_set
from tests.labs.fewshot.tiny import SIZE, write_sets

REAL = data_folder("fewshot")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sets(tmp_path_factory.mktemp("data")) / "fewshot"


@pytest.mark.parametrize("name", SETS)
def test_items_are_whole_and_examples_are_not_scored(place: Path, name: str) -> None:
    given = read_set(name, place)
    assert given.name == name
    both = [*given.items, *given.examples]
    if given.kind == "word":
        assert all(set(item) == {"text", "word"} for item in both)
        assert given.chance == 0
    else:
        assert all(0 <= item["label"] < len(item["choices"]) for item in both)
        assert all(choice == choice.strip() for item in both for choice in item["choices"])
    if (own := name in ("boolq", "rte", "cb", "copa", "wic", "wsc")) or name == "multirc":
        assert len(given.items) == len(given.examples) == (SIZE if own else 2 * SIZE)
    else:
        assert (len(given.items), len(given.examples)) == (SIZE - HELD_BACK, HELD_BACK)
        assert not [item for item in given.items if item in given.examples]


def test_what_is_read_is_what_the_files_say(place: Path) -> None:
    first = {name: read_set(name, place).items[0] for name in SETS}
    n = HELD_BACK  # the number of the first item
    assert first["piqa"] == {
        "text": f"Question: open box {n}\nAnswer:",
        "choices": [f"pull lid {n}", f"push the table {n}"],
        "label": n % 2,
    }
    assert first["lambada"] == {"text": f"it is {n}.\n\nso we say", "word": str(n % 7)}
    assert first["winogrande"] == {
        "choices": [f"Ann saw Bo {n} so Ann", f"Ann saw Bo {n} so Bo"],
        "ending": "waved.",
        "label": n % 2,
    }
    assert first["hellaswag"] == {
        "text": f"A man {n}: he",
        "choices": ["sits.", "runs away.", "sings.", "waits."],
        "label": n % 4,
    }
    assert first["arc_easy"] == {
        "text": f"Question: what is {n}?\nAnswer:",
        "choices": ["Ann", "Bo", "Cy"],
        "label": n % 3,
    }
    assert first["openbookqa"]["text"] == f"what is {n}?"
    assert first["boolq"] == {
        "text": "Fish swim.\nQuestion: do fish swim?\nAnswer:",
        "choices": ["no", "yes"],
        "label": 1,
    }
    assert (first["rte"]["label"], first["cb"]["label"], first["wic"]["label"]) == (1, 2, 0)
    assert first["copa"] == {"text": "He fell therefore", "choices": ["it hurt.", "it sang."], "label": 0}
    assert "'bank'" in first["wic"]["text"]
    assert "\nAnswer: one\nIs the answer correct?" in first["multirc"]["text"]
    assert [item["label"] for item in read_set("multirc", place).items[:2]] == [1, 0]


def test_the_pronoun_is_marked_where_it_stands(place: Path) -> None:
    """Of three the one nearest to the place given, the comma left outside."""
    text = read_set("wsc", place).items[0]["text"]
    assert text.startswith('Passage: it said "take *it*," and left it\n')
    assert 'does the pronoun "*it*" refer to "the cup"?' in text


def test_chance_is_the_mean_of_the_choices(place: Path) -> None:
    assert read_set("piqa", place).chance == 0.5
    assert read_set("arc_easy", place).chance == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert read_set("arc_easy", place).first(1).chance == pytest.approx(1 / 3)
    assert len(read_set("arc_easy", place).first(3).items) == 3


def test_a_set_that_is_unknown_missing_damaged_or_too_small_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown few-shot set 'pica'; did you mean 'piqa'"):
        read_set("pica", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the set 'piqa' needs .*piqa_valid-labels.lst.gz, .* LINNET_DATA"):
        read_set("piqa", tmp_path)
    place = write_sets(tmp_path, 20) / "fewshot"
    with pytest.raises(ValueError, match=r"'piqa' in .* has 20 items; accepted: 33 or more"):
        read_set("piqa", place)
    (place / "piqa_valid.jsonl.gz").write_bytes(gzip.compress(b'{"goal": "x"}\n'))
    with pytest.raises(ValueError, match=r"'piqa' in .* cannot be read .*; copy it again"):
        read_set("piqa", place)
    (place / "superglue_val_and_small_train.zip").write_bytes(b"PK no")
    with pytest.raises(ValueError, match=r"'copa' in .* cannot be read"):
        read_set("copa", place)


def test_without_a_folder_the_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.data.folders.REPOSITORY", tmp_path / "a" / "b")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no folder 'fewshot' .* set LINNET_DATA"):
        read_set("piqa")
    write_sets(tmp_path)
    assert read_set("piqa").items


@pytest.mark.slow
def test_sets_are_read_without_lm_eval_and_the_rest_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['lm_eval'] = None; import linnet.labs.fewshot as f; f.read_set; print(len(f.SETS))\n"
        "try: f.evaluate\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert done[0] == str(len(SETS))
    assert re.search(r"lm-eval, which is not installed; run pip install 'linnet\[eval\]'", done[1])


COUNTS = {"lambada": 5121, "hellaswag": 10010, "piqa": 1806, "arc_easy": 2344, "arc_challenge": 1140}
COUNTS |= {"openbookqa": 468, "winogrande": 1235, "boolq": 3270, "rte": 277, "cb": 56, "copa": 100}
COUNTS |= {"wic": 638, "wsc": 104, "multirc": 4848}


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="the evaluation sets are not shipped")
def test_real_sets_have_as_many_items_as_they_should() -> None:
    assert {name: len(read_set(name).items) for name in SETS} == COUNTS
    assert all(len(read_set(name).examples) == HELD_BACK for name in SETS if name != "multirc")


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="the evaluation sets are not shipped")
def test_questions_taken_apart_are_those_of_the_file_that_has_them_apart() -> None:
    assert REAL is not None
    with gzip.open(REAL / "arc_challenge_test_official.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    apart = {}
    for row in rows:
        choices = row["question"]["choices"]
        right = [choice["label"] for choice in choices].index(row["answerKey"])
        apart[row["question"]["stem"]] = ([choice["text"] for choice in choices], right)
    given = read_set("arc_challenge")
    ours = {
        item["text"].removeprefix("Question: ").removesuffix("\nAnswer:"): (item["choices"], item["label"])
        for item in [*given.items, *given.examples]
    }
    both = set(apart) & set(ours)
    assert len(both) > 1000
    assert {stem: apart[stem] for stem in both} == {stem: ours[stem] for stem in both}
