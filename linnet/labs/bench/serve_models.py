"""Models for `linnet bench serve`: random weights in three forms, for a linear server, a softmax server and llama.cpp.

    write_models(folder, "small") -> folder/linear, folder/softmax (the same weights), folder/softmax.gguf (float32)

A token of a prompt of lower-case letters is one letter, for linnet and for llama.cpp. The head has zero rows for tokens
that are no text, so that greedy decoding never ends early and every token is one piece of text.
"""

from __future__ import annotations

import struct
from pathlib import Path
from string import ascii_lowercase, printable
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from torch import Tensor

    from ...models import LanguageModel, ModelConfig

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"d_model": 64, "n_layers": 2, "n_heads": 2, "d_ff": 176},
    "small": {"d_model": 256, "n_layers": 6, "n_heads": 8, "d_ff": 704},
    "medium": {"d_model": 512, "n_layers": 8, "n_heads": 16, "d_ff": 1408},
}
VOCABULARY = 512
LONGEST = 65_536  # positions of the softmax model
LINEAR = "elu"
ALIGNMENT = 32
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # types of GGUF values
NORMAL, CONTROL, UNKNOWN, BYTE = 1, 3, 2, 6  # types of GGUF tokens


def pieces() -> list[str]:
    """Return the vocabulary: 3 special pieces, 256 bytes, one for each printable character, then some longer ones."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    first += [" ", *(char for char in printable if char.isprintable() and char != " ")]
    return [*first, *(f"[{i}]" for i in range(VOCABULARY - len(first)))]


def prompt(tokens: int, seed: int) -> str:
    """Return a text that has this many tokens, with the begin token and the space that every text gets."""
    import random

    return "".join(random.Random(seed).choices(ascii_lowercase, k=max(1, tokens - 2)))


def config(size: str, mixer: str) -> ModelConfig:
    """Return the configuration of a Llama of this size, with another mixer."""
    from ...pretrained.llama import llama_config

    softmax = llama_config(
        "bench serve", **SIZES[size], vocab_size=VOCABULARY, max_length=LONGEST, norm_eps=1e-5, tie_embeddings=False,
        rotary_base=10_000.0,
    )  # fmt: skip
    return softmax if mixer == "softmax" else softmax.replace(mixer=mixer)


def random_model(size: str, mixer: str) -> LanguageModel:
    """Return a model with random weights, the same ones for each mixer that has as many."""
    import torch

    from ...models import LanguageModel, build

    torch.manual_seed(0)
    model = build(config(size, mixer))
    assert isinstance(model, LanguageModel)
    with torch.no_grad():
        assert model.head is not None
        model.head.weight[: 3 + 256] = 0
    return model.eval()


def write_models(folder: Path, size: str) -> None:
    """Write all three forms."""
    from ...data.llama_tokenizer import LlamaTokenizer

    tokenizer = LlamaTokenizer(pieces(), [0.0] * VOCABULARY)
    for name, mixer in (("linear", LINEAR), ("softmax", "softmax")):
        model = random_model(size, mixer)
        model.save_pretrained(folder / name)
        tokenizer.save(folder / name / "tokenizer.json")
        if mixer == "softmax":
            write_gguf(folder / "softmax.gguf", model)


def write_gguf(path: Path, model: LanguageModel) -> None:
    """Write a softmax model of this module as a GGUF file of version 3."""
    from ...pretrained.gguf_file import NAMES
    from ...pretrained.llama import parts

    sizes, ours = model.config, model.state_dict()
    tensors: dict[str, Tensor] = {}
    for part in parts(sizes, NAMES, interleaved=True):
        tensors |= part.split(ours[part.ours].float())
    words = [piece.replace(" ", "\u2581") for piece in pieces()]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (VOCABULARY - 259)]
    heads = sizes.n_heads
    values: list[tuple[str, int, Any]] = [
        ("general.architecture", STRING, "llama"),
        ("general.alignment", UINT32, ALIGNMENT),
        ("llama.context_length", UINT32, LONGEST),
        ("llama.embedding_length", UINT32, sizes.d_model),
        ("llama.block_count", UINT32, sizes.n_layers),
        ("llama.feed_forward_length", UINT32, sizes.hidden),
        ("llama.attention.head_count", UINT32, heads),
        ("llama.attention.head_count_kv", UINT32, heads),
        ("llama.rope.dimension_count", UINT32, sizes.d_model // heads),
        ("llama.rope.freq_base", FLOAT32, sizes.rotary_base),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT32, sizes.norm_eps),
        ("llama.vocab_size", UINT32, VOCABULARY),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, words)),
        ("tokenizer.ggml.scores", ARRAY, (FLOAT32, [0.0] * VOCABULARY)),
        ("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
        ("tokenizer.ggml.unknown_token_id", UINT32, 0),
        ("tokenizer.ggml.bos_token_id", UINT32, 1),
        ("tokenizer.ggml.eos_token_id", UINT32, 2),
    ]
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(values)))
        for name, kind, value in values:
            _text(file, name)
            file.write(struct.pack("<I", kind))
            _value(file, kind, value)
        at = 0
        for name, tensor in tensors.items():
            _text(file, name)
            shape = tuple(reversed(tensor.shape))
            file.write(struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at))  # 0: float32
            at += -(-4 * tensor.numel() // ALIGNMENT) * ALIGNMENT
        for tensor in tensors.values():
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            file.write(tensor.numpy().tobytes())


def _text(file: BinaryIO, text: str) -> None:
    data = text.encode()
    file.write(struct.pack("<Q", len(data)) + data)


def _value(file: BinaryIO, kind: int, value: Any) -> None:
    if kind == STRING:
        _text(file, value)
    elif kind == ARRAY:
        inner, items = value
        file.write(struct.pack("<IQ", inner, len(items)))
        for item in items:
            _value(file, inner, item)
    else:
        file.write(struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], value))
