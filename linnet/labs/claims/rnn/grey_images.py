"""Grey images of 1,024 values (32 x 32), or 128 (8 x 16, block means): CIFAR-10 if available, else drawn ones.

    images(data, length, split)   data "cifar10" or "drawn", length 1,024 or 128, split "train" or "test"
    step_bits(source, test)       bits per value of a histogram of the step from the value before

A drawn image is a gradient with a shape on it, so that a value depends on near and on far ones. A model that needs more
bits than that histogram has not learned the images.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ....data import ImageSource, image_set

LONG, SHORT = 1024, 128  # values of an image
SIDE = 32
HELD_OUT = 32  # images of 1,024 values that a score is of
STEP_BITS = {"cifar10": 6.32, "drawn": 4.62}  # step_bits of images of 1,024 values
DRAWN = {"train": (2000, 0), "test": (200, 1)}  # images, seed


@cache
def images(data: str, length: int, split: str) -> ImageSource:
    """Return the images (see the top of this file), cached because several runs share them."""
    if data == "drawn":
        grey = drawn(*DRAWN[split])
    else:
        grey = image_set(data, split).images.reshape(-1, SIDE, SIDE, 3).mean(-1).astype(np.uint8)
    if length == SHORT:
        grey = grey.reshape(-1, 8, 4, 16, 2).mean((2, 4)).astype(np.uint8)
    return ImageSource(grey)


def step_bits(source: ImageSource, test: ImageSource) -> float:
    """Return the bits per value of the histogram of steps in `source` (one count added to each) on those of `test`."""
    known, asked = (np.diff(one.images.reshape(len(one.images), -1).astype(int)) % 256 for one in (source, test))
    counts = np.bincount(known.ravel(), minlength=256) + 1.0
    return float(-np.log2(counts[asked] / counts.sum()).mean())


def drawn(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Draw a gradient in a random direction, a rectangle or disc in another grey, and a little noise: [N,32,32]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE] / (SIDE - 1)
    drawings = []
    for _ in range(count):
        angle, low, high, grey = rng.uniform((0, 0, 0, 0), (2 * np.pi, 255, 255, 255))
        along = (np.cos(angle) * (x - 0.5) + np.sin(angle) * (y - 0.5)) / 1.5 + 0.5
        image = low + (high - low) * along
        (cx, cy), (w, h) = rng.uniform(0.2, 0.8, 2), rng.uniform(0.1, 0.3, 2)
        disc = rng.random() < 0.5
        inside = np.hypot(x - cx, y - cy) < w if disc else (abs(x - cx) < w) & (abs(y - cy) < h)
        drawings.append(np.where(inside, grey, image) + rng.normal(0, 3, image.shape))
    return np.clip(np.stack(drawings), 0, 255).astype(np.uint8)
