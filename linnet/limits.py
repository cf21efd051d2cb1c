"""How large a file may be before linnet refuses to read it, in one place.

A size that a file states is never trusted: it is compared with the bytes that are there before memory is allocated.
These limits hold where nothing is there to compare with: what JSON may hold, and how far compressed data may unfold.
They are far above every real file. The way out of each is in the sentence that refuses: unpack the file first, because
a plain file is as large as it looks; or set another number, `linnet.limits.LIMITS.UNPACKED_BYTES = ...`.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass
class Limits:
    """Bytes and counts; set one on LIMITS to go beyond it."""

    JSON_BYTES: int = 256 * MIB  # of one JSON file; the tokenizer of a 256k vocabulary has 33 MB
    JSON_ITEMS: int = 10_000_000  # values in it; that tokenizer has 1.6 million
    JSON_DEPTH: int = 64  # containers inside each other; 12 are in use
    JSON_DIGITS: int = 19  # of a whole number: 64 bits
    LINE_BYTES: int = 16 * MIB  # of one line of JSON lines

    UNPACKED_BYTES: int = 4096 * MIB  # of one compressed array, sound or tokenizer once unpacked
    UNPACKED_RATIO: int = 400  # how many times its size a compressed text may grow; texts grow 2 to 20 times
    UNPACKED_FREE: int = 256 * MIB  # up to here it may grow at any ratio
    IMAGE_PIXELS: int = 64 * MIB  # of one image: 8192 x 8192
    TENSORS: int = 1_000_000  # tensors in one file of weights


LIMITS = Limits()
