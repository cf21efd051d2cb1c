"""LinnetCache: rows chosen, repeated and reordered as those of the state inside; nothing is ever cropped."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from linnet.models import ModelState
from tests.hf.nets import HYBRID, net, tokens

pytestmark = pytest.mark.slow


def state() -> ModelState:
    _, found = net(**HYBRID)(tokens(3))
    assert found is not None
    return found.detach()


def same(a: ModelState, b: ModelState) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_rows(hf: ModuleType) -> None:
    given = state()
    for method, argument, rows in [
        ("reorder_cache", torch.tensor([2, 2, 0]), [2, 2, 0]),
        ("batch_repeat_interleave", 2, [0, 0, 1, 1, 2, 2]),
        ("batch_select_indices", torch.tensor([1]), [1]),
        ("batch_select_indices", torch.tensor([True, False, True]), [0, 2]),
    ]:
        cache = hf.LinnetCache(given)
        fork = cache.fork()
        getattr(cache, method)(argument)
        same(cache.state, given.select(rows))
        assert cache.batch_size == len(rows)
        same(fork.state, given)


def test_length_layers_and_reset(hf: ModuleType) -> None:
    cache = hf.LinnetCache()
    assert (cache.get_seq_length(), len(cache), cache.nbytes, cache.is_initialized) == (0, 0, 0, False)
    cache.reorder_cache(torch.tensor([0]))  # nothing to reorder
    cache.put(state(), 9)
    assert (cache.get_seq_length(), len(cache), cache.is_initialized) == (9, 3, True)
    assert cache.nbytes == state().nbytes
    assert cache.get_mask_sizes(4, 0) == (13, 0)
    assert hf.LinnetCache(state()).get_seq_length() == 9
    assert "3 rows, 9 tokens" in repr(cache)
    cache.reset()
    assert cache.state is None
    assert cache.get_seq_length() == 0


def test_it_cannot_be_cropped(hf: ModuleType) -> None:
    cache = hf.LinnetCache(state())
    with pytest.raises(ValueError, match=r"cannot be cropped.*cache\.fork\(\)"):
        cache.crop(4)
    assert cache.get_seq_length() == 9
