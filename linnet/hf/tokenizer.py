"""Convert linnet's tokenizers to Hugging Face fast tokenizers with the same ids.

    tokenizer_to_hf(ByteTokenizer())      a byte-level BPE without merges whose ids are the bytes themselves
    tokenizer_to_hf(BPETokenizer(...))    its own JSON

Both get two tokens outside the vocabulary. `<|pad|>` pads rows: a model never reads tokens that attention_mask hides.
`<|endoftext|>` starts and ends a text (bos and eos), unless the vocabulary has a token of that name; a model reads it
as the separator of texts, a line break (`begin_token_id`), and never generates it, since it has no logit. A line break
itself cannot be the special token: skip_special_tokens=True would then remove all of them from a text. "<|pad|>" within
a text is encoded as seven ordinary characters.
"""

from __future__ import annotations

import tokenizers
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ..data.bpe import BPETokenizer
from ..data.tokenizer import ByteTokenizer, Tokenizer
from .configuration import LinnetConfig

PAD, END = "<|pad|>", "<|endoftext|>"


def tokenizer_to_hf(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the same ids for every text that pads on the left, as generate() expects."""
    if isinstance(tokenizer, ByteTokenizer):
        library = _bytes()
    elif isinstance(tokenizer, BPETokenizer):
        library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    else:
        accepted = "ByteTokenizer or BPETokenizer"
        raise ValueError(f"a {type(tokenizer).__name__} has no Hugging Face form; accepted: {accepted}")
    library.add_special_tokens([PAD, END])  # in this order: the first gets the id after the vocabulary
    return PreTrainedTokenizerFast(
        tokenizer_object=library,
        pad_token=PAD,
        bos_token=END,
        eos_token=END,
        padding_side="left",
        split_special_tokens=True,  # the name of the pad token in a text is ordinary text
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def set_special_tokens(config: LinnetConfig, tokenizer: Tokenizer, converted: PreTrainedTokenizerFast) -> None:
    """Set the pad, bos and eos tokens of a configuration, and the token that the model reads for bos."""
    config.pad_token_id = converted.pad_token_id
    config.bos_token_id, config.eos_token_id = converted.bos_token_id, converted.eos_token_id
    config.begin_token_id = tokenizer.begin


def _bytes() -> tokenizers.Tokenizer:
    """Return a tokenizer whose tokens are the bytes, which the library writes as printable characters."""
    names = _names()
    library = tokenizers.Tokenizer(models.BPE(vocab={name: byte for byte, name in enumerate(names)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return library


def _names() -> list[str]:
    """Return the character for each byte: itself if printable, else the next one from U+0100 (as in GPT-2)."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]
