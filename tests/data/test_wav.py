"""Sound files with and without soundfile, and resampling against the sine it should give."""

from __future__ import annotations

import io
import struct
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.data.wav import change_rate, read_wav, wav_info

SINC = 2e-4  # worst error of a resampled sine away from the ends


def write(path: Path, samples: np.ndarray, rate: int, bits: int = 16) -> Path:
    """samples [T, channels], whole numbers of that many bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(samples.astype({8: "u1", 16: "<i2", 32: "<i4"}[bits]).tobytes())
    return path


@pytest.fixture(params=["soundfile", "standard library"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "soundfile":
        pytest.importorskip("soundfile")
    else:
        monkeypatch.setitem(sys.modules, "soundfile", None)
    return str(request.param)


def sine(frequency: float, rate: int, seconds: float = 0.25) -> torch.Tensor:
    return torch.sin(2 * torch.pi * frequency * torch.arange(int(seconds * rate), dtype=torch.float64) / rate).float()


def test_values_channels_and_rate(tmp_path: Path, reader: str) -> None:
    path = write(tmp_path / "a.wav", np.array([[-32768, 32767], [16384, 0], [100, 100]]), 8000)
    signal, rate = read_wav(path)
    assert (rate, signal.dtype) == (8000, torch.float32)
    assert signal.tolist() == [(-32768 + 32767) / 2 / 32768, 0.25, 100 / 32768]
    assert wav_info(path) == (3, 8000)
    assert read_wav(io.BytesIO(path.read_bytes()), 8000)[0].tolist() == signal.tolist()


def test_another_rate_is_refused_with_the_way_out(tmp_path: Path, reader: str) -> None:
    path = write(tmp_path / "a.wav", np.zeros((800, 1)), 8000)
    with pytest.raises(ValueError, match=r"a.wav is at 8000 Hz, and 16000 Hz is required; pass resample=True"):
        read_wav(path, 16000)
    signal, rate = read_wav(path, 16000, resample=True)
    assert (len(signal), rate) == (1600, 16000)


def test_no_sound_file(tmp_path: Path, reader: str) -> None:
    (tmp_path / "bad.wav").write_bytes(b"nothing that sounds" * 10)
    (tmp_path / "empty.wav").write_bytes(b"")
    for name in ("bad.wav", "empty.wav"):
        for read in (read_wav, wav_info):
            with pytest.raises(ValueError, match=rf"{name} is not a sound file that can be read"):
                read(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no sound file"):
        read_wav(tmp_path / "none.wav")


def test_eight_bits_need_soundfile(tmp_path: Path, reader: str) -> None:
    path = write(tmp_path / "a.wav", np.full((10, 1), 192), 8000, bits=8)
    if reader == "soundfile":
        assert read_wav(path)[0].tolist() == [0.5] * 10
    else:
        with pytest.raises(
            ValueError, match=r"8-bit samples; accepted without soundfile: 16; pip install linnet\[audio\]"
        ):
            read_wav(path)


def test_samples_that_are_not_finite(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    data = struct.pack("<4f", 0.5, float("nan"), 0.0, 1.0)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + 16, b"WAVE", b"fmt ", 16, 3, 1, 8000, 32000, 4, 32, b"data", 16
    )
    (tmp_path / "nan.wav").write_bytes(head + data)
    with pytest.raises(ValueError, match=r"nan.wav has samples that are not finite"):
        read_wav(tmp_path / "nan.wav")


@pytest.mark.parametrize(("rate", "to"), [(8000, 16000), (44100, 16000), (16000, 8000), (22050, 16000), (16001, 15999)])
def test_a_sine_stays_the_same_sine(rate: int, to: int) -> None:
    ours, wanted = change_rate(sine(440, rate), rate, to), sine(440, to, 0.3)
    assert abs(len(ours) - 0.25 * to) <= 1
    inside = slice(to // 50, len(ours) - to // 50)  # the ends see silence beyond the signal
    assert (ours[inside] - wanted[inside]).abs().max() < SINC


def test_what_the_new_rate_cannot_hold_is_taken_out() -> None:
    ours = change_rate(sine(6000, 16000), 16000, 8000)  # would come back as 2 kHz
    assert ours[200:-200].abs().max() < SINC


def test_same_rate_and_nothing_at_all() -> None:
    x = sine(440, 8000)
    assert change_rate(x, 8000, 8000) is x
    assert len(change_rate(torch.zeros(0), 8000, 16000)) == 0
    with pytest.raises(ValueError, match="rates are 8000 and 0 Hz"):
        change_rate(x, 8000, 0)
