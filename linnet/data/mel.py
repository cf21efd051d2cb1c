"""Log-mel features of a signal without lookahead:  m_t = log(max(W |FFT(w * x_t)|^2, floor)),  x_t one frame of x.

W holds triangles, evenly spaced on the mel scale of Slaney (Auditory Toolbox, 1998: linear to 1 kHz, logarithmic above)
or of HTK (2595 log10(1 + f / 700)). Frame t is samples [t hop, t hop + frame): nothing is centred or padded, an
incomplete last frame is dropped, so the features of a prefix are a prefix of the features. T samples, N frames, F
features. `normalise`, `deltas` and `stack`, all three as `prepare`, apply to any frames, cepstra too.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ..errors import unknown, whole

FLOOR = 1e-10  # about the power of 16-bit rounding, so digital silence is not minus infinity


def mel_filters(
    rate: int,
    n_fft: int,
    n_mels: int = 40,
    f_min: float = 0.0,
    f_max: float | None = None,
    *,
    scale: str = "slaney",
    norm: str | None = "slaney",
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # [n_mels, n_fft // 2 + 1]
    """Return triangular filters; norm="slaney" gives each the same area (peak 2 / width in Hz), None the peak 1."""
    top = rate / 2 if f_max is None else f_max
    if not 0 <= f_min < top <= rate / 2:
        raise ValueError(f"f_min {f_min}, f_max {f_max} at {rate} Hz; accepted: 0 <= f_min < f_max <= {rate / 2}")
    if scale not in _SCALES:
        raise unknown("mel scale", scale, _SCALES)
    if norm not in ("slaney", None):
        raise unknown("norm of mel filters", norm, ["slaney", "None"])
    to_mel, to_hz = _SCALES[scale]
    ends = torch.linspace(to_mel(f_min), to_mel(top), n_mels + 2, dtype=torch.float64)
    edges = torch.tensor([to_hz(m) for m in ends.tolist()], dtype=torch.float64)
    left, centre, right = (x[:, None] for x in (edges[:-2], edges[1:-1], edges[2:]))  # [n_mels, 1]
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    filters = torch.minimum((bins - left) / (centre - left), (right - bins) / (right - centre)).clamp(min=0)
    empty = (filters.sum(1) == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(
            f"n_mels {n_mels} is too many at {rate} Hz with n_fft {n_fft}: filter {empty[0]} lies between two bins; "
            f"use fewer mels or a longer frame"
        )
    return (filters * 2 / (right - left) if norm else filters).to(dtype)


def log_mel(
    signal: Tensor,
    rate: int,
    n_mels: int = 40,
    *,
    frame: float = 0.025,
    hop: float = 0.010,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: str = "slaney",
) -> Tensor:  # [T] -> [N, n_mels]
    """Return the log mel power of Hann-windowed frames; lengths in seconds, n_fft the next power of two."""
    if signal.ndim != 1 or not signal.is_floating_point():
        raise ValueError(f"signal is {signal.dtype} of shape {list(signal.shape)}; accepted: floating point, [samples]")
    width, step = frame_samples(rate, frame, hop)
    n_fft = 1 << (width - 1).bit_length()
    filters = _filters(rate, n_fft, n_mels, f_min, f_max, scale, signal.dtype)
    if len(signal) < width:
        return signal.new_zeros(0, n_mels)
    frames = signal.unfold(0, width, step) * torch.hann_window(width, dtype=signal.dtype)  # [N, width]
    power = torch.fft.rfft(frames, n_fft).abs().square()  # [N, n_fft // 2 + 1]
    return (power @ filters.T).clamp(min=FLOOR).log()


def frame_samples(rate: int, frame: float = 0.025, hop: float = 0.010) -> tuple[int, int]:
    """Return (samples per frame, samples from one frame to the next)."""
    width, step = round(frame * rate), round(hop * rate)
    if width < 2 or step < 1:
        raise ValueError(f"frame {frame} s and hop {hop} s are {width} and {step} samples; accepted: 2 and 1 or more")
    return width, step


def count_frames(samples: int, rate: int, frame: float = 0.025, hop: float = 0.010) -> int:
    """Return the number of frames that `log_mel` makes of `samples`."""
    width, step = frame_samples(rate, frame, hop)
    return 0 if samples < width else 1 + (samples - width) // step


def normalise(features: Tensor, eps: float = 1e-5) -> Tensor:  # [N,F] -> [N,F]
    """Scale each feature to mean 0 and variance 1 over the complete utterance: not for streaming."""
    centred = features - features.mean(0)
    return centred / (centred.square().mean(0) + eps).sqrt()


def deltas(features: Tensor, width: int = 2, order: int = 2) -> Tensor:  # [N,F] -> [N, (order + 1) F]
    """Append `order` slopes, d_t = sum_k k (x_{t+k} - x_{t-k}) / (2 sum_k k^2), with the ends repeated."""
    parts = [features]
    for _ in range(order):
        x, n = parts[-1], len(features)
        padded = torch.cat([x[:1].expand(width, -1), x, x[-1:].expand(width, -1)])  # [N + 2 width, F]
        slope = sum(
            (k * (padded[width + k : width + k + n] - padded[width - k : width - k + n]) for k in range(1, width + 1)),
            start=torch.zeros_like(x),
        )
        parts.append(slope / (2 * sum(k * k for k in range(1, width + 1))))
    return torch.cat(parts, dim=1)


def stack(features: Tensor, n: int) -> Tensor:  # [N,F] -> [N // n, n F]
    """Concatenate every `n` frames into one; fewer than n frames at the end are dropped."""
    whole("stacked", n, 1, hint="it is the number of frames to join into one")
    length = len(features) // n
    return features[: length * n].reshape(length, n * features.shape[1])


def prepare(features: Tensor, *, normalised: bool = True, with_deltas: bool = False, stacked: int = 1) -> Tensor:
    """Return the input of a model: append slopes, normalise each feature, stack frames, in that order."""
    features = deltas(features) if with_deltas else features
    return stack(normalise(features) if normalised else features, stacked)


@lru_cache(maxsize=8)
def _filters(
    rate: int, n_fft: int, n_mels: int, f_min: float, f_max: float | None, scale: str, dtype: torch.dtype
) -> Tensor:
    return mel_filters(rate, n_fft, n_mels, f_min, f_max, scale=scale, dtype=dtype)


_KNEE, _STEP = 1000.0, math.log(6.4) / 27  # Slaney: 15 mels to 1 kHz, then 27 mels per factor 6.4


def _slaney(hz: float) -> float:
    return hz * 3 / 200 if hz < _KNEE else 15 + math.log(hz / _KNEE) / _STEP


def _slaney_hz(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else _KNEE * math.exp((mel - 15) * _STEP)


def _htk(hz: float) -> float:
    return 2595 * math.log10(1 + hz / 700)


def _htk_hz(mel: float) -> float:
    return 700 * (10 ** (mel / 2595) - 1)


_SCALES = {"slaney": (_slaney, _slaney_hz), "htk": (_htk, _htk_hz)}
