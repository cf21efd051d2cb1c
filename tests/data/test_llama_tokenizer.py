"""The Llama tokenizer: the joins of a plain repeated scan, any text back, files and JSON, one sentence for bad ones."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from linnet.data import data_folder, load_tokenizer
from linnet.data.llama_tokenizer import BOS, LlamaTokenizer

BYTES = [f"<0x{b:02X}>" for b in range(256)]
LEARNED = ["ab", "b ", " a", "aba", "  ", "    ", " ab", "bc", "abc", "é", " ", "a", "b", "c", "<", "s", ">"]
PIECES = ["<unk>", "\n<s>\n", "\n</s>\n", *BYTES, *LEARNED]
SCORES = [0.0] * 259 + [-float(i // 2) for i in range(len(LEARNED))]  # some are equal
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LETTERS = st.text(st.sampled_from("ab c é\n<s>"), max_size=40)


def made(pieces: list[str] | None = None) -> LlamaTokenizer:
    return LlamaTokenizer(pieces or PIECES, SCORES)


def words_only() -> LlamaTokenizer:
    """Without a piece that continues after a word: this one may encode word by word."""
    return made(["ba" if piece == "b " else piece for piece in PIECES])


def scanned(pieces: list[str], scores: list[float], text: str) -> list[int]:
    """llama2.c's own way: the best pair of all, the leftmost of equals, again and again."""
    find = {piece: i for i, piece in enumerate(pieces) if i >= 259}
    ids: list[int] = []
    for letter in f" {text}" if text else "":
        ids += [find[letter]] if letter in find else [3 + b for b in letter.encode()]
    while True:
        best: tuple[float, int, int] | None = None
        for i in range(len(ids) - 1):
            joined = find.get(pieces[ids[i]] + pieces[ids[i + 1]]) if min(ids[i : i + 2]) >= 259 else None
            if joined is not None and (best is None or scores[joined] > best[0]):
                best = (scores[joined], i, joined)
        if best is None:
            return ids
        ids[best[1] : best[1] + 2] = [best[2]]


@given(LETTERS)
def test_the_joins_are_those_of_a_plain_scan(text: str) -> None:
    for tokenizer in (made(), words_only()):
        assert tokenizer.encode(text) == scanned(tokenizer._pieces, SCORES, text)
    assert (made()._by_word, words_only()._by_word) == (False, True)


@given(TEXT)
@example("  a b  ")
@example(" ")
def test_any_text_comes_back(text: str) -> None:
    for tokenizer in (made(), words_only()):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode([*tokenizer.prefix, *ids]) == text
        assert b"".join(tokenizer.token_bytes[i] for i in ids) == (f" {text}".encode() if text else b"")


def test_special_ids_have_no_text_and_no_text_becomes_them() -> None:
    tokenizer = made()
    assert (tokenizer.name, tokenizer.vocab_size, tokenizer.prefix) == ("llama", len(PIECES), (BOS,))
    assert tokenizer.decode([0, 1, 2]) == ""
    assert not {0, 1, 2} & set(tokenizer.encode("<unk>\n<s>\n\n</s>\n<0x41>"))
    assert tokenizer.decode([3 + 0xC3, 3 + 0xA9, 3 + 0xFF]) == "é\ufffd"
    more = LlamaTokenizer(PIECES, SCORES, special=[0, 1, 2, PIECES.index("é")])
    assert more.encode("é") == [PIECES.index(" "), 3 + 0xC3, 3 + 0xA9]
    with pytest.raises(ValueError, match=f"token id {len(PIECES)} at position 1 is outside the vocabulary"):
        tokenizer.decode([0, len(PIECES)])
    with pytest.raises(ValueError, match="lone surrogate"):
        tokenizer.encode("a\udc80")


def test_json_and_back(tmp_path: Path) -> None:
    tokenizer = made()
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert isinstance(again, LlamaTokenizer)
    assert again.fingerprint == tokenizer.fingerprint == "db03edb384df93e8"  # in files of users: it may never change
    assert again.encode("ab abc é") == tokenizer.encode("ab abc é")
    assert words_only().fingerprint != tokenizer.fingerprint


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "this is a 'llama' tokenizer, version 2; accepted: 'llama', version 1"),
        ({"scores": None}, "lacks pieces, scores or special; accepted: what Tokenizer.save wrote"),
        ({"scores": [0.0]}, "276 pieces with 1 scores; accepted: 259 or more of both, alike"),
        ({"scores": [*SCORES[:-1], "x"]}, "the score of piece 275 is 'x'; accepted: a number"),
        ({"scores": [*SCORES[:-1], float("nan")]}, "the number NaN is not finite"),
        ({"pieces": [*PIECES[:-1], 7]}, "piece 275 is 7; accepted: a string that is not empty"),
        ({"pieces": [*PIECES[:-1], ""]}, "piece 275 is ''; accepted: a string that is not empty"),
        ({"pieces": [*PIECES[:3], "x", *PIECES[4:]]}, "piece 3 is 'x'; accepted: <0x00> to <0xFF>"),
        ({"special": [[1]]}, r"the special id \[1\] is outside the vocabulary"),
        ({"special": [999]}, "the special id 999 is outside the vocabulary; accepted: 0 to 275"),
    ],
)
def test_damaged_json_is_refused(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(json.loads(made().to_json()) | change))
    with pytest.raises(ValueError, match=rf"t\.json: .*{sentence}"):
        load_tokenizer(file)


def as_bin() -> bytes:
    pieces = [(piece.encode(), score) for piece, score in zip(PIECES, SCORES, strict=True)]
    body = b"".join(struct.pack("<fi", score, len(piece)) + piece for piece, score in pieces)
    return struct.pack("<i", max(len(piece) for piece, _ in pieces)) + body


def test_the_file_of_llama2c_plain_and_packed(tmp_path: Path) -> None:
    for name, data in (("t.bin", as_bin()), ("t.bin.gz", gzip.compress(as_bin()))):
        (tmp_path / name).write_bytes(data)
        assert LlamaTokenizer.read(tmp_path / name).fingerprint == made().fingerprint


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (as_bin()[:-1], "piece 275 at byte .* is cut off or damaged"),
        (as_bin()[:-7], "piece 275 at byte .* is cut off or damaged"),
        (as_bin()[:8] + b"\xff" * 4 + as_bin()[12:], "piece 0 at byte 4 is cut off or damaged"),
        (as_bin()[:500], "pieces with .* scores|cut off or damaged"),
        (as_bin() + struct.pack("<fi", 0.0, 1) + b"\xff", "codec can't decode"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "t.bin").write_bytes(data)
    with pytest.raises(
        ValueError, match=rf"t\.bin is not a llama2\.c tokenizer: .*({sentence}).*; accepted: a tokenizer"
    ):
        LlamaTokenizer.read(tmp_path / "t.bin")


def library_json(pieces: list[str], scores: list[float]) -> dict[str, Any]:
    """The same tokenizer as the `tokenizers` library has it: all joins, best score first."""
    written = [piece.replace(" ", "\u2581") for piece in pieces]
    known = set(written[259:])
    joins = [
        (score, piece[:cut], piece[cut:])
        for piece, score in zip(written[259:], scores[259:], strict=True)
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
    merges = [[a, b] for _, a, b in sorted(joins, key=lambda join: -join[0])]
    written[1], written[2] = "<s>", "</s>"
    vocab = {piece: i for i, piece in enumerate(written)}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": written[i], **flags} for i in range(3)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    spaces = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    empty = {"truncation": None, "padding": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return {"version": "1.0", **empty, "added_tokens": added, "normalizer": spaces, "model": model}


@pytest.mark.parametrize("joined", [False, True])
def test_the_json_of_the_library(joined: bool, tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    distinct = [0.0] * 259 + [-float(i) for i in range(len(LEARNED))]
    stored = library_json(PIECES, distinct)
    theirs = library.Tokenizer.from_str(json.dumps(stored))
    if joined:  # as older versions wrote them
        stored["model"]["merges"] = [" ".join(pair) for pair in stored["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(stored))
    ours = load_tokenizer(tmp_path)
    assert isinstance(ours, LlamaTokenizer)
    for text in ("abc ab  ab", "é\nü 🙂 abab    c", "a", "  ", "caba b c"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"normalizer": None},
            "'BPE' tokenizer, byte_fallback True; accepted: BPE with byte_fallback that prepends a space",
        ),
        ({"model": {"type": "BPE", "byte_fallback": True}}, "3 pieces with 3 scores; accepted: 259 or more"),
        ({"added_tokens": [{"id": 400, "content": "<x>"}]}, "277 pieces have ids up to 400; accepted: 0 to 276, each"),
    ],
)
def test_another_library_json_is_refused(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(library_json(PIECES, SCORES) | change))
    with pytest.raises(ValueError, match=sentence):
        load_tokenizer(tmp_path)


@pytest.mark.skipif(data_folder("tiny-lm") is None, reason="the folder tiny-lm is not on this machine")
@pytest.mark.parametrize(("name", "size"), [("tok512.bin", 512), ("tokenizer32k.bin.gz", 32000)])
def test_the_real_vocabularies(name: str, size: int) -> None:
    folder = data_folder("tiny-lm")
    assert folder is not None
    tokenizer = LlamaTokenizer.read(folder / name)
    assert tokenizer.vocab_size == size
    text = gzip.decompress((folder / "tinystories_sample.txt.gz").read_bytes()).decode()  # 944,426 bytes
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    short = text[:1000] + " naïve 🙂   x\n"
    assert tokenizer.encode(short) == scanned(tokenizer._pieces, tokenizer._scores, short)
    if size == 32000:
        assert tokenizer.encode("Once upon a time") == [9038, 2501, 263, 931]
