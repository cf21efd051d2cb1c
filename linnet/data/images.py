"""Images as rows of bytes: uint8 [N,H,W] or [N,H,W,3] to tokens 0..255 in raster order, channels last.

    load_images(path)   idx or idx.gz (with its labels next to it), npz, or a folder of PNG files (extra `vision`)
    image_set(name)     "digits" (shipped), "mnist", "fashion-mnist", "cifar10" from the data folder, or a path

A pixel of three channels is three tokens: red, green, blue. Test parts are the official ones; every tenth image of the
training part is for validation.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import brief, unknown
from ..limits import LIMITS
from .assets import shipped_digits
from .folders import data_folder
from .idx_file import read_idx
from .zip_file import npz_names, read_npz

Array: TypeAlias = "np.ndarray[Any, Any]"
Pair: TypeAlias = "tuple[Array, Array | None]"  # images uint8 [N,H,W] or [N,H,W,3], labels int64 [N]
PathLike: TypeAlias = "str | os.PathLike[str]"

NAMES = ("digits", "mnist", "fashion-mnist", "cifar10")
DIGIT_LEVELS = 17  # 0..16
SPLITS = ("train", "valid", "train+valid", "test")
EVERY = 10  # one training image in ten is for validation
KEYS = (("images", "x", "X", "data"), ("labels", "y", "Y", "targets"))  # names of arrays in an npz, first match
FILES = {"train": ("train-images*", "*train*.npz"), "test": ("t10k-images*", "*test*.npz")}  # of a set in a folder


class ImageSource:
    """Batches {"tokens": [B,N] long in 0..255, "labels": [B] long} of images; without labels, only tokens."""

    unit = "pixels"

    def __init__(self, images: Array, labels: Array | None = None, *, levels: int = 256) -> None:
        """`levels`: the number of values a token can have; the shipped digits have 17."""
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
            raise ValueError(f"images are {images.dtype} {list(images.shape)}; accepted: uint8 [N,H,W] or [N,H,W,C]")
        if labels is not None and labels.shape != images.shape[:1]:
            raise ValueError(f"there are {len(images)} images and labels {list(labels.shape)}; accepted: one per image")
        if images.max() >= levels:
            raise ValueError(f"an image has the value {images.max()}; accepted: below levels, which is {levels}")
        self.levels = levels
        self.shape = images.shape[1:]  # [H,W] or [H,W,C]
        self.images = np.ascontiguousarray(images).reshape(len(images), -1)  # [N, H W C]
        self.labels = None if labels is None else labels.astype(np.int64)
        self.length = len(images)
        self.fingerprint = _fingerprint(images, self.labels)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        index = np.asarray(rows, dtype=np.int64)
        batch = {"tokens": torch.from_numpy(self.images[index]).long()}
        if self.labels is not None:
            batch["labels"] = torch.from_numpy(self.labels[index])
        return batch

    def units(self, batch: dict[str, Tensor]) -> int:
        return batch["tokens"].numel()


def image_set(name: PathLike, split: str = "train") -> ImageSource:
    """Return a split: "train", "valid" (every tenth training image), "train+valid" or "test"."""
    if split not in SPLITS:
        raise unknown("split of images", split, SPLITS)
    images, labels = _part(name, "test" if split == "test" else "train")
    if split in ("train", "valid"):
        chosen = (np.arange(len(images)) % EVERY == EVERY - 1) == (split == "valid")
        if not chosen.any():
            raise ValueError(f"{name} has {len(images)} training images; accepted for a valid part: {EVERY} or more")
        images, labels = images[chosen], None if labels is None else labels[chosen]
    return ImageSource(images, labels, levels=DIGIT_LEVELS if name == "digits" else 256)


def load_images(path: PathLike) -> Pair:
    """Return (images, labels or None) of one file or folder; the format is detected from the content."""
    file = Path(path)
    if file.is_dir():
        return _png_folder(file)
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file or folder {file}; accepted: idx, idx.gz, npz or a folder of PNG files"
        )
    with file.open("rb") as data:
        start = data.read(4)
    if start == b"PK\x03\x04":
        return _npz(file)
    images = read_idx(file)
    paired = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
    labels = read_idx(paired).astype(np.int64) if paired != file and paired.is_file() else None
    if images.ndim < 3:
        raise ValueError(f"{file} holds an array {list(images.shape)}; accepted: images, [N,H,W]")
    return images, labels


def _part(name: PathLike, part: str) -> Pair:
    """Return the official training or test part of a named set or a path."""
    if name == "digits":
        return shipped_digits(part)
    place = data_folder(str(name)) if name in NAMES else Path(name)
    if place is None or not place.exists():
        if name in NAMES:
            raise FileNotFoundError(
                f"there is no data folder with {name}; set LINNET_DATA, or use the shipped 'digits'"
            )
        raise unknown("image set, and no such file or folder:", str(name), [*NAMES, "a path"])
    parts = {file.name for file in place.iterdir() if file.is_dir()} if place.is_dir() else set()
    if parts and parts <= {"train", "test"} and (part == "train" or part in parts):
        if part not in parts:
            raise ValueError(
                f"{place} has a folder test and no folder train; put the training images into {place / 'train'}, or "
                f"name {place / 'test'} itself to train on those"
            )
        return load_images(place / part)
    files = {key: next((f for p in patterns for f in sorted(place.glob(p))), None) for key, patterns in FILES.items()}
    if any(files.values()):
        file = files[part]
        if file is None:
            other = next(path for path in files.values() if path)
            raise ValueError(
                f"{place} has no {part} images, only {other.name}; add {FILES[part][0]}, or name {other} itself to "
                "train on those"
            )
        return load_images(file)
    if part == "test":
        raise ValueError(f"{place} is one set without a test part; accepted: train, valid, train+valid")
    return load_images(place)


def _npz(file: Path) -> Pair:
    members = npz_names(file)
    names = [next((key for key in keys if key in members), None) for keys in KEYS]
    if names[0] is None:
        raise ValueError(f"{file} holds {brief(members)}; accepted: images as one of {', '.join(KEYS[0])}")
    arrays = read_npz(file, [name for name in names if name is not None])
    labels = None if names[1] is None else arrays[names[1]]
    if labels is not None and (labels.dtype.kind not in "iu" or labels.ndim != 1):
        raise ValueError(f"{file}: labels are {labels.dtype} {list(labels.shape)}; accepted: whole numbers [N]")
    return arrays[names[0]], None if labels is None else labels.astype(np.int64)


def _png_folder(folder: Path) -> Pair:
    """Read PNG files in the folder, or in subfolders whose names in alphabetical order are the labels 0, 1, ..."""
    classes = sorted(f for f in folder.iterdir() if f.is_dir() and any(f.glob("*.png")))
    files = [(f, i) for i, sub in enumerate(classes) for f in sorted(sub.glob("*.png"))]
    files = files or [(f, -1) for f in sorted(folder.glob("*.png"))]
    if not files:
        raise ValueError(f"{folder} has neither PNG files nor folders of them; accepted: *.png or <label>/*.png")
    most = min(LIMITS.IMAGE_PIXELS, LIMITS.UNPACKED_BYTES // (3 * len(files)))
    images = [_png(file, most) for file, _ in files]
    for (file, _), image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            a, b = list(image.shape), list(images[0].shape)
            raise ValueError(f"{file} is {a}, {files[0][0].name} is {b}; accepted: images of one size; resize them")
    return np.stack(images), np.array([label for _, label in files]) if classes else None


def _png(file: Path, most: int) -> Array:  # [H,W] grey or [H,W,3]
    """Return one image of at most `most` pixels."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError(f"reading {file.name} needs the package pillow; pip install linnet[vision]") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pillow warns about sizes that are refused here
            image = Image.open(file, formats=["PNG"])
        with image:
            if prod(image.size) > most:
                raise ValueError(f"{image.size[0]} x {image.size[1]} pixels, and at most {most:,} are accepted")
            mode = {"1": "L", "L": "L", "LA": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGB"}.get(image.mode)
            if mode is not None:
                return np.asarray(image.convert(mode))
    except Exception as error:  # pillow's decoders raise anything: struct.error, SyntaxError, DecompressionBombError
        raise ValueError(f"{file} is not a complete PNG file ({error}); save it again") from error
    raise ValueError(f"{file} has pixels of mode {image.mode}; accepted: 8 bits, grey, palette or RGB; convert it")


def _fingerprint(images: Array, labels: Array | None) -> str:
    digest = sha256(f"{images.shape}".encode())
    digest.update(np.ascontiguousarray(images).data)
    digest.update(b"" if labels is None else labels.astype("<i8").tobytes())
    return digest.hexdigest()
