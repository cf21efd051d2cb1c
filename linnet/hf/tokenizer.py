"""linnet's tokenizers as Hugging Face's fast ones, id for id.

    tokenizer_to_hf(ByteTokenizer())      a byte-level BPE without merges whose ids are the bytes themselves
    tokenizer_to_hf(BPETokenizer(...))    its own JSON

Both get two tokens past the vocabulary. `<|pad|>` fills rows: a model never reads what its attention_mask hides.
`<|endoftext|>` begins and ends a text (bos and eos), unless the vocabulary has one of that name; a model reads it as
what stands between texts, a line break (`begin_token_id`), and never writes it, for it has no such logit. A line break
itself cannot be the special token: skip_special_tokens=True would then take all of them out of a text. Written in a
text, "<|pad|>" is seven characters like any others.
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
    """The same ids for every text, with rows padded on the left, as generate() wants them."""
    if isinstance(tokenizer, ByteTokenizer):
        library = _bytes()
    elif isinstance(tokenizer, BPETokenizer):
        library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    else:
        accepted = "ByteTokenizer or BPETokenizer"
        raise ValueError(f"a {type(tokenizer).__name__} has no Hugging Face form; accepted: {accepted}")
    library.add_special_tokens([PAD, END])  # in this order: the first has the number after the last of the vocabulary
    return PreTrainedTokenizerFast(
        tokenizer_object=library,
        pad_token=PAD,
        bos_token=END,
        eos_token=END,
        padding_side="left",
        split_special_tokens=True,  # a text that holds the name of the pad token is only text
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def name_tokens(config: LinnetConfig, tokenizer: Tokenizer, theirs: PreTrainedTokenizerFast) -> None:
    """Tell a configuration which tokens pad, begin and end a text, and what the model reads where one begins."""
    config.pad_token_id = theirs.pad_token_id
    config.bos_token_id, config.eos_token_id = theirs.bos_token_id, theirs.eos_token_id
    config.begin_token_id = tokenizer.begin


def _bytes() -> tokenizers.Tokenizer:
    """Each byte is a token; the library writes bytes as printable characters, in this order."""
    names = _names()
    library = tokenizers.Tokenizer(models.BPE(vocab={name: byte for byte, name in enumerate(names)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return library


def _names() -> list[str]:
    """The character that stands for each byte: itself where it prints, else the next one from U+0100 on (GPT-2)."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]
