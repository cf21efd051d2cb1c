"""Sound files to one float32 signal [T] in -1..1, channels averaged, at the rate asked for or the file's own.

Through `soundfile` (extra `audio`: wav, flac, ogg); without it, 16-bit wav through the standard library, same values.
Another rate than the one wanted is refused, or changed by band-limited interpolation (windowed sinc):

    y(n / to) = sum_k x_k c h(c (n from / to - k)),   h(u) = sinc(u) cos^2(pi u / 2Z),  c = 0.95 min(1, to / from)
"""

from __future__ import annotations

import os
import struct
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..limits import LIMITS

Sound: TypeAlias = "str | os.PathLike[str] | BinaryIO"

ZEROS = 32  # Z above: zero crossings of the sinc on each side
BLOCK = 4096  # output samples computed at once
READ = 1 << 18  # samples read at once


def read_wav(file: Sound, rate: int | None = None, *, resample: bool = False, name: str = "") -> tuple[Tensor, int]:
    """(signal [T] float32, rate). `name` is what errors call an open file; resample=True accepts any rate."""
    name = name or str(file)
    samples, found = _read(file, name)  # [T, channels]
    signal = torch.from_numpy(samples.mean(axis=1, dtype=np.float32))
    if found < 1:
        raise _unreadable(name, f"its rate is {found} Hz")
    if not bool(signal.isfinite().all()):
        raise ValueError(
            f"{name} holds samples that are not finite numbers; accepted: finite samples, so export it anew"
        )
    if rate is None or rate == found:
        return signal, found
    if not resample:
        raise wrong_rate(name, found, rate)
    return change_rate(signal, found, rate), rate


def wav_info(file: Sound, name: str = "") -> tuple[int, int]:
    """(samples, rate) from the header, without reading the sound."""
    name = name or str(file)
    if (soundfile := _soundfile()) is not None:
        with _refusing(name), soundfile.SoundFile(_path(file)) as sound:
            return sound.frames, sound.samplerate
    with _wave(file, name) as sound:
        return sound.getnframes(), sound.getframerate()


def wrong_rate(name: str, found: int, wanted: int) -> ValueError:
    return ValueError(f"{name} is at {found} Hz, {wanted} Hz is wanted; pass resample=True to have it converted")


def change_rate(signal: Tensor, rate: int, to: int) -> Tensor:  # [T] -> [ceil(T to / rate)]
    """The same sound at another rate; what lies above the lower of the two Nyquist frequencies is taken out."""
    if rate < 1 or to < 1:
        raise ValueError(f"rates are {rate} and {to} Hz; accepted: whole numbers above 0")
    if rate == to or len(signal) == 0:
        return signal
    cut = 0.95 * min(1.0, to / rate)
    reach = int(ZEROS / cut) + 1  # input samples that count, on each side
    padded = torch.cat([signal.new_zeros(reach), signal, signal.new_zeros(reach + 1)])
    windows = padded.unfold(0, 2 * reach + 1, 1)  # windows[i] is centred on sample i
    taps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    out = []
    for at in torch.arange(-(-len(signal) * to // rate)).split(BLOCK):
        place = at * rate  # in units of 1/to of an input sample: whole numbers, so no drift in an hour of sound
        base, part = place // to, (place % to).double() / to
        u = cut * (part[:, None] - taps)  # [block, 2 reach + 1]
        window = torch.cos(torch.pi * u / (2 * ZEROS)).square() * (u.abs() < ZEROS)
        out.append((windows[base] * (cut * torch.sinc(u) * window).to(signal.dtype)).sum(1))
    return torch.cat(out)


def _read(file: Sound, name: str) -> tuple[np.ndarray, int]:
    if (soundfile := _soundfile()) is not None:
        with _refusing(name), soundfile.SoundFile(_path(file)) as sound:
            return _blocks(sound, name), sound.samplerate
    with _wave(file, name) as sound:
        frames, channels = sound.getnframes(), sound.getnchannels()
        data = sound.readframes(frames)
        if len(data) != 2 * frames * channels:
            raise _unreadable(name, f"its header says {frames} samples and {len(data)} bytes are there")
        raw = np.frombuffer(data, dtype="<i2")
        return raw.reshape(-1, channels).astype(np.float32) / 32768, sound.getframerate()


def _blocks(sound: Any, name: str) -> np.ndarray:  # [T, channels]
    """All of a sound, a block at a time: how much is there is never taken from the header."""
    pieces, total = [np.zeros((0, sound.channels), np.float32)], 0
    while len(piece := sound.read(READ, dtype="float32", always_2d=True)):
        pieces.append(piece)
        total += piece.nbytes
        if total > LIMITS.UNPACKED_BYTES:
            raise _unreadable(name, f"it unpacks to more than {LIMITS.UNPACKED_BYTES:,} bytes; cut it into parts")
    return np.concatenate(pieces)


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """One sentence for what libsndfile raises, RuntimeErrors of its own."""
    try:
        yield
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        raise _unreadable(name, str(error)) from error


def _soundfile():  # type: ignore[no-untyped-def]  # the module, which has no types, or None
    try:
        import soundfile
    except ImportError:
        return None
    return soundfile


def _wave(file: Sound, name: str) -> wave.Wave_read:
    try:
        sound = wave.open(_path(file), "rb")  # noqa: SIM115 - the caller closes it
    except (wave.Error, EOFError, struct.error, RuntimeError, OverflowError) as error:
        why = str(error) or "it is cut off"
        raise _unreadable(name, f"{why}; without the package soundfile only wav is read") from error
    if sound.getnframes() * sound.getnchannels() * sound.getsampwidth() > _size(file):
        frames = sound.getnframes()
        sound.close()
        raise _unreadable(name, f"its header says {frames} samples, more than the file has bytes for")
    if sound.getsampwidth() != 2:
        bits = 8 * sound.getsampwidth()
        sound.close()
        raise ValueError(f"{name} has {bits}-bit samples, without soundfile 16 is read; pip install linnet[audio]")
    return sound


def _size(file: Sound) -> int:
    if isinstance(file, str | os.PathLike):
        return os.stat(file).st_size
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(at)
    return size


def _path(file: Sound) -> str | BinaryIO:
    """The name of a file that is there, or the open file itself."""
    if not isinstance(file, str | os.PathLike):
        return file
    if not Path(file).is_file():
        raise FileNotFoundError(f"there is no sound file {os.fspath(file)}; check the name and the folder")
    return os.fspath(file)


def _unreadable(name: str, why: str) -> ValueError:
    return ValueError(f"{name} is not a sound file that can be read ({why}); accepted: wav, flac or ogg")
