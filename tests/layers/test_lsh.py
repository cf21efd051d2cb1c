"""LSHAttention: keys out of queries, buckets that stay as drawn, and sizes refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.layers import LSHAttention
from linnet.models import ModelConfig, build
from linnet.models.base import Model
from linnet.ops.softmax.lsh import hash_buckets, lsh_attention

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
SINGLE = {"atol": 1e-6, "rtol": 1e-6}
B, T, E, H = 2, 11, 24, 4


def layer(**options: Any) -> LSHAttention:
    torch.manual_seed(0)
    return LSHAttention(E, H, **{"n_buckets": 4, "span": 2, **options}).double()


def inputs() -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_queries_are_the_keys_and_there_is_no_third_projection() -> None:
    made, x = layer(key_dim=4, head_dim=5), inputs()
    assert made.qkv.weight.shape == (H * (4 + 5), E)
    q, v = made.qkv(x).split((H * 4, H * 5), dim=-1)
    heads = (q.unflatten(-1, (H, 4)), v.unflatten(-1, (H, 5)))
    want, _ = lsh_attention(*heads, made.rotations.matrices, span=2)
    torch.testing.assert_close(made(x)[0], made.out(want.flatten(2)), **CLOSE)
    (grad,) = torch.autograd.grad(made(x)[0].sum(), made.qkv.weight)
    assert grad[: H * 4].any()
    assert grad[H * 4 :].any()


@pytest.mark.parametrize("rounds", [1, 4, 8])
def test_a_seed_fixes_the_buckets_and_only_redraw_changes_them(rounds: int) -> None:
    first, same, other = (layer(rounds=rounds, seed=seed) for seed in (3, 3, 4))
    assert first.rotations.matrices.shape == (rounds, H, 2, E // H)
    assert torch.equal(first.rotations.matrices, same.rotations.matrices)
    assert not torch.equal(first.rotations.matrices, other.rotations.matrices)
    before = first(inputs())[0]
    assert torch.equal(first.train()(inputs())[0], before)
    first.redraw()
    assert not torch.allclose(first(inputs())[0], before)
    same.load_state_dict(first.state_dict())
    assert torch.equal(same(inputs())[0], first(inputs())[0])
    first.redraw()
    same.redraw()  # goes on where the saved one stopped
    assert torch.equal(same.rotations.matrices, first.rotations.matrices)
    drawn = layer(rounds=rounds, generator=torch.Generator().manual_seed(9))
    first.redraw(torch.Generator().manual_seed(9))
    torch.testing.assert_close(first.rotations.matrices, drawn.rotations.matrices, **SINGLE)  # drawn as float32


def test_a_state_goes_on_after_a_redraw() -> None:
    """Buckets are made from the keys that are kept, so other buckets need no other state."""
    made, x = layer(), inputs()
    _, state = made(x[:, :6], output_state=True)
    made.redraw()
    torch.testing.assert_close(made(x[:, 6:], state)[0], made(x)[0][:, 6:], **CLOSE)


def test_half_precision_leaves_the_directions_alone() -> None:
    made = layer().half()
    assert made.qkv.weight.dtype == torch.float16
    assert made.rotations.matrices.dtype == torch.float64
    y, state = made(inputs().half(), output_state=True)
    assert y.dtype == state.k.dtype == torch.float16


def test_rotary_turns_before_the_buckets_are_chosen() -> None:
    made, x = layer(rotary=True), inputs()[:, :1].expand(B, T, E)  # one token, again and again
    q = made.project(x, None)[0]
    bucket = hash_buckets(q, made.rotations.matrices)
    assert (bucket != bucket[..., :1]).any()
    plain = hash_buckets(layer().project(x, None)[0], made.rotations.matrices)
    assert not (plain != plain[..., :1]).any()


def test_a_model_keeps_its_buckets_on_disk(tmp_path: Path) -> None:
    options = {"lsh": {"rounds": 8, "n_buckets": 8, "span": 3, "seed": 5}}
    config = ModelConfig(d_model=16, n_layers=1, n_heads=2, vocab_size=11, mixer="lsh", mixer_options=options)
    model: Any = build(config)
    model.backbone.layers[0].mixer.redraw()
    model.save_pretrained(tmp_path)
    back: Any = Model.from_pretrained(tmp_path)
    tokens = torch.arange(40).remainder(11)[None]
    assert torch.equal(back(tokens)[0], model(tokens)[0])
    assert back.state_bytes(100) == 100 * 2 * (8 + 8) * 4


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"n_buckets": 7}, "n_buckets is 7; accepted: an even number, 2 or more"),
        ({"n_buckets": 0}, "n_buckets is 0"),
        ({"rounds": 0}, "rounds is 0; accepted: a whole number, 1 or more"),
        ({"span": 2.0}, r"span is 2\.0"),
        ({"seed": -1}, r"seed is -1; accepted: a whole number"),
        ({"n_kv_heads": 2}, "makes its keys from its queries, as many as heads, 4; n_kv_heads is 2"),
    ],
)
def test_bad_sizes_are_named(sizes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        layer(**sizes)
