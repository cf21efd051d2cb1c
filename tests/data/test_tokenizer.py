"""The byte tokenizer and the interface: round trips, fingerprints, JSON files, ids outside the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linnet.data.tokenizer import ByteTokenizer, check_tokens, load_tokenizer

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_any_text_comes_back(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert bytes(ids) == text.encode()


@given(st.binary())
def test_any_bytes_decode(data: bytes) -> None:
    assert ByteTokenizer().decode(list(data)) == data.decode("utf-8", errors="replace")


def test_decode_takes_tensors_and_arrays() -> None:
    assert ByteTokenizer().decode(torch.tensor([104, 105])) == "hi"
    assert ByteTokenizer().decode(np.array([104, 105], np.uint8)) == "hi"


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate '\\udc80' at position 2; accepted: Unicode text"):
        ByteTokenizer().encode("ab\udc80")


def test_name_size_and_fingerprint() -> None:
    tokenizer = ByteTokenizer()
    assert (tokenizer.name, tokenizer.vocab_size) == ("byte", 256)
    assert tokenizer.fingerprint == "c8bfa69fc7cc9a74"  # in files of users: it may never change
    assert ByteTokenizer.from_json(tokenizer.to_json()).fingerprint == tokenizer.fingerprint
    assert ByteTokenizer.from_json(json.dumps(json.loads(tokenizer.to_json()), indent=4)).vocab_size == 256


@pytest.mark.parametrize("name", ["", "my.json"])
def test_saved_and_loaded(tmp_path: Path, name: str) -> None:
    ByteTokenizer().save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name or "tokenizer.json"]
    loaded = load_tokenizer(tmp_path / name)
    assert isinstance(loaded, ByteTokenizer)
    assert loaded.fingerprint == ByteTokenizer().fingerprint


def test_loading_refuses_other_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no tokenizer .*tokenizer\.json; write one with"):
        load_tokenizer(tmp_path)
    file = tmp_path / "t.json"
    for text in ("", "{", "[1, 2]", "[" * 100_000, '{"format": "linnet-tokenizer", "version": 2, "kind": "byte"}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"t\.json: .*; accepted: "):
            load_tokenizer(file)


def test_saving_into_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none; create it before writing t\.json"):
        ByteTokenizer().save(tmp_path / "none" / "t.json")


@pytest.mark.parametrize(
    ("ids", "bad"),
    [
        ([0, 1, 10, 3], "token id 10 at position 2"),
        ([0, -1], "token id -1 at position 1"),
        (np.array([[0, 1], [2, 300]], np.uint16), "token id 300 at position 3"),
        (torch.tensor([99]), "token id 99 at position 0"),
    ],
)
def test_the_id_outside_the_vocabulary_is_named(ids: Any, bad: str) -> None:
    with pytest.raises(ValueError, match=f"{bad} is outside the vocabulary; accepted: 0 to 9; use the tokenizer"):
        check_tokens(ids, 10)


def test_ids_inside_the_vocabulary_pass() -> None:
    for ids in ([], [0, 9], np.array([], np.int64), torch.arange(10)):
        check_tokens(ids, 10)
    with pytest.raises(ValueError, match="dtype float64; accepted: integers from 0 to 9"):
        check_tokens([0.0], 10)
    with pytest.raises(ValueError, match="token id 256 at position 1"):
        ByteTokenizer().decode([0, 256])
