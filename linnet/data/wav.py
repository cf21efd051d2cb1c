"""Read sound files into one float32 signal [T] in -1..1, channels averaged, at the requested rate or the file's.

Through `soundfile` (extra `audio`: wav, flac, ogg); without it, 16-bit wav through the standard library, same values.
A file at another rate is refused, or resampled by band-limited interpolation (windowed sinc):

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

from ..errors import Option, OptionError
from ..limits import LIMITS

Sound: TypeAlias = "str | os.PathLike[str] | BinaryIO"

ZEROS = 32  # Z above: zero crossings of the sinc on each side
BLOCK = 4096  # output samples computed at a time
READ = 1 << 18  # samples read at a time


def read_wav(file: Sound, rate: int | None = None, *, resample: bool = False, name: str = "") -> tuple[Tensor, int]:
    """Return (signal [T] float32, rate). `name` names an open file in errors; resample=True accepts any rate."""
    name = name or str(file)
    samples, file_rate = _read(file, name)  # [T, channels]
    signal = torch.from_numpy(samples.mean(axis=1, dtype=np.float32))
    if file_rate < 1:
        raise _unreadable(name, f"its rate is {file_rate} Hz")
    if not bool(signal.isfinite().all()):
        raise ValueError(f"{name} has samples that are not finite; accepted: finite samples; export it again")
    if rate is None or rate == file_rate:
        return signal, file_rate
    if not resample:
        raise wrong_rate(name, file_rate, rate)
    return change_rate(signal, file_rate, rate), rate


def wav_info(file: Sound, name: str = "") -> tuple[int, int]:
    """Return (samples, rate) from the header, without reading the sound."""
    name = name or str(file)
    if (soundfile := _soundfile()) is not None:
        with _refusing(name), soundfile.SoundFile(_path(file)) as sound:
            return sound.frames, sound.samplerate
    with _wave(file, name) as sound:
        return sound.getnframes(), sound.getframerate()


def wrong_rate(name: str, rate: int, required: int) -> ValueError:
    return OptionError(f"{name} is at {rate} Hz, and {required} Hz is required", Option("resample", True, "convert it"))


def change_rate(signal: Tensor, rate: int, to: int) -> Tensor:  # [T] -> [ceil(T to / rate)]
    """Resample a signal; frequencies above the lower of the two Nyquist frequencies are removed."""
    if rate < 1 or to < 1:
        raise ValueError(f"rates are {rate} and {to} Hz; accepted: whole numbers above 0")
    if rate == to or len(signal) == 0:
        return signal
    cut = 0.95 * min(1.0, to / rate)
    reach = int(ZEROS / cut) + 1  # input samples on each side that contribute
    padded = torch.cat([signal.new_zeros(reach), signal, signal.new_zeros(reach + 1)])
    windows = padded.unfold(0, 2 * reach + 1, 1)  # windows[i] is centred on sample i
    taps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    out = []
    for at in torch.arange(-(-len(signal) * to // rate)).split(BLOCK):
        place = at * rate  # in units of 1/to of an input sample: integers, so no drift in an hour of sound
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
            raise _unreadable(name, f"its header states {frames} samples and it has {len(data)} bytes")
        raw = np.frombuffer(data, dtype="<i2")
        return raw.reshape(-1, channels).astype(np.float32) / 32768, sound.getframerate()


def _blocks(sound: Any, name: str) -> np.ndarray:  # [T, channels]
    """Return all samples, read a block at a time: the length in the header is not trusted."""
    pieces, total = [np.zeros((0, sound.channels), np.float32)], 0
    while len(piece := sound.read(READ, dtype="float32", always_2d=True)):
        pieces.append(piece)
        total += piece.nbytes
        if total > LIMITS.UNPACKED_BYTES:
            raise _unreadable(name, f"it decompresses to more than {LIMITS.UNPACKED_BYTES:,} bytes; split it")
    return np.concatenate(pieces)


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn the errors of libsndfile into one ValueError."""
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
        raise _unreadable(name, f"its header states {frames} samples, more than the file has bytes for")
    if sound.getsampwidth() != 2:
        bits = 8 * sound.getsampwidth()
        sound.close()
        raise ValueError(f"{name} has {bits}-bit samples; accepted without soundfile: 16; pip install linnet[audio]")
    return sound


def _size(file: Sound) -> int:
    if isinstance(file, str | os.PathLike):
        return os.stat(file).st_size
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(at)
    return size


def _path(file: Sound) -> str | BinaryIO:
    """Return the name of an existing file, or the open file itself."""
    if not isinstance(file, str | os.PathLike):
        return file
    if not Path(file).is_file():
        raise FileNotFoundError(f"there is no sound file {os.fspath(file)}; check the path")
    return os.fspath(file)


def _unreadable(name: str, why: str) -> ValueError:
    return ValueError(f"{name} is not a sound file that can be read ({why}); accepted: wav, flac or ogg")
