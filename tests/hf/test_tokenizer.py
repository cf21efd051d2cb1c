"""Exported tokenizers: the ids of linnet's own for any text, and padding that is no text."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from linnet.data import BPETokenizer, ByteTokenizer, Tokenizer

pytestmark = pytest.mark.slow
TEXTS = [
    "",
    "Call me Ishmael.",
    "  two  spaces\tand\r\nlines\n\n",
    "ÿ Ā ÷ žluťoučký kůň 漢字 🐦\u200d⬛ a\u0301",
    "\x00\x01\x7f\x80\x9f\xad\ufffd\U0010ffff",
    "<|pad|> is only text <s>",
    "".join(map(chr, range(0x250))),
]


def bpe() -> BPETokenizer:
    return BPETokenizer.train(["the whale, the sea, the ship and the whale again " * 20, *TEXTS], 700)


@pytest.mark.parametrize("make", [ByteTokenizer, bpe])
def test_ids_are_equal_and_decode_to_the_text(hf: ModuleType, make: type[Tokenizer], tmp_path: Path) -> None:
    ours = make()
    theirs = hf.tokenizer_to_hf(ours)
    theirs.save_pretrained(tmp_path)
    again = type(theirs).from_pretrained(tmp_path)
    for tokenizer in (theirs, again):
        for text in TEXTS:
            ids = tokenizer(text).input_ids
            assert ids == ours.encode(text)
            assert tokenizer.decode(ids) == text


def test_bytes_are_their_own_ids(hf: ModuleType) -> None:
    theirs = hf.tokenizer_to_hf(ByteTokenizer())
    names = theirs.convert_ids_to_tokens(list(range(256)))
    assert len(set(names)) == 256
    assert theirs.convert_tokens_to_ids(names) == list(range(256))


@pytest.mark.parametrize("make", [ByteTokenizer, bpe])
def test_rows_are_filled_on_the_left(hf: ModuleType, make: type[Tokenizer], tmp_path: Path) -> None:
    ours = make()
    hf.tokenizer_to_hf(ours).save_pretrained(tmp_path)
    batch = type(hf.tokenizer_to_hf(ours)).from_pretrained(tmp_path)(["a", "abc"], padding=True)
    assert set(batch) == {"input_ids", "attention_mask"}
    missing = len(ours.encode("abc")) - 1
    assert batch["input_ids"][0] == [ours.vocab_size] * missing + ours.encode("a")
    assert batch["attention_mask"][0] == [0] * missing + [1]


def test_other_tokenizers_are_refused(hf: ModuleType) -> None:
    class Mine(ByteTokenizer.__base__):  # type: ignore[misc, name-defined]
        name, vocab_size = "mine", 2
        encode = decode = to_json = from_json = None

    with pytest.raises(ValueError, match="a Mine has no Hugging Face form; accepted: ByteTokenizer or BPETokenizer"):
        hf.tokenizer_to_hf(Mine())
