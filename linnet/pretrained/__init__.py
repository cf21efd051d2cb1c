"""Load published models into a LanguageModel that computes the same logits.

    model, tokenizer = load_pretrained("mamba2-130m/")
    model, tokenizer = load_pretrained("stories260K.bin", tokenizer="tok512.bin")
    export_pretrained(model, "folder/")                the reverse: a folder that transformers loads

A Hugging Face folder of an architecture that huggingface.py lists, a llama2.c .bin or its arrays as .npz (llama2c.py),
a GGUF file (gguf_file.py): detected from the first bytes, not from the names. architecture.py says how the weights of a
file become ours, and one file for each family describes it.
"""

from __future__ import annotations

from pathlib import Path

from ..data.bpe import BPETokenizer
from ..data.files import PathLike
from ..data.llama_tokenizer import LlamaTokenizer
from ..data.tokenizer import Tokenizer, load_tokenizer
from ..models.language import LanguageModel
from . import gguf_file, huggingface, llama2c
from .architecture import Weights, assemble
from .export import export_pretrained as export_pretrained

ACCEPTED = "a Hugging Face folder, a llama2.c .bin, an .npz of its arrays, or a GGUF file"


def load_pretrained(path: PathLike, tokenizer: PathLike | None = None) -> tuple[LanguageModel, Tokenizer | None]:
    """Return the model of a file or folder in float32, and the tokenizer given or stored with it.

    A stored tokenizer may have fewer tokens than the model, whose vocabulary was rounded up; the rest get names.
    """
    path = Path(path)
    weights = _open(path)
    model = assemble(weights)
    loaded = weights.tokenizer() if tokenizer is None else read_tokenizer(tokenizer)
    if tokenizer is None and isinstance(loaded, BPETokenizer):
        loaded = loaded.padded(model.config.vocab_size)
    if loaded is not None and loaded.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer {tokenizer or path} has {loaded.vocab_size} tokens, but {path} is a model of "
            f"{model.config.vocab_size}; pass the tokenizer that it was trained with"
        )
    return model, loaded


load_llama = load_pretrained  # its name when Llama was the only family


def read_tokenizer(path: PathLike) -> Tokenizer:
    """Read llama2.c's tokenizer.bin (or .gz), a tokenizer.json, or a folder that holds one."""
    path = Path(path)
    if path.is_dir():
        return load_tokenizer(path)
    start = _start(path, 64, "a llama2.c tokenizer.bin, or a tokenizer.json")
    return load_tokenizer(path) if start.lstrip().startswith(b"{") else LlamaTokenizer.read(path)


def _open(path: Path) -> Weights:
    if path.is_dir():
        return huggingface.read(path)
    start = _start(path, 8, ACCEPTED)
    if start[:4] == b"GGUF":
        return gguf_file.read(path)
    if start[:4] == b"PK\x03\x04":
        return llama2c.read_npz(path)
    if path.suffix == ".safetensors":
        raise ValueError(f"{path} has only weights; accepted: the folder that also has its config.json")
    return llama2c.read_bin(path)


def _start(path: Path, size: int, accepted: str) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; accepted: {accepted}")
    with open(path, "rb") as file:
        return file.read(size)
