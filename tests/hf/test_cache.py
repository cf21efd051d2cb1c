"""LinnetCache: select, repeat and reorder rows as in the state; crop only while recording."""

from __future__ import annotations

import itertools
from types import ModuleType

import pytest
import torch

from linnet.models import ModelState
from tests.hf.nets import HYBRID, net, tokens

pytestmark = pytest.mark.slow


def state() -> ModelState:
    _, saved = net(**HYBRID)(tokens(3))
    assert saved is not None
    return saved.detach()


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


def test_it_cannot_be_cropped_unless_it_records(hf: ModuleType) -> None:
    cache = hf.LinnetCache(state())
    with pytest.raises(ValueError, match=r"cannot crop a LinnetCache of 9 tokens to 5.*record.*cache\.fork\(\)"):
        cache.crop(-4)
    assert cache.get_seq_length() == 9
    assert not cache.is_croppable


@pytest.mark.parametrize("padded", [False, True])
def test_recorded_tokens_are_taken_back(hf: ModuleType, padded: bool) -> None:
    model = net(**HYBRID)
    wrapped, given, cache = hf.to_hf(model), tokens(2, 20), hf.LinnetCache()
    mask = torch.ones_like(given)
    mask[0, :3] = 0 if padded else 1
    cache.activate_past_recording()
    edges = (0, 6, 11, 12, 13, 20)  # a prompt, a draft, two steps, a draft
    with torch.no_grad():
        for start, end in itertools.pairwise(edges):
            wrapped(given[:, start:end], attention_mask=mask[:, :end], past_key_values=cache)
        for remove, left in ((-2, 18), (0, 18), (-4, 14), (-1, 13), (13, 13)):
            cache.crop(remove if hf.cache.RELATIVE or remove else left)  # 0 keeps nothing in transformers 5.0
            _, wanted = model(given[:, :left], mask=mask[:, :left].bool())
            assert cache.get_seq_length() == left
            torch.testing.assert_close(cache.state, wanted, rtol=1e-10, atol=1e-10)
        with pytest.raises(ValueError, match="of 13 tokens to 12"):
            cache.crop(-1)  # passes before the removed one are dropped
