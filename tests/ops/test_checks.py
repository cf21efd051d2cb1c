"""Bad input to linear attention gets one sentence: the value received, what is accepted, the way out if there is one.

The other mixers share these checks and have their own lists in test_softmax.py and test_sliding_window.py; damaged and
foreign files are in test_state_file.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from linnet import State, StateError, linear_attention, linear_attention_step
from linnet import feature_maps as maps
from tests.ops.runs import RUNS, every_run, qkv

q, k, v = qkv(2, 6, 3, 4)
BACKENDS = sorted({backend for _, backend in RUNS})


def state(*shape: int, dtype: torch.dtype = torch.float32) -> State:
    return State(torch.zeros(*shape, dtype=dtype), torch.zeros(*shape[:3], dtype=dtype))


class Narrow(maps.FeatureMap):
    """Promises 4 features and makes 2, of keys only."""

    def prepare_k(self, x: Tensor) -> Tensor:
        return x[..., :2]


class Doubled(maps.FeatureMap):
    """Makes 8 features and forgets to say so."""

    def prepare_q(self, x: Tensor) -> Tensor:
        return torch.cat([x, x], dim=-1)

    prepare_k = prepare_q


class OneHead(maps.FeatureMap):
    """Loses an axis on the way."""

    def prepare_q(self, x: Tensor) -> Tensor:
        return x[..., :1, :]


# name -> arguments of linear_attention, words of the message: received, accepted, way out
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "widths differ": ({"k": k[..., :3]}, ["q [2, 6, 3, 4], k [2, 6, 3, 3]", "must agree in batch, heads and width"]),
    "heads differ": ({"v": v[:, :, :2]}, ["v [2, 6, 2, 4]", "k and v must agree in batch, time and heads"]),
    "rows differ": ({"q": q[:1]}, ["q [1, 6, 3, 4]", "must agree in batch"]),
    "times differ": ({"q": q[:, :5]}, ["q [2, 5, 3, 4]", "as many queries as keys", "use causal=False"]),
    "three axes": ({"q": q[0], "k": k[0], "v": v[0]}, ["[6, 3, 4]", "four axes [batch, time, heads, width]"]),
    "no width": ({"q": q[..., :0], "k": k[..., :0]}, ["q [2, 6, 3, 0]", "at least 1 wide"]),
    "integers": ({"q": q.long()}, ["q has dtype torch.int64", "a floating dtype", "use q.float()"]),
    "integer values": ({"v": v.int()}, ["v has dtype torch.int32", "a floating dtype", "use v.float()"]),
    "all integers": ({"q": q.long(), "k": k.long(), "v": v.long()}, ["torch.int64", "a floating dtype", "q.float()"]),
    "a list": ({"q": q.tolist()}, ["q is a list", "a torch.Tensor", "use torch.as_tensor(q)"]),
    "two dtypes": ({"k": k.double()}, ["k is torch.float64", "q is torch.float32", "one dtype", "use k.to(q.dtype)"]),
    "another device": ({"k": k.to("meta")}, ["q is on cpu but k on meta", "use k.to(q.device)"]),
    "NaN in the mask": (
        {"mask": torch.tensor([[1.0] * 5 + [float("nan")]] * 2)},
        ["torch.float32 with NaN in it", "bool, True = real token", "use mask.nan_to_num().bool()"],
    ),
    "a mask of numbers": ({"mask": torch.ones(2, 6)}, ["dtype torch.float32;", "accepted: bool", "use mask.bool()"]),
    "an integer mask": ({"mask": torch.ones(2, 6).long()}, ["torch.int64", "accepted: bool", "use mask.bool()"]),
    "a short mask": ({"mask": torch.ones(2, 5, dtype=torch.bool)}, ["[2, 5]", "[batch, time] = [2, 6]"]),
    "a mask that is a list": ({"mask": [[True] * 6] * 2}, ["mask is a list", "a bool tensor"]),
    "a mask elsewhere": (
        {"mask": torch.ones(2, 6, dtype=torch.bool, device="meta")},
        ["mask is on meta", "the inputs are on cpu", "use mask.to('cpu')"],
    ),
    "a map of another width": (
        {"feature_map": maps.Elu(8)},
        ["Elu was built for head_dim 8", "width 4", "build it with Elu(head_dim=4)"],
    ),
    "a map of other heads": (
        {"feature_map": maps.Hedgehog(4, n_heads=2)},
        ["n_heads=2", "received [2, 6, 3, 4]", "build it with the sizes of q and k"],
    ),
    "a map that narrows k": (
        {"feature_map": Narrow(4)},
        ["Narrow prepares q [2, 6, 3, 4] and k [2, 6, 3, 2]", "feature_dim = 4", "give FeatureMap.__init__"],
    ),
    "a map wider than it says": (
        {"feature_map": Doubled(4)},
        ["Doubled prepares q [2, 6, 3, 8]", "feature_dim = 4", "give FeatureMap.__init__ the feature_dim"],
    ),
    "a map that says another width": (
        {"feature_map": maps.FeatureMap(4, feature_dim=9)},
        ["FeatureMap prepares q [2, 6, 3, 4]", "feature_dim = 9", "give FeatureMap.__init__ the feature_dim"],
    ),
    "a map that drops heads": ({"feature_map": OneHead(4)}, ["q [2, 6, 1, 4] and k [2, 6, 3, 4]", "the same axes"]),
    "a map that learns": (
        {"feature_map": "hedgehog"},
        ["'hedgehog' has parameters", "build it once, linnet.feature_maps.Hedgehog(head_dim=4, n_heads=...)"],
    ),
    "a map that is a number": ({"feature_map": 3}, ["feature_map (3)", "a name, a FeatureMap object or None"]),
    "an unknown map": ({"feature_map": "taylr"}, ["feature_map 'taylr'", "did you mean 'taylor'?", "hedgehog"]),
    "an unknown form": ({"form": "paralel"}, ["form 'paralel'", "did you mean 'parallel'?", "auto, parallel, chunked"]),
    "an unknown backend": ({"backend": "nativ"}, ["backend 'nativ'", "did you mean 'native'?", "auto, native, torch"]),
    "chunk size 0": ({"chunk_size": 0}, ["chunk_size is 0", "a whole number, 1 or more, or None"]),
    "chunk size 1.5": ({"chunk_size": 1.5}, ["chunk_size is 1.5", "a whole number, 1 or more, or None"]),
    "chunk size True": ({"chunk_size": True}, ["chunk_size is True", "a whole number, 1 or more, or None"]),
    "negative eps": ({"eps": -1.0}, ["eps is -1.0", "a finite number >= 0"]),
    "scale NaN": ({"scale": float("nan")}, ["scale is nan", "a finite number, or None for 1"]),
    "cu_seqlens with a batch": (
        {"cu_seqlens": torch.tensor([0, 6])},
        ["batch must be 1, not 2", "use x.flatten(0, 1)"],
    ),
}
# cu_seqlens for one row of 6 tokens, words
OFFSETS: dict[str, tuple[Any, list[str]]] = {
    "too short": (torch.tensor([0, 3, 5]), ["from 0 to 5", "from 0 to the length 6"]),
    "too long": (torch.tensor([0, 3, 7]), ["from 0 to 7", "from 0 to the length 6"]),
    "too long, a list": ([0, 7], ["from 0 to 7", "from 0 to the length 6"]),
    "late": (torch.tensor([1, 6]), ["from 1 to 6", "from 0 to the length 6"]),
    "falling": (torch.tensor([0, 4, 3, 6]), ["decreases from 4 to 3", "offsets that never decrease"]),
    "fractions": ([0, 2.5, 6], ["dtype torch.float32", "int32 or int64"]),
    "two axes": (torch.tensor([[0, 6]]), ["shape [1, 2]", "offsets [S+1] of S >= 1 sequences"]),
    "empty": ([], ["shape [0]", "offsets [S+1] of S >= 1 sequences"]),
    "words": (["0", "6"], ["cu_seqlens is ['0', '6'], a list", "a tensor or list of offsets, from 0 to 6"]),
}
# initial_state, words
STATES: dict[str, tuple[Any, list[str]]] = {
    "other heads": (state(2, 4, 4, 4), ["initial_state.s has shape [2, 4, 4, 4]", "[B,H,F,V] = [2, 3, 4, 4]"]),
    "other rows": (state(1, 3, 4, 4), ["[1, 3, 4, 4]", "[B,H,F,V] = [2, 3, 4, 4]"]),
    "another map": (state(2, 3, 15, 4), ["[2, 3, 15, 4]", "[B,H,F,V] = [2, 3, 4, 4]"]),
    "s and z differ": (State(state(2, 3, 4, 4).s, torch.zeros(2, 3, 5)), ["z [2, 3, 5]", "s [B,H,F,V] and z [B,H,F]"]),
    "integers": (
        state(2, 3, 4, 4, dtype=torch.int64),
        ["s [2, 3, 4, 4] torch.int64", "one dtype out of torch.float32, torch.float64", "use state.to(dtype=...)"],
    ),
    "elsewhere": (state(2, 3, 4, 4).to("meta"), ["on meta", "the inputs on cpu", "use state.to('cpu')"]),
    "a tuple": ((v, v), ["a tuple", "accepted here: State"]),
}


def refused(error: type[ValueError], words: list[str], call: Any, *args: Any, **how: Any) -> None:
    with pytest.raises(error) as caught:
        call(*args, **how)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_clear_sentence(name: str) -> None:
    change, words = REFUSED[name]
    refused(ValueError, words, linear_attention, **({"q": q, "k": k, "v": v} | change))


@every_run
@pytest.mark.parametrize("name", ["a map that narrows k", "a map wider than it says", "a map that says another width"])
def test_a_map_that_breaks_its_word_never_reaches_a_kernel(name: str, form: str, backend: str) -> None:
    """With a state of the promised width too, which a kernel would read beyond its end."""
    change, words = REFUSED[name]
    F = change["feature_map"].feature_dim
    how = {**change, "form": form, "backend": backend, "initial_state": state(2, 3, F, 4)}
    refused(ValueError, words, linear_attention, q, k, v, **how)
    words = [word.replace("[2, 6, 3,", "[2, 3,") for word in words]
    refused(ValueError, words, linear_attention_step, q[:, 0], k[:, 0], v[:, 0], **change)


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_offsets_are_refused(name: str, backend: str) -> None:
    offsets, words = OFFSETS[name]
    refused(ValueError, words, linear_attention, q[:1], k[:1], v[:1], cu_seqlens=offsets, backend=backend)


def test_packed_cross_attention_is_refused() -> None:
    words = ["q has 3 tokens and k 6", "packs q and k alike", "call once per sequence"]
    refused(ValueError, words, linear_attention, q[:1, :3], k[:1], v[:1], causal=False, cu_seqlens=[0, 6])


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_does_not_fit_is_refused(name: str, backend: str) -> None:
    past, words = STATES[name]
    refused(StateError, words, linear_attention, q, k, v, initial_state=past, backend=backend)
    refused(StateError, words, linear_attention_step, q[:, 0], k[:, 0], v[:, 0], past, backend=backend)


def test_a_state_needs_the_features_of_the_map_and_a_row_per_sequence() -> None:
    words = ["[2, 3, 4, 4]", "[B,H,F,V] = [2, 3, 15, 4]"]
    refused(StateError, words, linear_attention, q, k, v, feature_map="taylor", initial_state=state(2, 3, 4, 4))
    how = {"cu_seqlens": [0, 1, 3, 6], "initial_state": state(2, 3, 4, 4)}
    refused(StateError, ["[2, 3, 4, 4]", "= [3, 3, 4, 4]"], linear_attention, q[:1], k[:1], v[:1], **how)


def test_a_step_wants_one_token() -> None:
    words = ["q has shape [3, 4]", "one token, three axes [batch, heads, width]"]
    refused(ValueError, words, linear_attention_step, q[0, 0], k[0, 0], v[0, 0])
    refused(ValueError, ["[2, 6, 3, 4]", "one token"], linear_attention_step, q, k, v)
