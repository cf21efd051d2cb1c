"""Detokenizer: the concatenated text is the decoded text up to the first stop, in complete characters.

The reference for stop strings adds one character at a time and looks for a stop at the end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from linnet.data import BPETokenizer, ByteTokenizer, Tokenizer
from linnet.generate.detokenizer import Detokenizer, longest_token

TEXT = "naïve café 日本語 🙂🙃 e\u0301 the whale, the white whale; ab abc abcd \ufffd. " * 3


class Plain(Tokenizer):
    """A tokenizer with `decode` only; like some, it drops a space at the very start."""

    name = "plain"

    def __init__(self, inner: Tokenizer) -> None:
        self.inner, self.vocab_size = inner, inner.vocab_size

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode(ids).removeprefix(" ")

    def to_json(self) -> str:
        return "{}"

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        raise NotImplementedError


def learned() -> BPETokenizer:
    return BPETokenizer.train([TEXT], 320)


TOKENIZERS: dict[str, Tokenizer] = {"byte": ByteTokenizer(), "bpe": learned(), "plain": Plain(learned())}
every = pytest.mark.parametrize("name", TOKENIZERS)


def decode_pieces(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> tuple[list[str], str | None]:
    pieces = Detokenizer(tokenizer, stop)
    return [*(pieces.push(i) for i in ids), pieces.end()], pieces.stopped


def cut(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """Cut the text at the stop that ends first; among several, at the one that starts first."""
    for n in range(1, len(text) + 1):
        matches = [stop for stop in stops if text[:n].endswith(stop)]
        if matches:
            first = max(matches, key=len)
            return text[: n - len(first)], first
    return text, None


@every
def test_pieces_join_to_the_decoded_text_of_any_tokens(name: str) -> None:
    tokenizer, draw = TOKENIZERS[name], random.Random(0)
    for _ in range(300):
        ids = [draw.randrange(tokenizer.vocab_size) for _ in range(draw.randrange(24))]
        assert "".join(decode_pieces(tokenizer, ids)[0]) == tokenizer.decode(ids)


@every
def test_no_piece_is_half_a_character(name: str) -> None:
    text = TEXT.replace("\ufffd", "")
    tokenizer = TOKENIZERS[name]
    pieces, _ = decode_pieces(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("name", ["byte", "bpe"])
def test_a_character_comes_with_its_last_byte(name: str) -> None:
    tokenizer, text = TOKENIZERS[name], "日🙂é"
    ids, pieces, so_far = tokenizer.encode(text), Detokenizer(tokenizer), ""
    for i, token in enumerate(ids):
        so_far += pieces.push(token)
        assert so_far == tokenizer.decode(ids[: i + 1]).rstrip("\ufffd")
    assert so_far == text


def test_bytes_without_an_end_become_replacement_characters() -> None:
    assert decode_pieces(ByteTokenizer(), [104, 0xF0, 0x9F])[0] == ["h", "", "", "\ufffd"]
    assert decode_pieces(ByteTokenizer(), [0xF0, 0x9F, 104])[0] == ["", "", "\ufffdh", ""]


@every
def test_stops_are_detected_wherever_tokens_break(name: str) -> None:
    tokenizer, draw = TOKENIZERS[name], random.Random(1)
    letters = "abc é🙂"
    matches = 0
    for _ in range(600):
        text = "x" + "".join(draw.choice(letters) for _ in range(draw.randrange(16)))
        stops = [
            "".join(draw.choice(letters) for _ in range(draw.randrange(1, 5))) for _ in range(draw.randrange(1, 4))
        ]
        pieces, stopped = decode_pieces(tokenizer, tokenizer.encode(text), stops)
        assert ("".join(pieces), stopped) == cut(text, stops)
        matches += stopped is not None
    assert matches > 100


@pytest.mark.parametrize(("stops", "text"), [(["abcd", "bc"], "xabcd"), (["bc", "abc"], "xabc")])
def test_a_stop_does_not_depend_on_the_size_of_tokens(stops: list[str], text: str) -> None:
    whole = BPETokenizer.train([f"{text} " * 50], 300)
    assert len(whole.encode(text)) < len(text)
    pieces, by_bytes = (decode_pieces(t, t.encode(text), stops)[0] for t in (whole, ByteTokenizer()))
    assert "".join(pieces) == "".join(by_bytes)


def test_what_may_be_a_stop_is_held_back_and_nothing_more() -> None:
    pieces = Detokenizer(ByteTokenizer(), ["abab!", "END"])
    assert [pieces.push(ord(c)) for c in "xabacEN."] == ["x", "", "", "", "abac", "", "", "EN."]
    assert pieces.push(ord("a")) == ""
    assert pieces.end() == "a"
    assert pieces.stopped is None


def test_nothing_comes_after_a_stop() -> None:
    pieces = Detokenizer(ByteTokenizer(), ["!"])
    assert [pieces.push(ord(c)) for c in "a!b!"] == ["a", "", "", ""]
    assert (pieces.end(), pieces.stopped) == ("", "!")


def test_added_tokens_are_text_of_their_own() -> None:
    stored = json.loads(learned().to_json())
    first = learned().vocab_size
    added = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for start in (first, first + 10):  # the library renumbers them if they leave a gap
        new = [{"id": start, "content": "<end>", **added}, {"id": start + 1, "content": "終", **added}]
        tokenizer = BPETokenizer(json.dumps(stored | {"added_tokens": new}))
        ids = tokenizer.encode("ab<end>終é")
        assert {first, first + 1} <= set(ids)
        assert "".join(decode_pieces(tokenizer, ids)[0]) == tokenizer.decode(ids) == "ab<end>終é"


def test_bytes_of_tokens() -> None:
    for tokenizer in (ByteTokenizer(), learned()):
        table = tokenizer.token_bytes
        assert table is not None
        assert all(table[i].decode("utf-8", "replace") == tokenizer.decode([i]) for i in range(tokenizer.vocab_size))
        assert longest_token(tokenizer) == max(len(token) for token in table)
    assert longest_token(ByteTokenizer()) == 1
    assert longest_token(TOKENIZERS["plain"]) is None
