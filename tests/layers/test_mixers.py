"""Every mixer is one function in three guises: whole, split anywhere, one token at a time; padding and packing too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.layers import CAUSAL_ONLY, CONVOLUTIONS, MIXERS, RECURRENT_MIXERS, Mixer, build_mixer

CLOSE = {"atol": 1e-10, "rtol": 1e-10}  # float64
B, T, E = 2, 13, 24
OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"window": 4},
    "lsh": {"n_buckets": 4, "span": 2},
    "favor": {"num_features": 8},
}
PUBLISHED: dict[str, dict[str, Any]] = {  # what published models set, and the defaults do not
    "elu": {"denominator_eps": 1e-2, "gate": True, "qk_norm": True, "qk_norm_eps": 1e-2},
    "rebased": {"denominator_eps": 1e-2, "eps": 1e-3},
    "softmax": {"gate": True, "qk_norm": True, "qk_norm_eps": 1e-2, "n_kv_heads": 2, "head_dim": 4, "key_dim": 8},
    "window": {"window": 4, "gate": True, "qk_norm": True, "n_heads": 3},
    "lsh": {"n_buckets": 4, "span": 2, "gate": True},
    "retnet": {"norm": "rms", "norm_eps": 1e-6, "scale": 1.0, "rotary": True},
    "gla": {"gate_normalizer": 4, "norm_eps": 1e-3},
    "mamba2": {"n_groups": 2, "conv_bias": False, "norm_eps": 1e-3, "dt_limit": [0.001, 0.7]},
    "delta": {"key_heads": 2, "conv_bias": True, "scale": 1.0, "norm_eps": 1e-3, "qk_eps": 1e-2},
    "gated_delta": {"key_heads": 1, "scale": 0.5, "norm_eps": 1e-6},
    "kda": {"rank": 2, "key_heads": 2, "norm_eps": 1e-6},
    "mamba": {"dt_rank": 3, "conv_bias": False},
    "rwkv7": {"norm_eps": 1e-5, "decay_rank": 2, "rate_rank": 4, "gate_rank": 5},
    "channel_mix": {"gate": True, "hidden": 5, "bias": True},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary": True},
    "grouped": {"n_kv_heads": 2},
    "narrow keys, grouped, rotary": {"n_kv_heads": 1, "key_dim": 2, "head_dim": 5, "rotary": True, "bias": False},
}
CASES = [
    (name, variant)
    for name in MIXERS
    for variant in VARIANTS
    if name not in (*RECURRENT_MIXERS, "lsh") or "n_kv_heads" not in VARIANTS[variant]
] + [(name, "published") for name in PUBLISHED]


def mixer(name: str, variant: str = "plain", **more: Any) -> Mixer:
    torch.manual_seed(0)
    options, sizes = OPTIONS.get(name), VARIANTS.get(variant, {})
    if variant == "published":
        options = PUBLISHED[name]
    made = build_mixer(name, d_model=E, n_heads=4, options=options, **sizes, **more).double()
    for parameter in made.parameters():  # away from zeros and ones, where a mistake could hide
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return made


def inputs(rows: int = B, length: int = T) -> Tensor:
    return torch.randn(rows, length, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def where(length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length)


def assert_states_equal(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    for x, y in zip(a, b, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            torch.testing.assert_close(x, y, **CLOSE)


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_steps_and_splits_equal_the_whole(name: str, variant: str) -> None:
    layer, x = mixer(name, variant), inputs()
    whole, final = layer(x, positions=where(T), output_state=True)
    first, state = layer(x[:, :5], positions=where(5), output_state=True)
    outs = [first]
    for t in range(5, T):
        out, state = layer.step(x[:, t], state, positions=torch.full((B,), t))
        outs.append(out[:, None])
    torch.testing.assert_close(torch.cat(outs, dim=1), whole, **CLOSE)
    assert_states_equal(state, final)
    rest, again = layer(x[:, 5:], layer(x[:, :5], positions=where(5), output_state=True)[1],
                        positions=where(T - 5, 5), output_state=True)  # fmt: skip
    torch.testing.assert_close(rest, whole[:, 5:], **CLOSE)
    assert_states_equal(again, final)


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_padding_anywhere_changes_nothing(name: str, variant: str) -> None:
    layer, x = mixer(name, variant), inputs(1)
    plain, final = layer(x, positions=where(T)[None], output_state=True)
    mask = torch.ones(1, T + 5, dtype=torch.bool)
    mask[0, [0, 1, 6, T + 3, T + 4]] = False
    padded = torch.full((1, T + 5, E), 7.0, dtype=torch.float64)
    padded[mask] = x[0]
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    out, state = layer(padded, mask=mask, positions=positions, output_state=True)
    torch.testing.assert_close(out[mask], plain[0], **CLOSE)
    if name not in ("softmax", "lsh"):  # a KV cache keeps the padding beside its mask
        assert_states_equal(state, final)


@pytest.mark.parametrize("name", MIXERS)
def test_packed_sequences_do_not_see_each_other(name: str) -> None:
    layer, x = mixer(name, "rotary"), inputs(1)
    edges = torch.tensor([0, 4, 4, T])
    positions = torch.cat([where(4), where(T - 4)])[None]
    out, state = layer(x, cu_seqlens=edges, positions=positions, output_state=True)
    for lo, hi in ((0, 4), (4, T)):
        alone, _ = layer(x[:, lo:hi], positions=where(hi - lo))
        torch.testing.assert_close(out[:, lo:hi], alone, **CLOSE)
    assert state[0].shape[0] == 3


@pytest.mark.parametrize("name", MIXERS)
def test_state_bytes_and_empty_state_tell_the_truth(name: str) -> None:
    layer = mixer(name, "plain" if name in (*RECURRENT_MIXERS, "lsh") else "grouped")
    _, state = layer(inputs(1), output_state=True)
    assert layer.state_bytes(T, torch.float64) == state.nbytes
    empty = layer.empty_state(1, dtype=torch.float64)
    if name not in ("softmax", "lsh"):  # these grow
        assert [x.shape for x in empty] == [x.shape for x in state]
    again, _ = layer(inputs(1), empty)
    torch.testing.assert_close(again, layer(inputs(1))[0], **CLOSE)


@pytest.mark.parametrize("name", [m for m in MIXERS if m not in (*CAUSAL_ONLY, *CONVOLUTIONS)])
def test_bidirectional_sees_the_future_and_ignores_padding(name: str) -> None:
    layer, x = mixer(name, "rotary", causal=False), inputs()
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 9:] = False
    out, _ = layer(x, mask=mask, positions=where(T))
    short, _ = layer(x[:1, :9], positions=where(9))
    torch.testing.assert_close(out[:1, :9], short, **CLOSE)
    changed = x.clone()
    changed[1, -1] += 1
    assert not torch.allclose(layer(changed, mask=mask, positions=where(T))[0][1, 0], out[1, 0])
    with pytest.raises(ValueError, match="causal=True"):
        layer.step(x[:, 0])


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_option_changes_the_answer(name: str) -> None:
    layer = mixer(name, "published")
    for option in PUBLISHED[name]:
        fewer = {key: value for key, value in PUBLISHED[name].items() if key != option}
        torch.manual_seed(0)
        other = build_mixer(name, d_model=E, n_heads=4, options=fewer).double()
        weights = {key: value for key, value in layer.state_dict().items() if key in other.state_dict()}
        if all(value.shape == other.state_dict()[key].shape for key, value in weights.items()):
            other.load_state_dict(weights, strict=False)
            assert not torch.allclose(other(inputs())[0], layer(inputs())[0], rtol=1e-7, atol=0), option


def test_grouped_heads_equal_repeated_ones() -> None:
    grouped, full = mixer("elu", "grouped"), mixer("elu")
    q, k, v = grouped.qkv.weight.split(grouped.widths)
    spread = [w.unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten(0, 1) for w in (k, v)]
    full.qkv.weight.data = torch.cat([q, *spread])
    bq, bk, bv = grouped.qkv.bias.split(grouped.widths)
    full.qkv.bias.data = torch.cat([bq, *(b.view(2, -1).repeat_interleave(2, dim=0).flatten() for b in (bk, bv))])
    full.out.load_state_dict(grouped.out.state_dict())
    torch.testing.assert_close(grouped(inputs())[0], full(inputs())[0], **CLOSE)


def test_parameters_are_listed_once() -> None:
    names = list(mixer("rebased", "grouped").state_dict())
    assert "feature_map.q.gamma" in names
    assert not [n for n in names if n.startswith("_mapped")]


@pytest.mark.parametrize(
    ("name", "sizes", "sentence"),
    [
        ("elu", {"n_heads": 5}, r"d_model \(24\) must be a multiple of n_heads \(5\)"),
        ("elu", {"n_heads": 4, "n_kv_heads": 3}, r"n_kv_heads \(3\) must divide n_heads \(4\)"),
        ("rebazed", {"n_heads": 4}, "did you mean 'rebased'"),
        ("elu", {"n_heads": 8, "rotary": True}, "key_dim is 3"),
        ("window", {"n_heads": 4, "causal": False}, "looks back only"),
    ],
)
def test_bad_sizes_are_named(name: str, sizes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build_mixer(name, d_model=E, **sizes)
