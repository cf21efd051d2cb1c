"""Read evaluation sets from a folder into plain items: text, choices, and the right one.

    choice   {"text", "choices", "label"}       the model takes the choice that is most likely after the text
    blank    {"choices", "ending", "label"}     the choice after which the ending is most likely (WinoGrande)
    word     {"text", "word"}                   the word must be the most likely continuation of the text (LAMBADA)

Files as in the folder `fewshot` of the data (data/folders.py). Examples shown before a question are never scored: the
32 of FewGLUE (Schick and Schuetze 2021, arXiv:2009.07118) for SuperGLUE's sets, else the first 32 items of the set,
which are held back. Questions have the customary wording of these sets, so that results can be compared with others.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...data.files import PathLike, byte_pieces
from ...data.folders import data_folder
from ...errors import unknown
from ...json_file import parse_json
from ...limits import LIMITS
from .superglue import READERS, Item

Reader = Callable[[Path], tuple[list[Item], list[Item]]]  # folder -> items, examples

HELD_BACK = 32  # items held back in a set without separate examples
FOLDER = "fewshot"
SCORED, SHOWN = "superglue_val_and_small_train.zip", "fewglue_32shot_train.zip"
OPTION = re.compile(r"\s*\b(?:Answer|Option)\d: ")


class ItemSet(NamedTuple):
    """An evaluation set: `items` are scored, `examples` are shown in the prompt."""

    name: str
    kind: str  # "choice", "blank" or "word"
    normed: bool  # also compare choices per letter?
    items: list[Item]
    examples: list[Item]

    @property
    def chance(self) -> float:
        """Return the accuracy of guessing: the mean of 1 / choices; 0 for a word."""
        return 0.0 if self.kind == "word" else sum(1 / len(item["choices"]) for item in self.items) / len(self.items)

    def first(self, limit: int | None) -> ItemSet:
        """Return the set with at most `limit` items."""
        return self._replace(items=self.items[:limit])


def read_set(name: str, folder: PathLike | None = None) -> ItemSet:
    """Read the set `name`, one of SETS, from the folder with its files; default: the data folder."""
    if name not in SETS:
        raise unknown("few-shot set", name, SETS)
    place = data_folder(FOLDER) if folder is None else Path(folder)
    if place is None:
        raise FileNotFoundError(
            f"there is no folder {FOLDER!r} with evaluation sets; set LINNET_DATA to the folder that holds it"
        )
    kind, normed, read = SETS[name]
    try:
        items, examples = read(place)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the set {name!r} needs {error.filename}, which is missing; copy it there, or set LINNET_DATA"
        ) from error
    except (KeyError, IndexError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"the file of the set {name!r} in {place} cannot be read ({type(error).__name__}: {error}); copy it again"
        ) from error
    if not items or not examples:
        raise ValueError(
            f"the set {name!r} in {place} has {len(items) + len(examples)} items; accepted: {HELD_BACK + 1} or more"
        )
    return ItemSet(name, kind, normed, items, examples)


def _held_back(items: list[Item]) -> tuple[list[Item], list[Item]]:
    return items[HELD_BACK:], items[:HELD_BACK]


def _hellaswag(folder: Path) -> tuple[list[Item], list[Item]]:
    """Read six lines per item: context, index of the right ending, four endings."""
    lines = _text(folder / "hellaswag_val_full.txt.bz2").split("\n")
    starts = range(0, len(lines) - 5, 6)
    return _held_back([{"text": lines[i], "choices": lines[i + 2 : i + 6], "label": int(lines[i + 1])} for i in starts])


def _lambada(folder: Path) -> tuple[list[Item], list[Item]]:
    """Read passages whose last word follows from the passage as a whole."""
    pairs = [row["text"].rsplit(" ", 1) for row in _rows(folder / "lambada_test_openai.jsonl.gz")]
    return _held_back([{"text": text, "word": word} for text, word in pairs])


def _piqa(folder: Path) -> tuple[list[Item], list[Item]]:
    labels = _text(folder / "piqa_valid-labels.lst.gz").split()
    rows = _rows(folder / "piqa_valid.jsonl.gz")
    pairs = zip(rows, labels, strict=True)
    return _held_back([_question(row["goal"], [row["sol1"], row["sol2"]], int(label)) for row, label in pairs])


def _arc(part: str) -> Reader:
    def read(folder: Path) -> tuple[list[Item], list[Item]]:
        return _held_back([_question(*row) for row in _instructions(folder / f"arc_{part}_llmadapters.json.gz")])

    return read


def _openbookqa(folder: Path) -> tuple[list[Item], list[Item]]:
    """Read sentences to complete, or questions, unchanged."""
    rows = _instructions(folder / "openbookqa_llmadapters.json.gz")
    return _held_back([{"text": text, "choices": choices, "label": label} for text, choices, label in rows])


def _winogrande(folder: Path) -> tuple[list[Item], list[Item]]:
    """Read sentences up to the blank with each option filled in, and the text after the blank."""
    items = []
    for text, options, label in _instructions(folder / "winogrande_llmadapters.json.gz"):
        before, after = text.split("_", 1)
        items.append({"choices": [before + option for option in options], "ending": after.strip(), "label": label})
    return _held_back(items)


def _superglue(name: str) -> Reader:
    def read(folder: Path) -> tuple[list[Item], list[Item]]:
        rows = _zipped(folder / SCORED, f"{name}/val.jsonl"), _zipped(folder / SHOWN, f"FewGLUE/{name}/train.jsonl")
        items, examples = ([item for row in part for item in READERS[name](row)] for part in rows)
        return items, examples

    return read


def _question(text: str, choices: list[str], label: int) -> Item:
    return {"text": f"Question: {text}\nAnswer:", "choices": choices, "label": label}


def _instructions(file: Path) -> list[tuple[str, list[str], int]]:
    """Return (text, options, index of the right one) of rows that have them all in one instruction."""
    rows = []
    for row in parse_json(_text(file), file, "copy it again"):
        text, *options = OPTION.split(row["instruction"].split(": ", 1)[1].split("Answer format:")[0].rstrip())
        rows.append((text, options, int(row["answer"][-1]) - 1))
    return rows


def _text(file: Path) -> str:
    with open(file, "rb"):  # raises an error that names the file if it is missing
        return b"".join(byte_pieces(file)).decode("utf-8")


def _rows(file: Path) -> list[Any]:
    return _lines(_text(file), file)


def _zipped(file: Path, name: str) -> list[Any]:
    with zipfile.ZipFile(file) as opened:
        return _lines(_member(opened, name).decode("utf-8"), file)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    if (size := archive.getinfo(name).file_size) > LIMITS.UNPACKED_FREE:
        raise ValueError(f"{name} has {size:,} bytes; accepted: {LIMITS.UNPACKED_FREE:,} at most")
    return archive.read(name)


def _lines(text: str, file: Path) -> list[Any]:
    lines = enumerate(text.split("\n"), start=1)
    return [parse_json(line, f"line {number} of {file}", "copy it again") for number, line in lines if line]


# name -> kind, also compared per letter, reader
SETS: dict[str, tuple[str, bool, Reader]] = {
    "lambada": ("word", False, _lambada),
    "hellaswag": ("choice", True, _hellaswag),
    "piqa": ("choice", True, _piqa),
    "arc_easy": ("choice", True, _arc("easy")),
    "arc_challenge": ("choice", True, _arc("challenge")),
    "openbookqa": ("choice", True, _openbookqa),
    "winogrande": ("blank", False, _winogrande),
    **{name.lower(): ("choice", False, _superglue(name)) for name in READERS},
}
