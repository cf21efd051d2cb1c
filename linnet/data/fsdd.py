"""The free spoken digit dataset: 3,000 wav files of one digit each (6 speakers, 50 takes, 8 kHz) as log-mel frames.

Official split: takes 0-4 are the test part; of the others, takes 5-9 are for validation here. Targets are the phones of
the ten words, or the words. A single word leaves CTC little to align, so `concat` joins several recordings of one
speaker into a string of digits: each recording is used once per pass, in an order drawn from the seed.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..errors import unknown
from .mel import log_mel, prepare
from .speech import BLANK, SpeechSource, encode, find_archive, in_memory
from .wav import read_wav
from .zip_file import open_zip, read_member

RATE = 8000
TAKES = {"train": range(10, 50), "valid": range(5, 10), "train+valid": range(5, 50), "test": range(5)}
NAME = re.compile(r"((?P<digit>\d)_(?P<speaker>[^_/]+)_(?P<take>\d+))\.wav$")
WORDS = "ZERO ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT NINE".split()
SPOKEN = [  # the CMU dictionary's first pronunciations, without stress
    "Z IH R OW",
    "W AH N",
    "T UW",
    "TH R IY",
    "F AO R",
    "F AY V",
    "S IH K S",
    "S EH V AH N",
    "EY T",
    "N AY N",
]


def fsdd(
    split: str = "train",
    *,
    targets: str = "phones",
    concat: tuple[int, int] = (1, 1),
    passes: int = 1,
    seed: int = 0,
    n_mels: int = 40,
    normalised: bool = True,
    with_deltas: bool = False,
    stacked: int = 1,
    path: str | os.PathLike[str] | None = None,
) -> SpeechSource:
    """Return a split; concat=(3, 7) makes strings of 3 to 7 digits, in `passes` passes. `path` is the zip."""
    if split not in TAKES:
        raise unknown("split of FSDD", split, TAKES)
    if targets not in ("phones", "words"):
        raise unknown("targets of FSDD", targets, ["phones", "words"])
    low, high = concat
    if not 1 <= low <= high or passes < 1:
        raise ValueError(f"concat is {concat} and passes {passes}; accepted: 1 <= low <= high, and 1 or more passes")
    spoken = [[word] for word in WORDS] if targets == "words" else [phones.split() for phones in SPOKEN]
    table = [BLANK, *(WORDS if targets == "words" else sorted({phone for phones in spoken for phone in phones}))]
    sounds = _sounds(find_archive("fsdd", "fsdd_recordings.zip", path), split)
    utterances = []
    for names in _strings(sorted(sounds), low, high, passes, seed):
        name = "+".join(names)
        signal = torch.cat([sounds[name] for name in names])
        symbols = [symbol for name in names for symbol in spoken[int(name[0])]]
        features = prepare(
            log_mel(signal, RATE, n_mels), normalised=normalised, with_deltas=with_deltas, stacked=stacked
        )
        utterances.append(in_memory(name, features, encode(symbols, table, name)))
    return SpeechSource(utterances, table)


def _sounds(file: Path, split: str) -> dict[str, Tensor]:
    """Return `digit_speaker_take` -> signal [T] of the recordings in this split."""
    sounds = {}
    with open_zip(file) as archive:
        for member in archive.namelist():
            named = NAME.search(member)
            if named and int(named["take"]) in TAKES[split]:
                sounds[named[1]] = read_wav(io.BytesIO(read_member(archive, member, file)), RATE, name=member)[0]
    if not sounds:
        raise ValueError(f"{file} has no recordings digit_speaker_take.wav for {split}; accepted: the FSDD zip")
    return sounds


def _strings(names: Sequence[str], low: int, high: int, passes: int, seed: int) -> Iterator[list[str]]:
    """Yield groups of low..high names of one speaker, each name once a pass; leftovers join the last group."""
    generator = torch.Generator().manual_seed(seed)
    speakers = sorted({name.split("_")[1] for name in names})
    for _ in range(passes):
        for speaker in speakers:
            mine = [name for name in names if name.split("_")[1] == speaker]
            left = [mine[i] for i in torch.randperm(len(mine), generator=generator).tolist()]
            while left:
                size = int(torch.randint(low, high + 1, (), generator=generator))
                if len(left) - size < low:
                    size = len(left)
                yield left[:size]
                left = left[size:]
