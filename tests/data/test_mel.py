"""Filters and log-mel against librosa 0.11.0 (stored in mel_librosa.npz), framing, and what is done to frames."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.data.mel import FLOOR, count_frames, deltas, log_mel, mel_filters, normalise, stack

F64, F32 = 1e-10, 2e-5
TABLE = np.load(Path(__file__).with_name("mel_librosa.npz"), allow_pickle=False)


def chirp() -> torch.Tensor:
    """The signal whose mel power is stored."""
    t = torch.arange(4000, dtype=torch.float64) / 16000
    return 0.5 * torch.sin(2 * torch.pi * 440 * t) + 0.25 * torch.sin(2 * torch.pi * 3000 * t * (1 + t))


@pytest.mark.parametrize("key", [k for k in TABLE.files if k.startswith("filters")])
def test_filters_are_those_of_librosa(key: str) -> None:
    rate, n_fft, n_mels, low, high, scale, norm = key.split()[1:]
    ours = mel_filters(
        int(rate),
        int(n_fft),
        int(n_mels),
        float(low),
        None if high == "None" else float(high),
        scale=scale,
        norm=None if norm == "None" else norm,
        dtype=torch.float64,
    )
    stored = torch.from_numpy(TABLE[key])
    ours = ours[:: len(ours) // len(stored)]  # of the large bank every 16th filter is stored
    torch.testing.assert_close(ours, stored, rtol=0, atol=F64)


def test_htk_peaks_lie_where_the_formula_says() -> None:
    filters = mel_filters(16000, 8192, 10, scale="htk", norm=None, dtype=torch.float64)
    top = 2595 * math.log10(1 + 8000 / 700)
    for i, peak in enumerate(filters.argmax(1).tolist()):
        assert peak * 16000 / 8192 == pytest.approx(700 * (10 ** ((i + 1) * top / 11 / 2595) - 1), abs=16000 / 8192)


def test_log_mel_is_that_of_librosa() -> None:
    ours = log_mel(chirp(), 16000, 40, frame=512 / 16000)
    stored = torch.from_numpy(TABLE["power"])
    torch.testing.assert_close(ours, stored.clamp(min=FLOOR).log(), rtol=0, atol=1e-8)
    single = log_mel(chirp().float(), 16000, 40, frame=512 / 16000)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.exp().double(), stored, rtol=1e-3, atol=F32 * float(stored.max()))


@pytest.mark.parametrize("samples", [0, 399, 400, 559, 560, 1234, 3999])
def test_features_of_a_prefix_are_a_prefix_of_the_features(samples: int) -> None:
    whole, part = log_mel(chirp(), 16000), log_mel(chirp()[:samples], 16000)
    assert len(part) == count_frames(samples, 16000) == max(0, 1 + (samples - 400) // 160)
    torch.testing.assert_close(part, whole[: len(part)], rtol=F64, atol=F64)


def test_silence_is_the_floor() -> None:
    assert torch.equal(log_mel(torch.zeros(800), 16000), torch.full((3, 40), math.log(FLOOR)))


def test_normalise() -> None:
    x = normalise(torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7 + 3)
    torch.testing.assert_close(x.mean(0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=F64)
    torch.testing.assert_close(x.var(0, correction=0), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-5)
    assert torch.equal(normalise(torch.ones(5, 2)), torch.zeros(5, 2))  # a constant feature is 0, not NaN


def test_deltas_of_a_line_and_of_a_parabola() -> None:
    t = torch.arange(12, dtype=torch.float64)[:, None]
    x, slope, bend = deltas(torch.cat([3 * t, t * t], 1)).split(2, dim=1)
    assert torch.equal(x[:, 0], 3 * t[:, 0])
    torch.testing.assert_close(slope[2:-2], torch.cat([torch.full_like(t, 3), 2 * t], 1)[2:-2], rtol=0, atol=F64)
    torch.testing.assert_close(bend[4:-4], torch.tensor([[0.0, 2.0]]).double().expand(4, 2), rtol=0, atol=F64)
    assert slope[0, 0] == pytest.approx((1 * 3 + 2 * 6) / 10)  # the first frame stands in for those before it


def test_stack() -> None:
    x = torch.arange(14).reshape(7, 2)
    assert stack(x, 3).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert torch.equal(stack(x, 1), x)
    with pytest.raises(ValueError, match="stacked is 0; accepted: a whole number, 1 or more"):
        stack(x, 0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"f_min 0.0, f_max 9000 at 16000 Hz; accepted: 0 <= f_min < f_max <= 8000"):
        mel_filters(16000, 512, f_max=9000)
    with pytest.raises(ValueError, match="n_mels 200 is too many at 8000 Hz with n_fft 256: filter 0"):
        mel_filters(8000, 256, 200)
    with pytest.raises(ValueError, match="unknown mel scale 'slany'; did you mean 'slaney'"):
        mel_filters(8000, 256, scale="slany")
    with pytest.raises(ValueError, match="unknown norm of mel filters"):
        mel_filters(8000, 256, norm="area")
    with pytest.raises(ValueError, match=r"signal is torch.float32 of shape \[2, 800\]"):
        log_mel(torch.zeros(2, 800), 16000)
    with pytest.raises(ValueError, match="are 1 and 0 samples"):
        log_mel(torch.zeros(800), 40)
