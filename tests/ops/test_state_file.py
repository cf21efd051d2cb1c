"""The state file: round trips, refusals, damage of every kind, writes that are interrupted."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from linnet.errors import StateError
from linnet.ops import state_file
from linnet.ops.state import AnyState, ConvState, KVState, State
from linnet.ops.state_file import load_file, load_states, read_header, save_states
from tests.ops.states import ALL, B, D, E, F, H, T, V, cache, conv, linear, same


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.state"


@pytest.mark.parametrize("state", ALL)
def test_one_state_round_trip(state: AnyState, path: Path) -> None:
    state.save(path, tokens=7, model="m", tokenizer="t")
    assert same(type(state).load(path, model="m", tokenizer="t", expect=[state]), state)
    assert os.listdir(path.parent) == [path.name]


def test_many_layers_and_header(path: Path) -> None:
    save_states(path, ALL, tokens=2**40, model="modèle", tokenizer="")
    assert all(same(a, b) for a, b in zip(load_states(path, expect=ALL), ALL, strict=True))
    header = read_header(path)
    assert (header.tokens, header.model, header.tokenizer) == (2**40, "modèle", "")
    kinds = ["linear"] * 2 + ["softmax"] * 3 + ["window"] + ["conv"] * 2
    assert [x.kind for x in header.layers] == kinds
    assert header.layers[4] == ("softmax", "bfloat16", {"k": (B, T, H, D), "v": (B, T, H, V)})
    assert header.layers[7] == ("conv", "bfloat16", {"x": (B, 2, E)})


def test_a_configuration_and_tensors_beside_the_layers(path: Path) -> None:
    extras = {"position": torch.tensor([3, 0, 9]), "answer": torch.randn(B, 4).bfloat16(), "none": torch.zeros(0)}
    save_states(path, ALL, config={"d_model": 8, "mixer": ["elu", None]}, extras=extras)
    header, states, found = load_file(path)
    assert header == read_header(path)
    assert header.config == {"d_model": 8, "mixer": ["elu", None]}
    assert header.extras["answer"] == ("bfloat16", (B, 4))
    assert found.keys() == extras.keys()
    assert all(found[name].dtype == x.dtype and torch.equal(found[name], x) for name, x in extras.items())
    assert all(same(a, b) for a, b in zip(states, ALL, strict=True))
    assert all(same(a, b) for a, b in zip(load_states(path, expect=ALL), ALL, strict=True))


def version(path: Path) -> str:
    with safe_open(path, framework="pt") as file:
        return file.metadata()["format_version"]


def test_layers_alone_are_still_version_1(path: Path) -> None:
    save_states(path, ALL, tokens=1, model="m", tokenizer="t")
    assert version(path) == "1"
    assert (read_header(path).config, read_header(path).extras) == (None, {})
    save_states(path, ALL, config={})
    assert version(path) == "2"
    save_states(path, ALL, extras={"position": torch.zeros(B)})
    assert version(path) == "2"
    assert read_header(path).config is None


def test_views_shared_tensors_and_gradients_are_saved_by_value(path: Path) -> None:
    s = torch.randn(H, B, V, F).requires_grad_()
    state = State(s.permute(1, 0, 3, 2), torch.ones(1).expand(B, H, F))
    save_states(path, [state, state])
    assert all(same(x, state.detach()) for x in load_states(path))


def test_length_of_a_cache_is_free_when_loading(path: Path) -> None:
    cache(9).save(path)
    assert KVState.load(path, expect=[cache(1, padded=False)]).k.shape[1] == 9


def test_no_layers(path: Path) -> None:
    save_states(path, [])
    assert load_states(path, expect=[]) == []


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"model": "other"}, "model is 'm' in the file, 'other' is wanted"),
        ({"tokenizer": "other"}, "tokenizer is 't' in the file, 'other' is wanted"),
        ({"expect": []}, "number of layers is 1 in the file, 0 is wanted"),
        ({"expect": [cache()]}, "kind of layer 0 is 'linear' in the file, 'softmax' is wanted"),
        ({"expect": [linear(torch.float64)]}, "dtype of layer 0 is 'float32' in the file, 'float64' is wanted"),
        ({"expect": [linear().select([0])]}, r"shapes of layer 0 is .*\(3, 2, 6, 4\).* in the file, .*\(1, 2, 6, 4\)"),
    ],
)
def test_mismatch_names_the_field(wanted: dict[str, Any], message: str, path: Path) -> None:
    linear().save(path, model="m", tokenizer="t")
    with pytest.raises(StateError, match=message):
        load_states(path, **wanted)


def test_load_of_another_kind_or_of_many_layers(path: Path) -> None:
    linear().save(path)
    with pytest.raises(StateError, match="'State' in the file, 'KVState' is wanted"):
        KVState.load(path)
    save_states(path, [linear(), linear()])
    with pytest.raises(StateError, match="number of layers is 2 in the file, 1 is wanted"):
        State.load(path)


@pytest.mark.parametrize(
    ("states", "options", "message"),
    [
        (linear(), {}, "a layer's state is a Tensor; accepted: a sequence of State"),
        ([State(linear().s, linear().z[:1])], {}, "accepted: s"),
        ([], {"tokens": -1}, "tokens is -1"),
        ([], {"tokens": 1.5}, r"tokens is 1\.5"),
        (
            [],
            {"extras": {"0.s": torch.zeros(1)}},
            r"'0\.s' is float32; accepted in addition to the layers: a name without a dot",
        ),
        ([], {"extras": {"position": torch.zeros(1).int()}}, "'position' is int32; accepted .*int64"),
    ],
)
def test_save_refuses_and_writes_nothing(states: Any, options: dict[str, Any], message: str, path: Path) -> None:
    with pytest.raises(StateError, match=message):
        save_states(path, states, **options)
    assert os.listdir(path.parent) == []


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no state file"):
        load_states(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load_states(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save_states(tmp_path / "nowhere" / "a.state", [])
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save_states(tmp_path, [])


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupted_write_keeps_the_old_file(
    call: str, error: type[BaseException], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = linear()
    old.save(path)

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(error):
        linear().save(path)
    assert os.listdir(path.parent) == [path.name]
    assert same(State.load(path), old)


FOREIGN = {
    "empty": b"",
    "text": b"not a state\n" * 20,
    "pickle": pickle.dumps({"s": [1.0] * 50}),
    "zeros": bytes(64),
    "huge header": struct.pack("<Q", 2**63) + b"{}",
    "header beyond the file": struct.pack("<Q", 90_000_000) + b"{}",
    "not json": struct.pack("<Q", 8) + b"{" * 8,
    "no metadata": struct.pack("<Q", 2) + b"{}",
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("read", [load_states, read_header])
def test_foreign_files_are_refused(data: bytes, read: Any, path: Path) -> None:
    path.write_bytes(data)
    foreign = "format is None in the file, 'linnet-state' is wanted"
    with pytest.raises(
        StateError, match=rf"a\.state(: {foreign}| is not a whole safetensors file .* save the state again)"
    ):
        read(path)


META = {"format": "linnet-state", "format_version": "1", "model": "", "tokenizer": "", "tokens": "0", "layers": "[]"}
ENTRY = {"kind": "linear", "dtype": "float32", "shapes": {"s": [B, H, F, V], "z": [B, H, F]}}


def layers(**change: Any) -> dict[str, str]:
    return {"layers": json.dumps([ENTRY | change])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "pt"}, "format is 'pt' in the file, 'linnet-state' is wanted"),
        ({"format_version": "3"}, "format_version is '3' in the file, '2' is wanted"),
        ({"layers": "[]"}, "shapes is .*'0.s'.* in the file, {} is wanted"),
        ({"layers": "["}, "damaged header"),
        ({"layers": "[" * 100_000}, "damaged header"),
        ({"layers": "7"}, "damaged header"),
        ({"tokens": "many"}, "damaged header"),
        (layers(kind="lstm"), r"layers of kind {'lstm'}; this linnet reads linear"),
        (layers(kind=["linear"]), "damaged header"),
        (layers(dtype="float64"), "dtype of 0.s is 'float32' in the file, 'float64' is wanted"),
        (layers(dtype=None), "dtype of 0.s"),
        (layers(shapes=[]), "damaged header"),
        (layers(shapes={"s": [B, H, F, V]}), "shapes is"),
        (layers(shapes={"s": [B, H, F, V + 1], "z": [B, H, F]}), "shapes is"),
        ({"extras": "[]"}, "damaged header"),
        ({"extras": '{"position": 3}'}, "damaged header"),
        ({"extras": '{"position": {"dtype": "int64", "shape": [3]}}'}, "shapes is"),
        ({"config": "[1]"}, "damaged header"),
        ({"config": "{"}, "damaged header"),
        (layers(), "damaged: crc32 None"),
    ],
)
def test_headers_that_do_not_fit_are_refused(change: dict[str, str], message: str, path: Path) -> None:
    state = linear()
    save_file({"0.s": state.s, "0.z": state.z}, path, META | layers() | change)
    with pytest.raises(StateError, match=message):
        load_states(path, expect=[state] if message == "shapes is" else None)


def test_a_tensor_beside_the_layers_is_of_the_dtype_the_header_says(path: Path) -> None:
    meta = META | {"format_version": "2", "config": "null"}
    meta["extras"] = json.dumps({"position": {"dtype": "int64", "shape": [2]}})
    for x, message in (
        (torch.zeros(2), "dtype of position is 'float32' in the file, 'int64' is wanted"),
        (None, "shapes"),
    ):
        save_file({} if x is None else {"position": x}, path, meta)
        with pytest.raises(StateError, match=message):
            load_states(path)


def test_taps_of_a_convolution_are_not_free_when_loading(path: Path) -> None:
    conv().save(path)
    with pytest.raises(StateError, match=r"shapes of layer 0 is .*\(3, 2, 7\).* in the file, .*\(3, 1, 7\)"):
        ConvState.load(path, expect=[ConvState(conv().x[:, 1:])])


@pytest.mark.parametrize("kind", ["linear", "softmax", "window", "conv"])
@pytest.mark.parametrize("names", [["s", "z"], ["k", "v"], ["k.x", ""], ["k"], ["x"]])
def test_tensors_of_the_wrong_rank_or_name_are_refused(kind: str, names: list[str], path: Path) -> None:
    tensors = {f"0.{name}": torch.tensor(1.0) for name in names}
    entry = {"kind": kind, "dtype": "float32", "shapes": {name: [] for name in names}}
    meta = META | {"layers": json.dumps([entry])}
    save_file(tensors, path, meta | {"crc32": state_file.crc32_of(meta, tensors)})
    with pytest.raises(StateError):
        load_states(path)
    with pytest.raises(StateError):
        load_states(path, expect=[cache()])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[AnyState]]:
    path, states = tmp_path_factory.mktemp("whole") / "a.state", [linear(), cache(2)]
    save_states(path, states, tokens=3, model="m")
    return path.read_bytes(), states


def test_every_truncation_is_refused(whole: tuple[bytes, list[AnyState]], path: Path) -> None:
    data, _ = whole
    for length in [*range(64), *range(64, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(StateError, match=r"a\.state is not a whole safetensors file .* save the state again"):
            load_states(path)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.integers(min_value=0), value=st.integers(0, 255), header=st.booleans())
def test_a_changed_byte_is_refused_or_harmless(
    where: int, value: int, header: bool, whole: tuple[bytes, list[AnyState]], path: Path
) -> None:
    """Harmless: a blank of the header that became another blank, or the byte that was there already."""
    data, states = whole
    changed = bytearray(data)
    end = 8 + struct.unpack("<Q", data[:8])[0] if header else len(data)
    changed[where % end] = value
    path.write_bytes(changed)
    try:
        loaded = load_states(path, model="m")
    except StateError:
        return
    assert all(same(a, b) for a, b in zip(loaded, states, strict=True))
    assert read_header(path).tokens == 3
