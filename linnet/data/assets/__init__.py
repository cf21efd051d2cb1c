"""Data shipped with the package, so that every recipe runs without other files: a novel and 1,797 handwritten digits.

    shipped_text()   -> path of moby_dick.txt.gz, 1,192,679 characters, ASCII, public domain
    shipped_digits() -> images uint8 [N,8,8] in 0..16, labels uint8 [N] in 0..9; the last 297 are the test set

README.md in this folder lists sources, licences and checksums.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import unknown
from ..zip_file import read_npz

HERE = Path(__file__).resolve().parent
TEST_DIGITS = 297
SPLITS = {"all": slice(None), "train": slice(None, -TEST_DIGITS), "test": slice(-TEST_DIGITS, None)}


def shipped_text() -> Path:
    """Return the path of Moby-Dick (Melville 1851), gzip-compressed; `TextSource` reads it directly."""
    return HERE / "moby_dick.txt.gz"


def shipped_digits(split: str = "all") -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (images [N,8,8], labels [N]): "all" 1,797, "train" the first 1,500, "test" the last 297."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    digits = read_npz(HERE / "digits.npz", ["images", "labels"])
    return digits["images"][SPLITS[split]], digits["labels"][SPLITS[split]]
