"""save_grid: write a grid of images to a PNG file, with zlib of the standard library only.

    value v of L levels  ->  round(255 v / (L - 1));   -1, a missing value  ->  the colour of the gaps

A bar in the gap to the left of a completion is as high as its given part.
The same images give the same bytes. PNG: W3C recommendation, third edition, sections 5 and 11.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from ..atomic import atomic

Array: TypeAlias = "np.ndarray[Any, Any]"

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB = 0, 2  # colour types
GAP_COLOUR = 96  # dark grey: neither a black background nor a white stroke
BAR_COLOUR = (255, 160, 0)


def save_grid(path: str | os.PathLike[str], images: Tensor, **how: Any) -> None:
    """Write `grid(images, **how)` to a PNG file, atomically."""
    data = png(grid(images, **how))
    with atomic(Path(path)) as file:
        file.write(data)


def grid(
    images: Tensor,
    *,
    levels: int = 256,
    columns: int = 8,
    scale: int = 1,
    gap: int = 2,
    given: Sequence[int] | None = None,
) -> Array:
    """Arrange images [N,H,W] or [N,H,W,3] in rows, with gaps around all of them: uint8 [h,w] or [h,w,3].

    Each pixel is enlarged `scale` times. `given`: the number of given values of each image, 0 for none.
    """
    _check(images, levels, given, columns=columns, scale=scale, gap=gap)
    cells = _colours(images.cpu().numpy(), levels)  # [N,H,W] or [N,H,W,3] uint8
    if given is not None and cells.ndim == 3:
        cells = cells[..., None].repeat(3, axis=-1)
    cells = cells.repeat(scale, axis=1).repeat(scale, axis=2)
    count, high, wide = cells.shape[:3]
    columns = min(columns, count)
    size = (-(-count // columns) * (high + gap) + gap, columns * (wide + gap) + gap)
    out = np.full((*size, *cells.shape[3:]), GAP_COLOUR, dtype=np.uint8)
    for i, cell in enumerate(cells):
        y, x = gap + i // columns * (high + gap), gap + i % columns * (wide + gap)
        out[y : y + high, x : x + wide] = cell
        if given is not None:
            out[y : y + round(high * given[i] / images[i].numel()), x - gap : x] = BAR_COLOUR
    return out


def png(picture: Array) -> bytes:
    """Encode uint8 [h,w] (grey) or [h,w,3] (RGB) as PNG, 8 bits per channel."""
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or picture.shape[2:] not in ((), (3,)):
        raise ValueError(f"the picture is {picture.dtype} {list(picture.shape)}; accepted: uint8 [h,w] or [h,w,3]")
    high, wide = picture.shape[:2]
    header = struct.pack(">IIBBBBB", wide, high, 8, GREY if picture.ndim == 2 else RGB, 0, 0, 0)
    lines = b"".join(b"\x00" + line.tobytes() for line in picture)  # 0: no filter
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _colours(values: Array, levels: int) -> Array:
    shades = np.rint(np.arange(levels) * (255 / (levels - 1))).astype(np.uint8)
    return np.where(values < 0, np.uint8(GAP_COLOUR), shades[np.maximum(values, 0)])


def _check(images: Tensor, levels: int, given: Sequence[int] | None, **sizes: int) -> None:
    if images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)) or not images.numel():
        raise ValueError(f"images have shape {list(images.shape)}; accepted: [N,H,W] or [N,H,W,3], 1 image or more")
    if images.is_floating_point() or levels < 2:
        raise ValueError(f"images are {images.dtype} of {levels} levels; accepted: integers, 2 levels or more")
    low, high = int(images.min()), int(images.max())
    if low < -1 or high >= levels:
        raise ValueError(f"images have values {low} to {high}; accepted: 0 to {levels - 1}, or -1 for a missing value")
    for name, value in sizes.items():
        least = 0 if name == "gap" and given is None else 1
        if value < least:
            raise ValueError(f"{name} is {value}; accepted: {least} or more")
    if given is not None and (len(given) != len(images) or not all(0 <= n <= images[0].numel() for n in given)):
        raise ValueError(
            f"given is {list(given)} for {len(images)} images; accepted: 0 to {images[0].numel()} for each of them"
        )
