"""Values drawn in native code are those of `ImageModel.sample` for the same uniform numbers."""

from __future__ import annotations

import pytest
import torch

from linnet.models import mixture
from linnet.native.library import library
from linnet.native.sample import can_choose, choose

pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not built")

ROWS = 20_000


def uniforms(seed: int) -> torch.Tensor:
    return torch.rand(ROWS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("levels", [2, 17, 256])
@pytest.mark.parametrize("scale", [0.1, 3.0, 60.0])  # 60: scales beyond both clamps, values beyond both ends
def test_a_mixture_is_drawn_as_in_torch(levels: int, scale: float) -> None:
    params = torch.randn(ROWS, 30, generator=torch.Generator().manual_seed(1)) * scale
    u = uniforms(2)
    got = choose(params, u, levels, True)
    assert torch.equal(got, mixture.sample(params, levels=levels, uniforms=u))
    assert 0 <= int(got.min()) < int(got.max()) <= levels - 1


@pytest.mark.parametrize("levels", [2, 17, 256])
def test_a_softmax_is_drawn_as_in_torch(levels: int) -> None:
    scores, u = torch.randn(ROWS, levels, generator=torch.Generator().manual_seed(1)) * 4, uniforms(3)
    got = choose(scores, u, levels, False)
    assert torch.equal(got, mixture.choose(scores.double(), u[:, 0]))
    assert 0 <= int(got.min()) < int(got.max()) <= levels - 1


def test_only_plain_float32_rows_are_taken() -> None:
    assert can_choose(torch.zeros(2, 6))
    assert not can_choose(torch.zeros(2, 6, dtype=torch.float64))
    assert not can_choose(torch.zeros(6, 2).T)
    with pytest.raises(RuntimeError, match="out of range"):
        choose(torch.zeros(2, 7), torch.zeros(2, 2, dtype=torch.float64), 256, True)
