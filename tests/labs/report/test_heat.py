"""Heat maps: a figure for each mixer, the answer ringed, nothing fetched from elsewhere."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from linnet.labs.report.chart_bars import BELOW, DEEPEST, RING
from linnet.labs.report.heat import heat_figures
from linnet.labs.report.page import COLOURS

RISING = torch.arange(36.0).view(6, 6).tril() / 36
MAPS = {"softmax": RISING, "re<based": RISING / 4, "delta": -torch.eye(6)}


def shades(text: str) -> list[list[tuple[str, float]]]:
    """Colour and depth of every cell, figure by figure."""
    return [
        [(fill, float(deep)) for fill, deep in re.findall(r'<rect [^>]*fill="([^"]+)" fill-opacity="([\d.]+)"', drawn)]
        for drawn in text.split("</figure>")[:-1]
    ]


def test_one_figure_for_each_mixer_on_its_own_scale() -> None:
    text = heat_figures("maps", MAPS, [(4, 1)], "after < training")
    assert "after &lt; training" in text
    assert text.count("<figure") == 3
    for mixer, weights in MAPS.items():
        assert f"{mixer.replace('<', '&lt;')}, up to {weights.abs().max():.2g}" in text
    first, quarter, below = shades(text)
    assert first == quarter  # a quarter of the weights, on a quarter of the scale
    expected = (DEEPEST * RISING / RISING.max()).flatten().tolist()
    assert [deep for _, deep in first] == pytest.approx(expected, abs=0.006)
    assert {colour for colour, _ in first} == {COLOURS[0]}
    assert [cell for cell in below if cell[1]] == [(BELOW, DEEPEST)] * 6
    assert text == heat_figures("maps", MAPS, [(4, 1)], "after < training")


def test_nothing_comes_from_elsewhere() -> None:
    text = heat_figures("maps", MAPS, [(4, 1)], "")
    assert not re.search(r"http|href|<image|<script|url\(", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert all(one.startswith("maps-") for one in ids)


def test_every_target_has_a_ring_in_its_place_in_every_figure() -> None:
    assert RING not in heat_figures("maps", MAPS, [], "")
    text = heat_figures("maps", MAPS, [(5, 0), (5, 3), (2, 0)], "")
    rings = re.findall(rf'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*{RING}', text)
    assert len(rings) == 3 * 3
    cells = re.findall(r'<rect class="p" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', text)
    for panel in range(3):
        for at, (row, column) in enumerate([(5, 0), (5, 3), (2, 0)]):
            x, y = map(float, rings[3 * panel + at])
            left, top, wide, tall = map(float, cells[36 * panel + 6 * row + column])
            assert (x, y) == (pytest.approx(left + wide / 2, abs=1), pytest.approx(top + tall / 2, abs=1))


@pytest.mark.parametrize(
    ("maps", "targets", "sentence"),
    [
        ({}, [], "maps is empty"),
        ({"a": torch.zeros(2, 3, 3)}, [], r"the map of 'a' has shape \[2, 3, 3\]; accepted: \[rows, columns\]"),
        ({"a": torch.zeros(3, 3)}, [(3, 0)], r"target \(3, 0\) is outside the map of 'a', \[3, 3\]"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    maps: dict[str, Tensor], targets: list[tuple[int, int]], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        heat_figures("x", maps, targets, "")


def test_a_map_of_zeros_can_be_drawn() -> None:
    assert "up to 0" in heat_figures("x", {"elsewhere": torch.zeros(3, 3)}, [(1, 0)], "")
