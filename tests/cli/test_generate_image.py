"""`linnet generate image`: the picture holds the model's samples, or completions beside what they were made from."""

from __future__ import annotations

import shutil
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from linnet.cli import main
from linnet.cli.common import Bar
from linnet.cli.generate_image import _three_digits
from linnet.data.images import image_set
from linnet.generate.grid import BAR_COLOUR, GAP_COLOUR
from linnet.generate.images import sample_images
from linnet.models import Model
from tests.cli.command import TINY, linnet, refused, write_npz, write_pngs, write_text

Capsys = pytest.CaptureFixture[str]
GAP = 2  # that of --scale 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, pictures that are not square and have no test part, a mixture of 256 values, and a text."""
    folder = tmp_path_factory.mktemp("runs")
    for name, args in {
        "digits": ("image",),
        "pngs": ("image", str(write_pngs(folder / "pictures"))),
        "npz": ("image", str(write_npz(folder / "images.npz"))),
        "text": ("text", str(write_text(folder / "book.txt")), "--seq-len", "32"),
    }.items():
        with pytest.raises(SystemExit) as left:
            main.main(["train", *args, *TINY, "--out", str(folder / name)])
        assert not left.value.code
    return folder


def cells(path: Path, high: int, wide: int) -> np.ndarray[Any, Any]:
    """The places of a picture of --scale 2, a pixel for each of theirs: [rows,columns,H,W] or [..,H,W,3]."""
    with Image.open(path) as opened:
        picture = np.asarray(opened)
    tops, lefts = (range(GAP, size - GAP, 2 * n + GAP) for size, n in zip(picture.shape[:2], (high, wide), strict=True))
    return np.array([[picture[y : y + 2 * high : 2, x : x + 2 * wide : 2] for x in lefts] for y in tops])


@pytest.mark.parametrize(("name", "shape", "levels"), [("digits", (8, 8), 17), ("pngs", (3, 4), 256)])
def test_new_images(capsys: Capsys, runs: Path, tmp_path: Path, name: str, shape: tuple[int, int], levels: int) -> None:
    out = tmp_path / "new.png"
    done = linnet(
        capsys, "generate", "image", runs / name, "--out", out, "--count", 10, "--seed", 5, "--temperature", 0.9,
        "--scale", 2,
    )  # fmt: skip
    assert done.status == 0, done.err
    assert done.out.startswith(f"10 images of {shape[0]} x {shape[1]}: ")
    assert "images/s" in done.out
    assert "s an image" in done.out
    assert done.out.endswith(f"{out}\n")
    model: Any = Model.from_pretrained(runs / name)
    want = sample_images(model, 10, length=prod(shape), seed=5, temperature=0.9).reshape(-1, *shape).numpy()
    images = cells(out, *shape)
    assert images.shape == (2, 8, *shape)
    np.testing.assert_array_equal(images.reshape(-1, *shape)[:10], np.rint(want * 255 / (levels - 1)))
    assert (images[1, 2:] == GAP_COLOUR).all()


def test_completions_stand_between_what_was_given_and_the_original(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    """Digits of the test part; a quarter of eight rows is two."""
    out = tmp_path / "completed.png"
    args = ("--out", out, "--count", 3, "--complete", "--given", 0.25, "--scale", 2)
    done = linnet(capsys, "generate", "image", runs / "digits", *args)
    assert done.status == 0, done.err
    assert done.out.startswith("9 images of 8 x 8: ")
    images = cells(out, 8, 8)
    assert images.shape == (3, 5, 8, 8, 3)
    real = image_set("digits", "test").batch(range(3))["tokens"]
    model: Any = Model.from_pretrained(runs / "digits")
    ways = sample_images(model, 9, length=64, known=real[:, :16].repeat_interleave(3, dim=0))
    shades = np.rint(real.reshape(3, 8, 8, 1).numpy() * 255 / 16)
    np.testing.assert_array_equal(images[:, 4], shades.repeat(3, axis=-1))
    np.testing.assert_array_equal(images[:, :4, :2], shades[:, None, :2].repeat(4, axis=1).repeat(3, axis=-1))
    assert (images[:, 0, 2:] == GAP_COLOUR).all()
    np.testing.assert_array_equal(images[:, 1:4, ..., 0], np.rint(ways.reshape(3, 3, 8, 8).numpy() * 255 / 16))
    assert not (images[:, 1] == images[:, 2]).all()
    with Image.open(out) as picture:
        left = (np.asarray(picture)[2:18, ::18][:, :5] == BAR_COLOUR).all(-1)  # in the gap at the left of each
    np.testing.assert_array_equal(left, (np.arange(16) < 4)[:, None] & (np.arange(5) < 4))


def test_half_is_given_by_default(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    """Pictures without a test part: the held-out ones of the training part; half of three rows is two."""
    out = tmp_path / "completed.png"
    done = linnet(capsys, "generate", "image", runs / "pngs", "--out", out, "--count", 1, "--complete", "--scale", 2)
    assert done.status == 0, done.err
    images = cells(out, 3, 4)[0, ..., 0]
    real = image_set(str(runs / "pictures"), "valid").images[0].reshape(3, 4)
    np.testing.assert_array_equal(images[4], real)
    np.testing.assert_array_equal(images[0], np.where(np.arange(3)[:, None] < 2, real, GAP_COLOUR))


def test_without_its_data_a_run_needs_a_shape(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    """And then nothing else; an existing picture is replaced."""
    shutil.copytree(runs / "npz", tmp_path / "run")
    data, out = runs / "images.npz", tmp_path / "new.png"
    data.rename(runs / "away.npz")
    try:
        message = refused(capsys, "generate", "image", tmp_path / "run", "--out", out)
        assert "cannot be read" in message
        assert message.endswith("restore them, or add --shape HEIGHT WIDTH")
        assert "--shape" not in refused(capsys, "generate", "image", tmp_path / "run", "--out", out, "--complete")
        assert not out.exists()
        for shape in (("4", "4"), ("2", "2", "3")):
            args = ("--out", out, "--count", 1, "--scale", 2, "--shape", *shape)
            assert linnet(capsys, "generate", "image", tmp_path / "run", *args).status == 0
    finally:
        (runs / "away.npz").rename(data)
    model: Any = Model.from_pretrained(tmp_path / "run")
    want = sample_images(model, 1, length=12).reshape(2, 2, 3).numpy()
    np.testing.assert_array_equal(cells(out, 2, 2)[0, 0], want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--count", "0"), "--count is 0; accepted: a whole number, 1 or more"),
        (("--scale", "0"), "--scale is 0; accepted: a whole number, 1 or more"),
        (("--seed", "-1"), "--seed is -1; accepted: a whole number, 0 or more"),
        (("--temperature", "-1"), "--temperature is -1.0; accepted: a number of 0 or more"),
        (("--temperature", "nan"), "--temperature is nan; accepted: a number of 0 or more"),
        (("--given", "0.5"), "--given is 0.5, which only --complete uses; add --complete"),
        (
            ("--complete", "--given", "1"),
            "--given is 1.0; accepted: a number between 0 and 1; the fraction of the rows",
        ),
        (("--complete", "--given", "0"), "--given is 0.0; accepted"),
        (("--complete", "--count", "9999"), "accepted with --complete: 1 to 297, the held-out images"),
        (("--out", "none/new.png"), "--out is none/new.png, but there is no folder none; create it first"),
        (("--out", "."), "--out is ., which is a folder"),
        (("--shape", "8"), "--shape is 8; accepted: HEIGHT WIDTH"),
        (("--shape", "8", "8", "--complete"), "--shape is 8 8 with --complete; accepted"),
        (("--shape", "8", "8", "2"), "--shape is 8 8 2; accepted"),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_a_bad_option_is_one_sentence(
    capsys: Capsys, runs: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refused(capsys, "generate", "image", runs / "digits", "--out", "new.png", *options)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("elsewhere")
def test_a_folder_without_an_image_model_is_refused(capsys: Capsys, runs: Path, tmp_path: Path) -> None:
    assert "holds a language model; accepted: an image model" in refused(capsys, "generate", "image", runs / "text")
    assert "config.json does not exist; accepted: a folder" in refused(capsys, "generate", "image", tmp_path)


@pytest.mark.usefixtures("elsewhere")
def test_a_checkpoint_needs_a_shape(capsys: Capsys, runs: Path) -> None:
    folder = runs / "digits" / (runs / "digits" / "latest").read_text(encoding="utf-8").strip()
    message = refused(capsys, "generate", "image", folder)
    assert "run.json does not exist" in message
    assert message.endswith("restore them, or add --shape HEIGHT WIDTH")
    assert linnet(capsys, "generate", "image", folder, "--shape", "8", "8", "--count", "1").status == 0


def test_help_describes_every_option(capsys: Capsys) -> None:
    text = linnet(capsys, "generate", "image", "--help").out
    for option in ("out", "count", "complete", "given", "temperature", "seed", "weights", "backend", "scale", "shape"):
        assert f"--{option}" in text
    assert "three completions" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_says_how_long_it_will_take(terminal: bool) -> None:
    """In a pipe once, on a terminal always; nothing within the first seconds."""
    console = Console(file=StringIO(), force_terminal=terminal, width=100)
    with Bar("sampling 4 images", console=console) as early:
        early(1, 8)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
    with Bar("sampling 4 images", console=console, patience=0.0) as bar:
        bar.began -= 30.0  # so long ago
        bar(2, 8)
        bar.next = 0.0
        bar(4, 8)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "sampling 4 images" in text
    assert "1:30 left" in text
    if not terminal:
        assert text == "sampling 4 images: about 1:30 left\n"


@pytest.mark.parametrize(
    ("x", "message"), [(12345.6, "12,346"), (99.96, "100"), (3.14159, "3.14"), (0.00412, "0.00412")]
)
def test_figures_have_three_digits(x: float, message: str) -> None:
    assert _three_digits(x) == message
