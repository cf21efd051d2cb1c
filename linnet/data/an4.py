"""AN4 (CMU census, 1991): 948 + 130 utterances of spelled words, numbers and commands, as 13 cepstra at 100 frames/s.

an4_mfcc.zip holds `an4/feat/**/*.mfc` (int32 count, then float32, all big-endian), `an4/etc/*.fileids` and
`*.transcription` in the same order, and `an4.dic` (word -> phones). Targets are phones, letters or words.
Validation is every tenth speaker of the official training part, so that no choice depends on the test part.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import unknown
from .mel import prepare
from .speech import BLANK, SpeechSource, encode, find_archive, held_out, in_memory
from .zip_file import open_zip, read_member

CEPSTRA = 13
SPLITS = ("train", "valid", "train+valid", "test")  # "train+valid" is the official training part
VARIANT = {"A": "A(2)"}  # every A in these transcripts is the letter, [EY]; other words take the dictionary's first


def an4(
    split: str = "train",
    *,
    targets: str = "phones",
    normalised: bool = True,
    with_deltas: bool = False,
    stacked: int = 1,
    path: str | os.PathLike[str] | None = None,
) -> SpeechSource:
    """Return a split of AN4; targets: phones, letters or words. `path` is the zip; default: in the data folder."""
    if split not in SPLITS:
        raise unknown("split of AN4", split, SPLITS)
    if targets not in ("phones", "letters", "words"):
        raise unknown("targets of AN4", targets, ["phones", "letters", "words"])
    with open_zip(find_archive("an4", "an4_mfcc.zip", path)) as archive:
        words = _dictionary(archive)
        table = _table(archive, words, targets)
        utterances = []
        for file, text in _list(archive, split):
            spoken = _symbols(text, words, targets, file)
            features = prepare(_cepstra(archive, file), normalised=normalised, with_deltas=with_deltas, stacked=stacked)
            utterances.append(in_memory(file, features, encode(spoken, table, file)))
    return SpeechSource(utterances, table)


def _text(archive: zipfile.ZipFile, name: str) -> list[str]:
    return _member(archive, f"an4/etc/{name}").decode("ascii", "replace").split("\n")


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    return read_member(archive, name, Path(str(archive.filename)))


def _dictionary(archive: zipfile.ZipFile) -> dict[str, list[str]]:
    """Return word -> phones; variants keep their number, `AND(2)`."""
    entries = (line.split() for line in _text(archive, "an4.dic"))
    return {entry[0]: entry[1:] for entry in entries if entry}


def _table(archive: zipfile.ZipFile, words: dict[str, list[str]], targets: str) -> list[str]:
    if targets == "phones":
        return [BLANK, *(p for p in _text(archive, "an4.phone") if p not in ("", "SIL"))]
    plain = [word for word in words if "(" not in word]
    return [BLANK, *(plain if targets == "words" else sorted({" "}.union(*plain)))]


def _list(archive: zipfile.ZipFile, split: str) -> list[tuple[str, str]]:
    """Return (feature file, transcript) of each utterance; files are `part/speaker/name`."""
    part = "test" if split == "test" else "train"
    files = [line for line in _text(archive, f"an4_{part}.fileids") if line]
    texts = [line.rpartition("(")[0].strip() for line in _text(archive, f"an4_{part}.transcription") if line]
    pairs = list(zip(files, texts, strict=True))
    if split in ("test", "train+valid"):
        return pairs
    speakers = sorted({file.split("/")[1] for file in files})
    valid = {speaker for speaker, out in zip(speakers, held_out(len(speakers)), strict=True) if out}
    return [(file, text) for file, text in pairs if (file.split("/")[1] in valid) == (split == "valid")]


def _symbols(text: str, words: dict[str, list[str]], targets: str, file: str) -> list[str]:
    if targets == "letters":
        return list(text)
    spoken = text.split()
    missing = [word for word in spoken if word not in words]
    if missing:
        raise ValueError(f"{file} has the word {missing[0]!r}, which is not in an4.dic; add it there")
    return spoken if targets == "words" else [phone for word in spoken for phone in words[VARIANT.get(word, word)]]


def _cepstra(archive: zipfile.ZipFile, file: str) -> Tensor:  # [N, 13] float32
    data = _member(archive, f"an4/feat/{file}.mfc")
    count = int.from_bytes(data[:4], "big")
    if count % CEPSTRA or len(data) != 4 + 4 * count:
        raise ValueError(
            f"{file}.mfc states {count} numbers and has {len(data)} bytes; it is damaged, so copy it again"
        )
    return torch.from_numpy(np.frombuffer(data, dtype=">f4", offset=4).astype(np.float32)).reshape(-1, CEPSTRA)
