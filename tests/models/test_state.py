"""ModelState: select and join rows, its size, and its file: exact round trips, refused for another model."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from linnet.data import ByteTokenizer
from linnet.errors import StateError
from linnet.models import Model, ModelConfig, ModelState, build
from linnet.models.state import load_saved
from linnet.models.state_checks import check_parts
from linnet.ops.state import KINDS as ALL_KINDS
from linnet.ops.state import BaseState
from linnet.ops.state_file import read_header, save_states

SHAPE: dict[str, Any] = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 32, "positions": "rotary"}
WINDOW = {"window": {"window": 3}}
KINDS: dict[str, dict[str, Any]] = {
    "elu": {"mixer": "elu"},
    "softmax": {"mixer": "softmax"},
    "window, conv": {"mixer": ("window", "conv"), "mixer_options": WINDOW},
    "grouped": {"mixer": ("elu", "softmax"), "n_heads": 4, "n_kv_heads": 2},
}
B, T = 3, 6
SEEN = torch.tensor([2, 9])  # tokens seen


@cache
def model(kind: str = "elu", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return build(ModelConfig(**{**SHAPE, **KINDS[kind]})).eval().requires_grad_(False)


def state_of(network: Model, lengths: tuple[int, ...] = (T, 2, 4)) -> ModelState:
    """Return a state whose rows have seen different numbers of tokens."""
    tokens = torch.randint(32, (len(lengths), T), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    state = network(tokens, mask=mask)[1]
    assert isinstance(state, ModelState)
    return state


def same(a: ModelState, b: ModelState) -> bool:
    """Return whether two states are equal to the last bit, in kind and dtype too."""
    pairs = [(x, y) for s, t in zip(a.layers, b.layers, strict=True) for x, y in zip(s, t, strict=True)]
    kinds = [type(s) for s in a.layers] == [type(t) for t in b.layers]
    pairs = [*pairs, (a.position, b.position)]
    return kinds and all(x is y or (x.dtype == y.dtype and torch.equal(x, y)) for x, y in pairs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [[2, 0, 0], torch.tensor([1]), slice(1, None), slice(None, None, -1), [], [-1]])
def test_select_takes_rows_and_their_positions(kind: str, rows: Any) -> None:
    state = state_of(model(kind))
    index = list(range(B))[rows] if isinstance(rows, slice) else [int(i) for i in rows]
    chosen = state.select(rows)
    assert chosen.position.tolist() == [[T, 2, 4][i] for i in index]
    for part, whole in zip(chosen.layers, state.layers, strict=True):
        for x, y in zip(part, whole, strict=True):
            assert (x is None) == (y is None)
            assert x is None or torch.equal(x, y[[i % B for i in index]])


@pytest.mark.parametrize("rows", [[3], [0, -4], torch.tensor([0, 9])])
def test_a_row_that_does_not_exist_is_named(rows: Any) -> None:
    wrong = next(int(i) for i in rows if not -B <= i < B)
    with pytest.raises(StateError, match=rf"row {wrong} is not in the state; accepted: rows 0 to 2"):
        state_of(model()).select(rows)
    with pytest.raises(StateError, match=r"accepted: none, for it has no rows"):
        state_of(model()).select([]).select([0])


@pytest.mark.parametrize("rows", [[0.5], [True, False, True], [[0]], 0, torch.eye(3)])
def test_rows_that_are_no_rows_are_refused(rows: Any) -> None:
    with pytest.raises(StateError, match="accepted: a list or 1-d integer tensor of batch rows, or a slice"):
        state_of(model()).select(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_joined_again_go_on_as_they_would_have(kind: str) -> None:
    network, token = model(kind), torch.tensor([1, 2, 3])
    state = state_of(network)
    again = ModelState.join([state.select([i]) for i in range(B)])
    assert same(again, state)
    assert torch.equal(network.step(token, again)[0], network.step(token, state)[0])


def test_only_states_of_one_model_are_joined() -> None:
    with pytest.raises(StateError, match=r"cannot join states of \[\] layers; accepted: one or more states"):
        ModelState.join([])
    short = state_of(model())
    with pytest.raises(StateError, match=r"cannot join states of \[1, 2\] layers"):
        ModelState.join([short, ModelState(short.layers[:1], short.position)])


@pytest.mark.parametrize("kind", KINDS)
def test_nbytes_is_what_state_bytes_says(kind: str) -> None:
    network = model(kind)
    state = network(torch.randint(32, (2, T)))[1]
    assert state.nbytes == 2 * network.state_bytes(T)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_and_back(kind: str, tmp_path: Path) -> None:
    network, path = model(kind), tmp_path / "a.state"
    state, answer = state_of(network), torch.randn(B, 5)
    seen = [[1] * T, [2, 3], [4, 5, 6, 7]]
    state.save(path, model=network, tokenizer=ByteTokenizer(), tokens=seen, answer=answer)
    assert os.listdir(tmp_path) == ["a.state"]
    back = ModelState.load(path, model=network, tokenizer=ByteTokenizer())
    assert same(back, state)
    saved = load_saved(path, model=network, tokenizer=ByteTokenizer().fingerprint)
    assert saved.tokens == seen
    assert saved.answer is not None
    assert torch.equal(saved.answer, answer)
    header = read_header(path)
    assert (header.tokens, header.model, header.tokenizer) == (T, network.fingerprint(), ByteTokenizer().fingerprint)
    assert header.config == network.config.to_dict()
    token = torch.tensor([1, 2, 3])
    assert torch.equal(network.step(token, back)[0], network.step(token, state)[0])


def test_an_empty_state_and_no_rows_at_all(tmp_path: Path) -> None:
    path, network = tmp_path / "a.state", model("grouped")
    for state in (network.backbone.empty_state(2), network.backbone.empty_state(2).select([])):
        state.save(path, model=network, tokens=[[] for _ in state.position])
        assert same(ModelState.load(path, model=network), state)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "d_model": ({"d_model": 32}, "d_model is 16, but 32 in this model"),
    "n_layers": ({"n_layers": 3}, "n_layers is 2, but 3 in this model"),
    "mixer": ({"mixer": "rebased"}, "mixer is 'elu', but 'rebased' in this model"),
    "n_kv_heads": ({"n_kv_heads": 1}, "n_kv_heads is None, but 1 in this model"),
    "positions": ({"positions": "none"}, "positions is 'rotary', but 'none' in this model"),
    "dropout": ({"dropout": 0.1}, r"dropout is 0\.0, but 0\.1 in this model"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_the_state_of_another_model_is_refused_by_field(field: str, tmp_path: Path) -> None:
    changes, message = OTHERS[field]
    state_of(model()).save(tmp_path / "a.state", model=model())
    with pytest.raises(StateError, match=rf"a\.state: {message}; use the model that produced the state"):
        ModelState.load(tmp_path / "a.state", model=build(ModelConfig(**{**SHAPE, "mixer": "elu", **changes})))


def test_a_field_that_a_file_is_too_old_to_know_had_its_default(tmp_path: Path) -> None:
    network, path = model(), tmp_path / "state"
    state, config = state_of(network), network.config.to_dict()
    del config["rotary_base"]
    who = {"model": network.fingerprint(), "config": config, "extras": {"position": state.position}}
    save_states(path, state.layers, **who)
    assert same(ModelState.load(path, model=network), state)
    with pytest.raises(StateError, match=r"rotary_base is 10000.0, but 500.0 in this model"):
        ModelState.load(path, model=build(network.config.replace(rotary_base=500.0)))


def test_other_weights_are_refused_as_such(tmp_path: Path) -> None:
    state_of(model()).save(tmp_path / "a.state", model=model())
    with pytest.raises(StateError, match=r"a\.state: fingerprint of the weights is '\w{8}', but '\w{8}' in this model"):
        ModelState.load(tmp_path / "a.state", model=model(seed=1))
    assert same(ModelState.load(tmp_path / "a.state"), state_of(model()))  # loaded without a model to compare with


SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "layers": ({"n_layers": 3}, "n_layers is 2, but 3"),
    "kind": ({"mixer": ("window", "elu")}, "state class of layer 1 is 'ConvState', but 'State'"),
    "heads": ({"n_heads": 4}, "number of heads of layer 0 is 2, but 4"),
    "key_dim": ({"key_dim": 4}, "key_dim of layer 0 is 8, but 4"),
    "head_dim": ({"head_dim": 4, "key_dim": 8}, "head_dim of layer 0 is 8, but 4"),
    "window": ({"mixer_options": {"window": {"window": 5}}}, "window of layer 0 is 3, but 5"),
    "taps": ({"mixer_options": {**WINDOW, "conv": {"kernel_size": 4}}}, "kernel_size of layer 1 is 3, but 4"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_without_a_configuration_the_shapes_tell(case: str, tmp_path: Path) -> None:
    own, (changes, message) = {**SHAPE, **KINDS["window, conv"]}, SHAPES[case]
    if "mixer_options" not in changes and "mixer" in changes:
        changes = {**changes, "mixer_options": WINDOW}
    state = state_of(model("window, conv"))
    state.save(tmp_path / "a.state")
    other = build(ModelConfig(**{**own, **changes}))
    with pytest.raises(StateError, match=rf"a\.state: {message} in this model"):
        ModelState.load(tmp_path / "a.state", model=other)
    with pytest.raises(StateError, match=rf"the state: {message} in this model"):
        state.save(tmp_path / "b.state", model=other)
    assert os.listdir(tmp_path) == ["a.state"]


def test_a_file_that_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    state_of(model()).save(path)
    with pytest.raises(StateError, match=r"a\.state does not record its model; save it with model="):
        ModelState.load(path, model=model())
    with pytest.raises(StateError, match=r"tokenizer is '' in the file, '\w+' is wanted"):
        ModelState.load(path, tokenizer=ByteTokenizer())
    state_of(model()).save(path, tokenizer="one")
    with pytest.raises(StateError, match="tokenizer is 'one' in the file, 'two' is wanted"):
        ModelState.load(path, tokenizer="two")


def test_files_of_the_layers_alone_load_when_they_say_how_many_tokens(tmp_path: Path) -> None:
    path, state = tmp_path / "a.state", state_of(model(), (T, T))
    save_states(path, state.layers, tokens=T, model=model().fingerprint())
    assert same(ModelState.load(path, model=model()), state)
    with pytest.raises(StateError, match=r"model is '\w+', but '\w+' in this model"):
        ModelState.load(path, model=model(seed=1))
    save_states(path, state.layers)
    with pytest.raises(StateError, match="does not record how many tokens its rows have seen; save it with"):
        ModelState.load(path)


BROKEN: dict[str, tuple[Callable[[ModelState], tuple[ModelState, dict[str, Any]]], str]] = {
    "position of a float": (lambda s: (s._replace(position=s.position.float()), {}), r"position is torch\.float32"),
    "position below 0": (lambda s: (s._replace(position=-s.position), {}), "position -6 is out of range"),
    "too few positions": (lambda s: (s._replace(position=s.position[:2]), {}), "layer 0 has 3 rows, position 2"),
    "too few tokens": (lambda s: (s, {"tokens": [[1], [2], [3]]}), r"tokens are \[1, 1, 1\] for .* \[6, 2, 4\]"),
    "too few answers": (lambda s: (s, {"answer": torch.zeros(1, 4)}), r"answer is .* \[1, 4\]; .* each of 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_together_is_not_written(case: str, tmp_path: Path) -> None:
    broken, message = BROKEN[case]
    state, more = broken(state_of(model()))
    with pytest.raises(StateError, match=message):
        state.save(tmp_path / "a.state", **more)
    assert os.listdir(tmp_path) == []


def test_positions_in_a_file_that_do_not_fit_its_layers_are_refused(tmp_path: Path) -> None:
    path, state = tmp_path / "a.state", state_of(model())
    save_states(path, state.layers, extras={"position": state.position[:2]})
    with pytest.raises(StateError, match=r"a\.state: layer 0 has 3 rows, position 2"):
        ModelState.load(path)
    save_states(path, state.layers, extras={"position": state.position.float()})
    with pytest.raises(StateError, match=r"a\.state: position is torch\.float32"):
        ModelState.load(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.state"
    state_of(model()).save(path, model=model(), tokenizer="t", tokens=[[1] * T, [2, 3], [4, 5, 6, 7]])
    return path.read_bytes()


def test_a_file_cut_anywhere_is_refused(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    for length in [*range(0, len(whole), 53), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StateError, match=r"a\.state is not a whole safetensors file .* save the state again"):
            ModelState.load(path, model=model(), tokenizer="t")


def test_a_new_state_class_needs_no_entry_in_the_checks() -> None:
    """Mask and growth are read from the class: a ring keeps the last tokens, a list all of them."""
    try:

        class Ring(BaseState, NamedTuple("Ring", [("k", Tensor), ("mask", Tensor)])):
            __slots__ = ()
            kind = "ring"
            axes: ClassVar = {"k": "B,W,E", "mask": "B,W"}
            flags = ("mask",)

        class List(BaseState, NamedTuple("List", [("k", Tensor), ("mask", "Tensor | None")])):
            __slots__ = ()
            kind = "list"
            axes: ClassVar = {"k": "B,T,E", "mask": "B,T"}
            flags = optional = ("mask",)
            grows = "T"

        ring = Ring(torch.zeros(2, 3, 4), torch.tensor([[False, True, True], [True, True, True]]))
        check_parts("here", [ring, List(torch.zeros(2, 9, 4), torch.arange(9) < torch.tensor([[2], [9]]))], SEEN)
        check_parts("here", [List(torch.zeros(2, 9, 4), None)], torch.tensor([9, 9]))
        for layer, kept, wanted in ((ring, 2, 1), (List(torch.zeros(2, 9, 4), None), 9, 1)):
            with pytest.raises(StateError, match=f"layer 0 holds {kept} tokens of row 0, which has seen {wanted}"):
                check_parts("here", [layer], torch.tensor([1, 9]))
    finally:
        for name in ("ring", "list"):
            ALL_KINDS.pop(name, None)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bit=st.integers(min_value=0), header=st.booleans())
def test_a_flipped_bit_anywhere_is_refused(bit: int, header: bool, whole: bytes, tmp_path: Path) -> None:
    end = 8 + int.from_bytes(whole[:8], "little") if header else len(whole)
    changed = bytearray(whole)
    changed[bit // 8 % end] ^= 1 << bit % 8
    (tmp_path / "a.state").write_bytes(changed)
    with pytest.raises(StateError, match=r"a\.state"):
        ModelState.load(tmp_path / "a.state", model=model(), tokenizer="t")
