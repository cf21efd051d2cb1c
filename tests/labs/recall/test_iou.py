"""Where attention lies: by hand on small maps, and on layers that look exactly where they should or nowhere."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from linnet.labs.recall.iou import Look, attention_iou

TIGHT = 1e-12
QUERIES, VALUES = torch.tensor([[4, 5]]), torch.tensor([[1, 3]])


def maps(*heads: list[list[float]]) -> Tensor:
    """[1,H,6,6] with these rows at the two queries; the rest is noise that nothing may read."""
    full = torch.full((1, len(heads), 6, 6), 7.0, dtype=torch.float64)
    full[0, :, 4:, :4] = torch.tensor(heads, dtype=torch.float64)
    return full


def test_by_hand() -> None:
    """Rows (.1 .5 .1 .3) and (0 0 .5 .5): the values asked for have .5 and .5, so 1 of 3 in the quotient of sums."""
    looks = attention_iou(maps([[0.2, 1.0, 0.2, 0.6], [0.0, 0.0, 0.1, 0.1]]), QUERIES, VALUES, 4)
    (head,) = looks.heads
    assert looks.queries == 2
    assert head.p == pytest.approx(0.5, abs=TIGHT)
    assert head.iou == pytest.approx(1 / 3, abs=TIGHT)
    assert head.hit == 0.5  # of two alike the first counts
    first = -(0.2 * math.log(0.1) + 0.5 * math.log(0.5) + 0.3 * math.log(0.3))
    assert head.entropy == pytest.approx((first + math.log(2)) / 2, abs=TIGHT)
    assert head.empty == 0.0
    assert looks.mean == head


def test_the_quotient_of_sums_is_a_function_of_the_mean_mass() -> None:
    looks = attention_iou(maps([[0.0, 1.0, 0.0, 0.0], [0.9, 0.0, 0.0, 0.1]]), QUERIES, VALUES, 4)
    assert looks.mean.p == pytest.approx(0.55, abs=TIGHT)
    assert looks.mean.iou == pytest.approx(0.55 / (2 - 0.55), abs=TIGHT)  # not the mean of 1 and .1 / 1.9


def test_signs_do_not_count_and_every_row_has_a_scale_of_its_own() -> None:
    plain = maps([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 0.0, 3.0]])
    scaled = plain.clone()
    scaled[0, 0, 4] *= -100
    scaled[0, 0, 5, 3] *= -1
    assert attention_iou(scaled, QUERIES, VALUES, 4) == attention_iou(plain, QUERIES, VALUES, 4)


def test_heads_apart_and_their_mean() -> None:
    """One head right, one wrong at twice the weight: normalised first, the mean is half of each."""
    looks = attention_iou(maps([[0, 1, 0, 0], [0, 0, 0, 1]], [[2, 0, 0, 0], [0, 0, 2, 0]]), QUERIES, VALUES, 4)
    right, wrong = looks.heads
    assert right == Look(p=1.0, iou=1.0, hit=1.0, entropy=0.0, empty=0.0)
    assert (wrong.p, wrong.iou, wrong.hit) == (0.0, 0.0, 0.0)
    assert (looks.mean.p, looks.mean.iou) == (0.5, pytest.approx(1 / 3))
    assert looks.mean.entropy == pytest.approx(math.log(2))


def test_a_row_that_looks_elsewhere_is_counted_as_empty() -> None:
    looks = attention_iou(maps([[0, 0, 0, 0], [0, 0, 0, 5]]), QUERIES, VALUES, 4)
    assert looks.mean == Look(p=0.5, iou=0.5, hit=0.5, entropy=0.0, empty=0.5)  # 1 of 1 for an empty row and 1
    nothing = attention_iou(maps([[0, 0, 0, 0], [0, 0, 0, 0]]), QUERIES, torch.zeros_like(VALUES), 4).mean
    assert nothing == Look(p=0.0, iou=0.0, hit=0.0, entropy=None, empty=1.0)


def test_each_row_of_the_batch_has_its_own_positions() -> None:
    generator = torch.Generator().manual_seed(0)
    given = torch.rand(3, 2, 12, 12, generator=generator)
    queries, values = torch.tensor([[8, 9], [11, 8], [10, 10]]), torch.tensor([[0, 5], [3, 3], [7, 1]])
    looks = attention_iou(given, queries, values, 8)
    p = [
        [
            given[b, h, t, j] / given[b, h, t, :8].sum()
            for b in range(3)
            for t, j in zip(queries[b], values[b], strict=True)
        ]
        for h in range(2)
    ]
    assert [head.p for head in looks.heads] == pytest.approx([float(torch.stack(x).double().mean()) for x in p])
    assert looks.queries == 6


def test_as_json() -> None:
    looks = attention_iou(maps([[0, 1, 0, 0], [0, 0, 0, 1]]), QUERIES, VALUES, 4)
    perfect = {"p": 1.0, "iou": 1.0, "hit": 1.0, "entropy": 0.0, "empty": 0.0}
    assert json.loads(json.dumps(looks.to_dict())) == looks.to_dict()
    assert looks.to_dict() == {"mean": perfect, "heads": [perfect], "queries": 2}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"maps": torch.zeros(1, 6, 6)}, r"maps have shape \[1, 6, 6\]; accepted: \[batch, heads, time, time\]"),
        ({"queries": QUERIES[0]}, r"queries \[2\], values \[1, 2\] for 1 maps"),
        ({"queries": QUERIES + 1}, "queries are at positions 5 to 6; accepted: from 0 to 5"),
        ({"values": VALUES + 1}, "values are at positions 2 to 4; accepted: from 0 to 3"),
        ({"context": 7}, "context is 7; accepted: 1 to the length of the maps, 6"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Tensor], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        attention_iou(**{"maps": torch.zeros(1, 1, 6, 6), "queries": QUERIES, "values": VALUES, "context": 4} | change)
