"""Size limits on the files that linnet reads.

A size stated in a file is never trusted: it is compared with the bytes present before memory is allocated. These
limits apply where there is nothing to compare with: how much JSON may hold and how far compressed data may expand. They
are far above the size of any real file. Each error message gives the way out: decompress the file first, since a plain
file cannot expand, or raise the limit: `linnet.limits.LIMITS.UNPACKED_BYTES = ...`.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass
class Limits:
    """Limits in bytes or counts; assign to a field of LIMITS to change one."""

    JSON_BYTES: int = 256 * MIB  # of one JSON file; a tokenizer with 256k tokens takes 33 MB
    JSON_ITEMS: int = 10_000_000  # values in one file; that tokenizer has 1.6 million
    JSON_DEPTH: int = 64  # nested containers; our own files have at most 12
    JSON_DIGITS: int = 19  # of an integer: 64 bits
    LINE_BYTES: int = 16 * MIB  # of one line of JSON Lines

    UNPACKED_BYTES: int = 4096 * MIB  # of one array, sound or tokenizer after decompression
    UNPACKED_RATIO: int = 400  # expansion of a compressed text; 2 to 20 is usual
    UNPACKED_FREE: int = 256 * MIB  # up to this size any ratio is accepted
    IMAGE_PIXELS: int = 64 * MIB  # of one image: 8192 x 8192
    TENSORS: int = 1_000_000  # tensors in one file of weights
    GGUF_ITEMS: int = 10_000_000  # values, array items and tensors in the header of one GGUF file; 250,000 are many


LIMITS = Limits()
