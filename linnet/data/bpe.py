"""Byte-level BPE: start from the 256 bytes, merge the most frequent pair of neighbours, repeat up to `vocab_size`.

    "ab ab" -> a b _a b  ->  ab _ab         vocabulary = 256 bytes + one token per merge

Sennrich et al. 2016, arXiv:1508.07909; on bytes as in Radford et al. 2019 (GPT-2). Nothing is ever unknown.
A wrapper around the optional `tokenizers` library, stored as that library's JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from ..errors import whole
from .files import PathLike, path_list, text_pieces
from .tokenizer import Tokenizer, check_tokens, parse_json, utf8

GAPS = 16  # ids per token at most
PADDING = 4096  # ids at most that a vocabulary is rounded up by; more are another vocabulary


class BPETokenizer(Tokenizer):
    """A byte-level BPE, learned with `train` or `train_files`, or read from a tokenizer.json of the library."""

    name = "bpe"

    def __init__(self, json: str) -> None:
        bad = ValueError(f"{json[:80]!r} is not a byte-level BPE tokenizer; accepted: what BPETokenizer.train writes")
        library = _library()
        parse_json(json)
        try:
            self._tokenizer: Any = library.Tokenizer.from_str(json)
        except Exception as error:  # the library raises nothing narrower
            raise bad from error
        if not set(library.pre_tokenizers.ByteLevel.alphabet()) <= self._tokenizer.get_vocab().keys():
            raise bad
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._json = json  # kept verbatim: another version of the library would write it differently
        ids = self._tokenizer.get_vocab(with_added_tokens=True).values()
        self.vocab_size = 1 + max(ids)
        if self.vocab_size > GAPS * len(ids):  # tables by id must not grow with a single number in a file
            raise ValueError(
                f"the tokenizer has {len(ids)} tokens with ids up to {max(ids)}; accepted: ids without such gaps; use "
                "the file as it was published"
            )

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> BPETokenizer:
        """Train on texts; a small text may give fewer tokens than requested."""
        if isinstance(texts, str):
            raise ValueError("texts is one str; accepted: an iterable of str; use [text], or train_files for a file")
        whole("vocab_size", vocab_size, 256, hint="each byte needs a token")
        library = _library()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=sorted(alphabet), special_tokens=[], show_progress=False
        )
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        tokenizer.train_from_iterator(texts, trainer=trainer)
        return cls(tokenizer.to_str())

    @classmethod
    def train_files(cls, paths: PathLike | Sequence[PathLike], vocab_size: int) -> BPETokenizer:
        """Train on text files (plain, gzip or bzip2), read in pieces."""
        return cls.train((piece for path in path_list(paths) for piece in text_pieces(path)), vocab_size)

    def padded(self, vocab_size: int) -> BPETokenizer:
        """Return a tokenizer that also has names for the last ids of a model whose vocabulary is rounded up."""
        missing = range(self.vocab_size, vocab_size)
        if not 0 < len(missing) <= PADDING:
            return self
        twin = _library().Tokenizer.from_str(self._json)
        twin.add_tokens([f"<|unused {i}|>" for i in missing])
        wider = BPETokenizer(twin.to_str())
        return wider if wider.vocab_size == vocab_size else self

    def encode(self, text: str) -> list[int]:
        utf8(text)  # a clearer error than the library's for a lone surrogate
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        check_tokens(ids, self.vocab_size)
        return str(self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False))

    @cached_property
    def token_bytes(self) -> list[bytes] | None:
        stored = parse_json(self._json)
        if (stored.get("decoder") or {}).get("type") != "ByteLevel":
            return None
        names = {added["id"]: added["content"] for added in stored.get("added_tokens") or ()}
        names = {i: token for token, i in stored["model"]["vocab"].items()} | names
        if max(names) >= self.vocab_size:  # the file has ids that the library ignored
            return None
        letters = _byte_letters()
        return [_bytes_of(names.get(i, ""), letters) for i in range(self.vocab_size)]

    def to_json(self) -> str:
        return self._json

    @classmethod
    def from_json(cls, text: str) -> BPETokenizer:
        return cls(text)


def _library() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError(
            "the BPE tokenizer needs the package tokenizers, which is not installed; pip install linnet[train], "
            "or use ByteTokenizer, which needs nothing"
        ) from error
    return tokenizers


def _byte_letters() -> dict[str, int]:
    """Return the byte alphabet of GPT-2: printable bytes map to themselves, the others to U+0100 and up."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [i for i in range(256) if i not in plain]
    return {chr(i): i for i in plain} | {chr(0x100 + n): i for n, i in enumerate(others)}


def _bytes_of(token: str, letters: dict[str, int]) -> bytes:
    """Return the bytes of a token; one with characters outside the alphabet was added as plain text."""
    known: list[Any] = [letters.get(letter) for letter in token]
    return token.encode() if None in known else bytes(known)
