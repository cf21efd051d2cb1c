"""Images from every kind of file, the parts of a set, tokens in raster order, and files that are damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.data.folders import data_folder
from linnet.data.images import ImageSource, image_set, load_images

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (25, 3, 4), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 2, 3, 3), dtype=np.uint8)
LABELS = np.arange(25, dtype=np.uint8) % 10


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def png(path: Path, image: np.ndarray) -> None:
    pil = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    pil.fromarray(image).save(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["idx", "idx.gz"])
def test_idx_with_and_without_labels(tmp_path: Path, pack: type) -> None:
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(pack(idx(GREY)))
    images, labels = load_images(file)
    assert labels is None
    assert np.array_equal(images, GREY)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(pack(idx(LABELS)))
    images, labels = load_images(file)
    assert labels is not None
    assert np.array_equal(labels, LABELS)


@pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y")])
def test_npz(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "a.npz", **{keys[0]: COLOUR, keys[1]: LABELS[:6]})
    images, labels = load_images(tmp_path / "a.npz")
    assert np.array_equal(images, COLOUR)
    assert labels is not None
    assert labels.tolist() == LABELS[:6].tolist()


def test_png_folder_with_labels_and_without(tmp_path: Path) -> None:
    for i in range(4):
        png(tmp_path / "a" / ("odd" if i % 2 else "even") / f"{i}.png", COLOUR[i])
        png(tmp_path / "b" / f"{i}.png", GREY[i])
    images, labels = load_images(tmp_path / "a")
    assert np.array_equal(images, COLOUR[[0, 2, 1, 3]])
    assert labels is not None
    assert labels.tolist() == [0, 0, 1, 1]
    images, labels = load_images(tmp_path / "b")
    assert labels is None
    assert np.array_equal(images, GREY[:4])


def test_png_folders_train_and_test_are_the_parts(tmp_path: Path) -> None:
    for i in range(10):
        png(tmp_path / "train" / f"{i}.png", GREY[i])
    png(tmp_path / "test" / "a.png", GREY[20])
    assert [image_set(tmp_path, s).length for s in ("train", "valid", "train+valid", "test")] == [9, 1, 10, 1]
    assert np.array_equal(image_set(tmp_path, "test").images[0], GREY[20].ravel())


def test_tokens_are_in_raster_order_channels_last() -> None:
    source = ImageSource(COLOUR, LABELS[:6])
    batch = source.batch([4, 1, 4])
    assert batch["tokens"].dtype == batch["labels"].dtype == torch.long
    assert batch["tokens"].shape == (3, 18)
    assert batch["labels"].tolist() == [4, 1, 4]
    for y in range(2):
        for x in range(3):
            assert batch["tokens"][1, 3 * (3 * y + x) :][:3].tolist() == COLOUR[1, y, x].tolist()
    assert (source.length, source.unit, source.shape, source.units(batch)) == (6, "pixels", (2, 3, 3), 54)
    assert "labels" not in ImageSource(GREY).batch([0])


def test_fingerprint_is_that_of_the_content() -> None:
    changed = GREY.copy()
    changed[7, 1, 2] ^= 1
    prints = [
        ImageSource(x, y).fingerprint for x, y in ((GREY, LABELS), (changed, LABELS), (GREY, 9 - LABELS), (GREY, None))
    ]
    assert len(set(prints)) == 4
    assert ImageSource(GREY.copy(), LABELS.astype(np.int64)).fingerprint == prints[0]


def test_shipped_digits() -> None:
    train, valid, both, test = (image_set("digits", s) for s in ("train", "valid", "train+valid", "test"))
    assert (train.length, valid.length, both.length, test.length) == (1350, 150, 1500, 297)
    assert (train.levels, train.shape) == (17, (8, 8))
    assert np.array_equal(valid.images, both.images[9::10])
    assert int(train.batch(range(1350))["tokens"].max()) == 16


@pytest.mark.parametrize(
    ("name", "train", "test", "first"),
    [("mnist", 54000, 10000, [7, 2, 1]), ("cifar10", 9000, 2000, [3, 8, 8]), ("fashion-mnist", None, 10000, [9, 2, 1])],
)
def test_sets_of_the_data_folder(name: str, train: int | None, test: int, first: list[int]) -> None:
    if data_folder(name) is None:
        pytest.skip(f"no data folder with {name}")
    source = image_set(name, "test")
    assert source.length == test
    assert source.batch([0, 1, 2])["labels"].tolist() == first
    if train is None:
        with pytest.raises(ValueError, match=r"has no train images, only .*; add train-images"):
            image_set(name)
    else:
        assert image_set(name).length == train


def test_a_set_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="unknown image set, and no such file or folder: 'minst'; did you mean 'mnist'"
    ):
        image_set("minst")
    with pytest.raises(ValueError, match="unknown split of images 'vaild'; did you mean 'valid'"):
        image_set("digits", "vaild")
    monkeypatch.setattr("linnet.data.images.data_folder", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="no data folder with mnist; set LINNET_DATA, or use the shipped 'digits'"
    ):
        image_set("mnist")
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        load_images(tmp_path / "none")
    np.savez(tmp_path / "a.npz", x=GREY[:9])
    with pytest.raises(ValueError, match="one set without a test part; accepted: train, valid"):
        image_set(tmp_path / "a.npz", "test")
    with pytest.raises(ValueError, match="has 9 training images; accepted for a valid part: 10 or more"):
        image_set(tmp_path / "a.npz", "valid")


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    whole = idx(GREY)
    for data, message in [
        (whole[:-5], r"states \[25, 3, 4\] and holds 295 bytes; it is damaged"),
        (gzip.compress(whole)[:-30], "is a damaged gzip file"),
        (b"GIF89a....", "begins with b'GIF8'; accepted: idx files"),
        (b"", "begins with b''"),
        (idx(LABELS), r"holds an array \[25\]; accepted: images"),
    ]:
        (tmp_path / "f").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            load_images(tmp_path / "f")
    np.savez(tmp_path / "a.npz", pictures=GREY)
    with pytest.raises(ValueError, match=r"holds \['pictures'\]; accepted: images as one of images, x"):
        load_images(tmp_path / "a.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:200])
    with pytest.raises(ValueError, match="is not a complete zip file"):
        load_images(tmp_path / "cut.npz")


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"any": "object"}], dtype=object))
    with pytest.raises(ValueError, match="is not an array of plain numbers"):
        load_images(tmp_path / "a.npz")


def test_png_of_two_sizes_or_damaged_or_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has neither PNG files"):
        load_images(tmp_path)
    png(tmp_path / "a.png", GREY[0])
    png(tmp_path / "b.png", COLOUR[0])
    with pytest.raises(ValueError, match=r"b.png is \[2, 3, 3\], a.png is \[3, 4\]; accepted: images of one size"):
        load_images(tmp_path)
    png(tmp_path / "b.png", np.zeros((3, 4), np.uint16))
    with pytest.raises(ValueError, match=r"b.png has pixels of mode I;16; accepted: 8 bits"):
        load_images(tmp_path)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    with pytest.raises(ValueError, match=r"b.png is not a complete PNG file"):
        load_images(tmp_path)


def test_wrong_arrays() -> None:
    with pytest.raises(ValueError, match=r"images are float64 \[25, 3, 4\]; accepted: uint8"):
        ImageSource(GREY.astype(float))
    with pytest.raises(ValueError, match=r"there are 25 images and labels \[6\]"):
        ImageSource(GREY, LABELS[:6])
    with pytest.raises(ValueError, match=r"an image has the value 255; accepted: below levels, which is 17"):
        ImageSource(np.full((1, 2, 2), 255, np.uint8), levels=17)
