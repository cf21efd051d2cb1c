"""Byte-level BPE: round trips of any Unicode, the same vocabulary every time, foreign JSON, the missing package."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.data.assets import shipped_text
from linnet.data.bpe import BPETokenizer
from linnet.data.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer

with gzip.open(shipped_text(), "rt", encoding="ascii") as opened:
    STORY = opened.read(100_000)
TOKENIZER = BPETokenizer.train([STORY], 400)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n  x\r\n", "naïve — 東京 🐋", "\x00\x7f\ufeff", "<|endoftext|>", "  a  "]
)
def test_awkward_texts_come_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_joins_make_text_shorter_with_ids_below_the_size() -> None:
    ids = TOKENIZER.encode(STORY[:5000])
    assert TOKENIZER.vocab_size == 400
    assert len(ids) < 0.7 * 5000
    assert 256 <= max(ids) < 400


def test_half_a_character_decodes_to_the_replacement_sign() -> None:
    whale = TOKENIZER.encode("🐋")
    assert len(whale) == 4
    assert TOKENIZER.decode(whale[:3]) == "\ufffd"


def test_training_twice_gives_the_same_tokenizer() -> None:
    again = BPETokenizer.train([STORY], 400)
    assert again.fingerprint == TOKENIZER.fingerprint
    assert BPETokenizer.train([STORY], 401).fingerprint != TOKENIZER.fingerprint
    assert TOKENIZER.fingerprint != ByteTokenizer().fingerprint


def test_a_small_text_gives_a_small_vocabulary() -> None:
    assert BPETokenizer.train(["ab ab"], 1000).vocab_size == 258  # "ab" and " ab"
    assert BPETokenizer.train([], 1000).vocab_size == 256


def test_files_are_read_unpacked(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.gz"
    plain.write_text(STORY, encoding="utf-8")
    packed.write_bytes(gzip.compress(STORY.encode()))
    assert BPETokenizer.train_files(plain, 400).fingerprint == TOKENIZER.fingerprint
    assert BPETokenizer.train_files([packed], 400).fingerprint == TOKENIZER.fingerprint
    assert BPETokenizer.train_files(str(plain), 400).fingerprint == TOKENIZER.fingerprint


def test_saved_and_loaded(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    loaded: Tokenizer = load_tokenizer(tmp_path)
    assert isinstance(loaded, BPETokenizer)
    assert loaded.name == "bpe"
    assert (loaded.vocab_size, loaded.fingerprint) == (400, TOKENIZER.fingerprint)
    assert loaded.encode(STORY[:999]) == TOKENIZER.encode(STORY[:999])
    assert loaded.to_json() == TOKENIZER.to_json()


def test_special_tokens_of_a_foreign_file_count_and_are_not_lost() -> None:
    data = json.loads(TOKENIZER.to_json())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    data["added_tokens"] = [{"id": 400, "content": "<end>", **flags}]
    foreign = BPETokenizer.from_json(json.dumps(data))
    assert foreign.vocab_size == 401
    assert foreign.decode(foreign.encode("a<end>b")) == "a<end>b"
    assert 400 in foreign.encode("a<end>b")


def test_a_truncation_in_the_file_is_not_applied() -> None:
    data = json.loads(TOKENIZER.to_json())
    data["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    assert BPETokenizer.from_json(json.dumps(data)).encode(STORY[:500]) == TOKENIZER.encode(STORY[:500])


def test_what_is_no_byte_level_bpe_is_refused(tmp_path: Path) -> None:
    data = json.loads(TOKENIZER.to_json())
    whole = json.dumps(data)
    data["model"] = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    for text in ('{"a": 1}', json.dumps(data), whole.replace('"BPE"', '"Nothing"')):
        with pytest.raises(ValueError, match="is not a byte-level BPE tokenizer; accepted: what BPETokenizer"):
            BPETokenizer.from_json(text)
    (tmp_path / "tokenizer.json").write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json: this is not JSON"):
        load_tokenizer(tmp_path)


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"texts is one str; accepted: an iterable of str; use \[text\]"):
        BPETokenizer.train("a text", 300)
    for size in (255, True, 300.0):
        with pytest.raises(ValueError, match=f"vocab_size is {size!r}; accepted: a whole number, 256 or more"):
            BPETokenizer.train([], size)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="token id 400 at position 0"):
        TOKENIZER.decode([400])
    with pytest.raises(ValueError, match="lone surrogate"):
        TOKENIZER.encode("\ud800")


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # what Python itself keeps for a package that cannot be found
    with pytest.raises(ImportError, match=r"pip install linnet\[train\], or use ByteTokenizer"):
        BPETokenizer.from_json(TOKENIZER.to_json())


def test_one_huge_id_is_refused() -> None:
    data = json.loads(TOKENIZER.to_json())
    last = max(data["model"]["vocab"], key=data["model"]["vocab"].__getitem__)
    data["model"]["vocab"][last] = 50_000_000
    with pytest.raises(ValueError, match="ids up to 50000000; accepted: ids without such gaps"):
        BPETokenizer(json.dumps(data))
