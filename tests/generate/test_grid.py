"""save_grid: the file, read by another library, has every pixel of every image in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from linnet.generate.grid import BAR_COLOUR, GAP_COLOUR, grid, png, save_grid


def read(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as picture:
        return np.asarray(picture)


def images(count: int, *shape: int, levels: int = 256) -> Tensor:
    drawn = torch.randint(levels, (count, *shape), generator=torch.Generator().manual_seed(0))
    drawn[0].view(-1)[:2] = torch.tensor([0, levels - 1])
    return drawn


@pytest.mark.parametrize("gap", [0, 1, 3])
@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize("levels", [2, 17, 256])
@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 3)])
def test_pixel_for_pixel(tmp_path: Path, shape: tuple[int, ...], levels: int, scale: int, gap: int) -> None:
    """Five images in three columns: the last place of the second row stays empty."""
    given, path = images(5, *shape, levels=levels), tmp_path / "grid.png"
    save_grid(path, given, levels=levels, columns=3, scale=scale, gap=gap)
    high, wide = shape[0] * scale + gap, shape[1] * scale + gap
    want = np.full((2 * high + gap, 3 * wide + gap, *shape[2:]), GAP_COLOUR)
    for i, y, x in np.ndindex(5, shape[0] * scale, shape[1] * scale):
        value = given[i, y // scale, x // scale].numpy()
        want[gap + i // 3 * high + y, gap + i % 3 * wide + x] = np.rint(value * 255.0 / (levels - 1))
    np.testing.assert_array_equal(read(path), want)


def test_bytes_become_the_file_itself(tmp_path: Path) -> None:
    """256 levels of grey are unchanged, and uint8 tensors work as well as long ones."""
    given = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16)
    save_grid(tmp_path / "a.png", given, gap=0)
    np.testing.assert_array_equal(read(tmp_path / "a.png"), given[0].numpy())


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 3)])
def test_what_was_given_has_a_bar_at_its_left(tmp_path: Path, shape: tuple[int, ...]) -> None:
    some, path = images(3, *shape), tmp_path / "grid.png"
    half = some[0].numel() // 2
    save_grid(path, some, columns=3, scale=2, gap=2, given=[half, 0, 2 * half])
    picture = read(path)  # [12,44,3]: gaps of 2 around images of 8 x 12
    assert picture.shape == (12, 44, 3)
    bar = (picture == BAR_COLOUR).all(-1)
    want = np.zeros((12, 44), dtype=bool)
    want[2:6, 0:2] = True
    want[2:10, 28:30] = True
    np.testing.assert_array_equal(bar & (np.arange(44) % 14 < 2), want)
    plain = grid(some, columns=3, scale=2, gap=2)
    plain = plain if plain.ndim == 3 else plain[..., None].repeat(3, axis=-1)
    np.testing.assert_array_equal(picture[~want], plain[~want])


def test_what_is_not_there_has_the_colour_of_the_gaps() -> None:
    given = images(1, 4, 4)
    given[0, 2:] = -1
    picture = grid(given, gap=1)
    assert (picture[3:] == GAP_COLOUR).all()
    np.testing.assert_array_equal(picture[1:3, 1:5], given[0, :2].numpy())


def test_the_same_images_make_the_same_bytes_and_leave_nothing_else(tmp_path: Path) -> None:
    first, again = tmp_path / "first.png", tmp_path / "again.png"
    for path in (first, again, again):
        save_grid(path, images(4, 3, 3))
    assert first.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.png", "first.png"]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save_grid(tmp_path / "none" / "a.png", images(1, 3, 3))


@pytest.mark.parametrize(
    ("given", "how", "message"),
    [
        (torch.zeros(2, 3), {}, r"shape \[2, 3\]; accepted: \[N,H,W\]"),
        (torch.zeros(2, 3, 3, 2, dtype=torch.long), {}, r"shape \[2, 3, 3, 2\]; accepted"),
        (torch.zeros(0, 3, 3, dtype=torch.long), {}, r"shape \[0, 3, 3\]; accepted: .* 1 image or more"),
        (torch.zeros(1, 3, 3), {}, r"torch\.float32 of 256 levels; accepted: integers"),
        (images(1, 3, 3), {"levels": 1}, "of 1 levels; accepted"),
        (images(1, 3, 3), {"levels": 17}, "values 0 to 255; accepted: 0 to 16, or -1"),
        (images(1, 3, 3) - 2, {}, "values -2 to 253; accepted"),
        (images(1, 3, 3), {"columns": 0}, "columns is 0; accepted: 1 or more"),
        (images(1, 3, 3), {"scale": 0}, "scale is 0; accepted: 1 or more"),
        (images(1, 3, 3), {"gap": -1}, "gap is -1; accepted: 0 or more"),
        (images(1, 3, 3), {"gap": 0, "given": [3]}, "gap is 0; accepted: 1 or more"),
        (images(2, 3, 3), {"given": [3]}, r"given is \[3\] for 2 images; accepted: 0 to 9 for each"),
        (images(1, 3, 3), {"given": [10]}, r"given is \[10\] for 1 images"),
    ],
)
def test_bad_input(tmp_path: Path, given: Tensor, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        save_grid(tmp_path / "a.png", given, **how)
    assert not list(tmp_path.iterdir())


def test_a_picture_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the picture is float64 \[2, 2\]; accepted: uint8"):
        png(np.zeros((2, 2)))
