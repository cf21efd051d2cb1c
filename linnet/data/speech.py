"""Speech for CTC: utterances of feature frames with the symbols spoken, padded into batches.

    {"features": [B,T,F] float32, 0 beyond "lengths" [B]; "targets": [B,S] long, 0 beyond "target_lengths" [B]}

Symbol 0 is the blank of CTC (Graves et al. 2006), never a target. An alignment needs a frame for each symbol and one
more between two equal ones; an utterance too short for its transcript, whose loss is infinite, is refused by name.
`speech_folder` reads a user's recordings, `generated_speech` generates some without any file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from zipfile import is_zipfile

import torch
from torch import Tensor

from ..errors import unknown, whole
from .files import read_text
from .folders import data_folder
from .mel import count_frames, log_mel, prepare
from .wav import read_wav, wav_info, wrong_rate

BLANK = "<blank>"
EDGE = 4096  # bytes at each end of a sound file that go into the fingerprint


class Utterance(NamedTuple):
    """One recording; its features are computed or looked up each time `load` is called."""

    name: str  # for error messages
    frames: int
    targets: tuple[int, ...]  # indices into the table of symbols
    load: Callable[[], Tensor]  # -> [frames, F] float32


class SpeechSource:
    """Batches of utterances; `phones` is the table of symbols (phones, letters or words), its first the blank."""

    unit = "frames"

    def __init__(
        self,
        utterances: Iterable[Utterance],
        phones: Sequence[str],
        *,
        bucket: int = 16,
        fingerprint: str | None = None,
    ) -> None:
        """`bucket`: batches are padded to a multiple of it, so that few different sizes occur."""
        self.utterances, self.phones, self.bucket = list(utterances), list(phones), bucket
        if not self.utterances:
            raise ValueError("there are no utterances; accepted: at least one recording with a transcript")
        if self.phones[:1] != [BLANK] or len(set(self.phones)) < len(self.phones):
            raise ValueError(f"phones are {self.phones}; accepted: {BLANK!r} first, then different symbols")
        for utterance in self.utterances:
            check_utterance(utterance, len(self.phones))
        self.length = len(self.utterances)
        self.feature_dim = self.utterances[0].load().shape[1]
        self.fingerprint = fingerprint or _fingerprint(self.utterances, self.phones)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        chosen = [self.utterances[row] for row in rows]
        longest = max(u.frames for u in chosen)
        features = torch.zeros(len(chosen), -(-longest // self.bucket) * self.bucket, self.feature_dim)  # [B,T,F]
        targets = torch.zeros(len(chosen), max(len(u.targets) for u in chosen), dtype=torch.long)  # [B,S]
        for i, u in enumerate(chosen):
            features[i, : u.frames] = u.load()
            targets[i, : len(u.targets)] = torch.tensor(u.targets)
        return {
            "features": features,
            "lengths": torch.tensor([u.frames for u in chosen]),
            "targets": targets,
            "target_lengths": torch.tensor([len(u.targets) for u in chosen]),
        }

    def units(self, batch: dict[str, Tensor]) -> int:
        """Return the number of frames without the padding."""
        return int(batch["lengths"].sum())


def check_utterance(utterance: Utterance, symbols: int) -> None:
    """Raise ValueError unless CTC can align it."""
    name, frames, targets, _ = utterance
    if not targets:
        raise ValueError(f"{name} has an empty transcript; accepted: at least one symbol; remove its line")
    if not all(0 < t < symbols for t in targets):
        raise ValueError(f"{name} has targets {targets}; accepted: from 1 (0 is the blank) to {symbols - 1}")
    needed = len(targets) + sum(a == b for a, b in pairwise(targets))
    if frames < needed:
        raise ValueError(
            f"{name} has {frames} frames, but its {len(targets)} symbols need {needed}; "
            f"check its transcript, stack fewer frames or leave it out"
        )


def encode(symbols: Iterable[str], phones: Sequence[str], name: str) -> tuple[int, ...]:
    """Return the indices of the symbols in the table; `name` is the recording, for errors."""
    table = {phone: i for i, phone in enumerate(phones)}
    out = []
    for symbol in symbols:
        if table.get(symbol, 0) == 0:
            known = " ".join(map(repr, phones[1:]))
            raise ValueError(f"{name} has the symbol {symbol!r}, which is not in the table; accepted: {known}")
        out.append(table[symbol])
    return tuple(out)


def in_memory(name: str, features: Tensor, targets: tuple[int, ...]) -> Utterance:
    """Return an utterance whose features are already in memory."""
    return Utterance(name, len(features), targets, lambda: features)


def held_out(n: int, every: int = 10) -> list[bool]:
    """Return which of n examples are for validation: every tenth, and at least the last."""
    every = min(every, n)
    return [i % every == every - 1 for i in range(n)]


def find_archive(folder: str, name: str, path: str | os.PathLike[str] | None) -> Path:
    """Return the zip of a data set: `path`, or `name` in the data folder."""
    file = Path(path) if path is not None else (data_folder(folder) or Path(folder)) / name
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {file}; set LINNET_DATA to the folder that holds {folder}, or use generated_speech"
        )
    if not is_zipfile(file):
        raise ValueError(f"{file} is not a complete zip file; accepted: {name} as it was published; copy it again")
    return file


def speech_folder(
    path: str | os.PathLike[str],
    split: str = "train",
    *,
    rate: int | None = None,
    resample: bool = False,
    n_mels: int = 40,
    normalised: bool = True,
    with_deltas: bool = False,
    stacked: int = 1,
    phones: Sequence[str] | None = None,
) -> SpeechSource:
    """Read recordings with a `transcripts.tsv` next to them, one line `name<TAB>text` each; targets are characters.

    split: "train", "valid" (each tenth name in alphabetical order) or "all". The rate is that of the first file unless
    given; `phones` is the table of a trained model, by default all characters in the file. Sounds are read when a batch
    needs them.
    """
    if split not in ("train", "valid", "all"):
        raise unknown("split of a folder of recordings", split, ["train", "valid", "all"])
    whole("stacked", stacked, 1, hint="it is the number of frames to join into one")
    folder = Path(path)
    texts = sorted(_transcripts(folder / "transcripts.tsv").items())
    table = list(phones) if phones is not None else [BLANK, *sorted({c for _, text in texts for c in text})]
    rate = rate or wav_info(_sound(folder, texts[0][0]))[1]
    utterances, digest = [], hashlib.sha256(repr((table, rate, n_mels, normalised, with_deltas, stacked)).encode())
    for (name, text), valid in zip(texts, held_out(len(texts)), strict=True):
        if split != "all" and valid != (split == "valid"):
            continue
        file = _sound(folder, name)
        samples, file_rate = wav_info(file)
        if file_rate != rate and not resample:
            raise wrong_rate(str(file), file_rate, rate)
        try:
            frames = count_frames(-(-samples * rate // file_rate), rate) // stacked
        except ValueError as error:
            raise ValueError(f"{file} at {rate} samples per second: {error}") from None
        features = partial(
            _load, file, rate, n_mels=n_mels, normalised=normalised, with_deltas=with_deltas, stacked=stacked
        )
        utterances.append(Utterance(str(file), frames, encode(text, table, str(file)), features))
        digest.update(f"{name}\t{text}\n".encode() + _edges(file))
    if not utterances:
        raise ValueError(f"{folder} has {len(texts)} recording, too few for a {split} part; accepted: 2 or more")
    return SpeechSource(utterances, table, fingerprint=digest.hexdigest())


def generated_speech(n: int, seed: int, *, noise: float = 1.0) -> SpeechSource:
    """Generate speech-like utterances: 8-20 of 20 phones, each 3-8 frames of a 16-d template blurred into neighbours.

    The templates are the same for every seed, so another seed is a validation set of the same language.
    """
    templates = torch.randn(20, 16, generator=torch.Generator().manual_seed(2006))  # [phones, F]
    generator = torch.Generator().manual_seed(seed)
    utterances = []
    for i in range(n):
        count = int(torch.randint(8, 21, (), generator=generator))
        steps = torch.randint(1, 20, (count,), generator=generator)
        spoken = steps.cumsum(0) % 20  # steps of 1..19 around the table: never the same phone twice in a row
        times = torch.randint(3, 9, (count,), generator=generator)
        clean = templates[spoken.repeat_interleave(times)]  # [T,F]
        around = torch.cat([clean[:1], clean[:1], clean, clean[-1:], clean[-1:]])
        blurred = around.unfold(0, 5, 1).mean(-1)  # coarticulation: the mean of five frames
        features = blurred + noise * torch.randn(blurred.shape, generator=generator)
        utterances.append(in_memory(f"generated-{seed}-{i}", features, tuple((spoken + 1).tolist())))
    return SpeechSource(utterances, [BLANK, *(f"p{i}" for i in range(20))])


def _load(file: Path, rate: int, *, n_mels: int, normalised: bool, with_deltas: bool, stacked: int) -> Tensor:
    features = log_mel(read_wav(file, rate, resample=True)[0], rate, n_mels)
    return prepare(features, normalised=normalised, with_deltas=with_deltas, stacked=stacked)


def _transcripts(file: Path) -> dict[str, str]:
    """Return name -> text, in the order of the file."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}; write one with a line name<TAB>text for each recording")
    texts: dict[str, str] = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        name, tab, text = line.partition("\t")
        if not tab or not text.strip():
            what = "an empty transcript" if name.strip() and tab else "no tab"
            raise ValueError(f"{file} line {number} ({name!r}) has {what}; accepted: name<TAB>text")
        if name in texts:
            raise ValueError(f"{file} line {number} names {name!r} again; accepted: one line for each recording")
        texts[name] = text.strip()
    if not texts:
        raise ValueError(f"{file} has no lines; accepted: a line name<TAB>text for each recording")
    return texts


def _sound(folder: Path, name: str) -> Path:
    """Return the file of a name given with or without its extension."""
    for file in (folder / name, folder / f"{name}.wav"):
        if file.is_file():
            return file
    raise FileNotFoundError(
        f"transcripts.tsv names {name!r}, but {folder} has no such recording; add it or drop the line"
    )


def _edges(file: Path) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as data:
        start = data.read(EDGE)
        data.seek(max(0, size - EDGE))
        return size.to_bytes(8, "little") + start + data.read()


def _fingerprint(utterances: Sequence[Utterance], phones: Sequence[str]) -> str:
    digest = hashlib.sha256("\t".join(phones).encode())
    for u in utterances:
        digest.update(f"{u.name}\t{u.targets}\n".encode() + u.load().numpy().tobytes())
    return digest.hexdigest()
