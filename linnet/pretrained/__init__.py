"""Pretrained softmax models of the Llama type, from the files they are shared in, as a LanguageModel of ours.

    model, tokenizer = load_llama("stories260K.bin", tokenizer="tok512.bin")

A Hugging Face folder (huggingface.py), a llama2.c .bin or its arrays as .npz (llama2c.py), a GGUF file (gguf_file.py):
told apart by their first bytes, not by their names. What they share, and how it becomes ours, is in llama.py.
"""

from __future__ import annotations

from pathlib import Path

from ..data.files import PathLike
from ..data.llama_tokenizer import LlamaTokenizer
from ..data.tokenizer import Tokenizer, load_tokenizer
from ..models.language import LanguageModel
from . import gguf_file, huggingface, llama2c
from .llama import Weights, assemble

ACCEPTED = "a Hugging Face folder, a llama2.c .bin, an .npz of its arrays, or a GGUF file"


def load_llama(path: PathLike, tokenizer: PathLike | None = None) -> tuple[LanguageModel, Tokenizer | None]:
    """The model of a file or folder in float32, and the tokenizer: the one given, else what lies with the model."""
    path = Path(path)
    weights = _opened(path)
    model = assemble(weights)
    coder = weights.tokenizer() if tokenizer is None else read_tokenizer(tokenizer)
    if coder is not None and coder.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer {tokenizer or path} has {coder.vocab_size} tokens, but {path} is a model of "
            f"{model.config.vocab_size}; give the tokenizer that it was trained with"
        )
    return model, coder


def read_tokenizer(path: PathLike) -> Tokenizer:
    """llama2.c's tokenizer.bin (may be .gz), a tokenizer.json, or a folder that holds one."""
    path = Path(path)
    if path.is_dir():
        return load_tokenizer(path)
    start = _start(path, 64, "a llama2.c tokenizer.bin, or a tokenizer.json")
    return load_tokenizer(path) if start.lstrip().startswith(b"{") else LlamaTokenizer.read(path)


def _opened(path: Path) -> Weights:
    if path.is_dir():
        return huggingface.read(path)
    start = _start(path, 8, ACCEPTED)
    if start[:4] == b"GGUF":
        return gguf_file.read(path)
    if start[:4] == b"PK\x03\x04":
        return llama2c.read_npz(path)
    if path.suffix == ".safetensors":
        raise ValueError(f"{path} has weights alone; accepted: the folder that also has its config.json")
    return llama2c.read_bin(path)


def _start(path: Path, size: int, accepted: str) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; accepted: {accepted}")
    with open(path, "rb") as file:
        return file.read(size)
