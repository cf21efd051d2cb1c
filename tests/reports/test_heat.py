"""Heat maps: a panel for each mixer, the answer ringed, nothing fetched from elsewhere."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from linnet.reports.heat import RING, heat_figure

RISING = torch.arange(36.0).view(6, 6).tril() / 36
MAPS = {"softmax": RISING, "re<based": RISING / 4, "delta": -torch.eye(6)}


def test_one_panel_for_each_mixer_on_its_own_scale() -> None:
    text = heat_figure("maps", MAPS, [(4, 1)], "after < training")
    assert text.startswith("<figure><svg")
    assert text.endswith("<figcaption>after &lt; training</figcaption></figure>")
    assert len(re.findall("<image ", text)) == 3
    for mixer, weights in MAPS.items():
        assert mixer.replace("<", "&lt;") in text
        assert f"up to {weights.abs().max():.2g}" in text
    assert text == heat_figure("maps", MAPS, [(4, 1)], "after < training")


def test_nothing_comes_from_elsewhere() -> None:
    text = re.sub(r'xmlns(:\w+)?="[^"]*"', "", heat_figure("maps", MAPS, [(4, 1)], ""))
    assert "http" not in text
    assert set(re.findall(r'href="(.)', text)) <= {"#", "d"}
    assert text.count('href="data:image/png;base64,') == 3
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    assert all(one.startswith("maps-") for one in ids)


def test_every_target_has_a_ring_in_its_place_in_every_panel() -> None:
    assert RING not in heat_figure("maps", MAPS, [], "")
    text = heat_figure("maps", MAPS, [(5, 0), (5, 3), (2, 0)], "")
    rings = re.findall(rf'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*{RING}', text)
    assert len(rings) == 3 * 3
    for panel in range(3):
        (x0, y0), (x1, y1), (x2, y2) = [(float(x), float(y)) for x, y in rings[3 * panel : 3 * panel + 3]]
        assert x0 == x2 < x1
        assert y0 == y1 > y2  # row 0 is on top


@pytest.mark.parametrize(("mixers", "rows"), [(1, 1), (3, 1), (4, 2)])
def test_panels_stand_in_rows_of_three(mixers: int, rows: int) -> None:
    text = heat_figure("many", {str(i): torch.eye(4) for i in range(mixers)}, [], "")
    found = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', text)
    assert found is not None
    assert float(found[1]) == pytest.approx(72 * (1.9 * rows + 0.3))
    assert len(re.findall("<image ", text)) == mixers


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
        heat_figure("x", maps, targets, "")


def test_a_map_of_zeros_can_be_drawn() -> None:
    assert "up to 0" in heat_figure("x", {"elsewhere": torch.zeros(3, 3)}, [(1, 0)], "")
