"""Exported tokenizers: the ids of linnet's own for any text, and padding that is not text."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from linnet.data import BPETokenizer, ByteTokenizer, Tokenizer
from tests.hf.nets import net

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


@pytest.mark.parametrize("make", [ByteTokenizer, bpe])
def test_a_text_begins_and_ends_with_a_token_past_the_vocabulary(hf: ModuleType, make: type[Tokenizer]) -> None:
    ours = make()
    wrapped, theirs = hf.to_hf(net(vocab_size=ours.vocab_size), ours)
    assert theirs.pad_token_id == ours.vocab_size
    assert theirs.bos_token_id == theirs.eos_token_id == wrapped.config.bos_token_id == ours.vocab_size + 1
    assert wrapped.generation_config.eos_token_id == theirs.eos_token_id
    ids = ours.encode("a\nb")
    assert theirs.decode([theirs.bos_token_id, *ids, theirs.eos_token_id], skip_special_tokens=True) == "a\nb"
    read = {}
    for first in (ours.begin, theirs.bos_token_id):
        with torch.no_grad():
            read[first] = wrapped(torch.tensor([[first, *ids]])).logits
    torch.testing.assert_close(read[theirs.bos_token_id], read[ours.begin], rtol=0, atol=0)
    assert ours.decode([ours.begin]) == "\n"
    with pytest.raises(ValueError, match="outside the vocabulary"):
        wrapped(torch.tensor([[theirs.pad_token_id]]))
    with pytest.raises(ValueError, match="outside the vocabulary"):
        wrapped(torch.tensor([ids]), labels=torch.tensor([[*ids[:-1], theirs.eos_token_id]]))


def test_a_vocabulary_with_an_end_of_its_own_keeps_it(hf: ModuleType) -> None:
    import json

    stored = json.loads(bpe().to_json())
    size = 1 + max(stored["model"]["vocab"].values())
    names = ("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
    stored["added_tokens"] = [dict(zip(names, (size, "<|endoftext|>", *[False] * 4, True), strict=True))]
    theirs = hf.tokenizer_to_hf(BPETokenizer(json.dumps(stored)))
    assert (theirs.eos_token_id, theirs.bos_token_id, theirs.pad_token_id) == (size, size, size + 1)


def test_other_tokenizers_are_refused(hf: ModuleType) -> None:
    class Mine(ByteTokenizer.__base__):  # type: ignore[misc, name-defined]
        name, vocab_size = "mine", 2
        encode = decode = to_json = from_json = None

    with pytest.raises(ValueError, match="a Mine has no Hugging Face form; accepted: ByteTokenizer or BPETokenizer"):
        hf.tokenizer_to_hf(Mine())
