"""State sizes: the width of q and k (or the window) that gives a mixer a state of a given number of bytes.

    Based     (1 + f + f (f + 1) / 2) (d_v + 1) numbers        ReBased   f (f + 1) / 2 (d_v + 1)
    elu + 1   f (d_v + 1)                                      delta     f d_v                    4 bytes each

The mixer itself reports the size (`state_bytes`), so the comparison uses the bytes that are stored. A mixer whose state
cannot be chosen (softmax, a short convolution, RWKV) is refused with its size, one whose steps are too coarse with the
two nearest sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...layers import build_mixer

CLOSE = 1.15  # a state larger or smaller than requested by up to this factor counts as that size
WIDEST = 1024
FIXED = ("softmax", "lsh", "conv", "gated_conv", "shift", "rwkv4", "rwkv7")
GROWING = ("softmax", "lsh")  # with the length of the sequence


def mixer_bytes(mixer: str, d_model: int, length: int, options: Mapping[str, Any], **sizes: Any) -> int:
    """Return the bytes of state of one layer after `length` tokens."""
    with torch.device("meta"):
        layer = build_mixer(mixer, d_model=d_model, options=options, **{"n_heads": 1, "bias": False, **sizes})
    return layer.state_bytes(length)


def sized(
    mixer: str, size: int, *, d_model: int, length: int, options: Mapping[str, Any] | None = None, n_heads: int = 1
) -> dict[str, Any]:
    """Return the change to a RecallConfig that gives `mixer` a state of `size` bytes: key_dim, or the option window."""
    given = dict(options or {})
    if mixer in FIXED:
        has = mixer_bytes(mixer, d_model, length, given, n_heads=n_heads)
        when = f" after {length} tokens" if mixer in GROWING else ""
        raise ValueError(
            f"mixer {mixer!r} cannot be given a state of {size:,} bytes: at d_model {d_model} it has {has:,}{when}; "
            "change d_model, or leave the state sizes out for it"
        )

    def settings(width: int) -> dict[str, Any]:
        if mixer == "window":
            return {"options": {**given, "window": width}}
        return {"key_dim": width, "options": given}

    def bytes_at(width: int) -> int:
        change = settings(width)
        return mixer_bytes(mixer, d_model, length, change["options"], n_heads=n_heads, key_dim=change.get("key_dim"))

    low, high = 1, WIDEST  # the largest width with at most `size` bytes is in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_at(middle) <= size else (low, middle)
    best = min((low, high), key=lambda width: max(bytes_at(width) / size, size / bytes_at(width)))
    if not 1 / CLOSE <= bytes_at(best) / size <= CLOSE:
        near = " or ".join(f"{bytes_at(width):,}" for width in sorted({low, high}))
        raise ValueError(
            f"mixer {mixer!r} cannot be given a state of {size:,} bytes at d_model {d_model}; nearest: {near}"
        )
    return settings(best)
