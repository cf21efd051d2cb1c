"""`linnet import PATH --out DIR`: convert a pretrained model of a known architecture into a linnet folder.

The folder has config.json, model.safetensors (float32) and tokenizer.json, and is created atomically: everything is
read and checked first, written to a temporary folder, then renamed. Files that another command has put into OUT in the
meantime are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from ..atomic import check_new, new_folder

EPILOG = """\
Accepted formats

    a Hugging Face folder    config.json with one of the model_types below, and
                             model.safetensors or its shards with their index
    a llama2.c .bin          the legacy format; or its arrays as .npz
    a GGUF file              of a Llama, plain or quantised (which needs the
                             extra gguf)

    llama                    softmax attention
    mamba, falcon_mamba, mamba2
    bamba, granitemoehybrid  Mamba-2 and softmax attention
    qwen3_next, qwen3_5_text gated DeltaNet and softmax attention
    rwkv, rwkv7              RWKV-4, and RWKV-7 as flash-linear-attention has it

Weights are read as safetensors, numpy arrays or plain numbers, never pickled.
Models with experts are refused, as is any field that linnet does not know.
`linnet export` writes a model back.

Examples

    linnet import stories260K.bin --tokenizer tok512.bin --out models/stories
    linnet generate text models/stories --prompt "Once upon a time"
    linnet import TinyLlama-1.1B/ --out models/tinyllama
    linnet import mamba2-130m/ --out models/mamba2
    linnet import model-q8_0.gguf --out models/mine
"""

import_model = App(name="import", help_format="plaintext", help_epilogue=EPILOG)


@import_model.default
def run_import(path: Path, *, out: Path, tokenizer: Path | None = None) -> None:
    """Import a pretrained model, to run it or to train it further.

    Parameters
    ----------
    path
        A Hugging Face folder, a llama2.c .bin or .npz, or a GGUF file.
    out
        The folder to write; it must not exist yet, or must be empty.
    tokenizer
        llama2.c's tokenizer.bin (or .gz) or a tokenizer.json. Hugging Face folders and GGUF files have their own.
    """
    check_new(out)
    from ..pretrained import load_pretrained

    model, coder = load_pretrained(path, tokenizer)
    if coder is None:
        raise ValueError(f"{path} has no tokenizer; add --tokenizer: llama2.c's tokenizer.bin, or a tokenizer.json")
    with new_folder(out) as new:
        model.save_pretrained(new)
        coder.save(new)
    print(_summary(out, model, coder))


def _summary(out: Path, model: Any, coder: Any) -> str:
    c = model.config
    heads = f"{c.n_heads} heads" + ("" if c.n_kv_heads in (None, c.n_heads) else f" ({c.n_kv_heads} for keys)")
    shape = f"{c.n_layers} layers, width {c.d_model}, {heads}, trained on up to {c.max_length:,} tokens"
    if set(c.mixers) != {"softmax"}:  # heads and lengths are those of attention
        kinds = ", ".join(f"{c.mixers.count(mixer)} {mixer}" for mixer in dict.fromkeys(c.mixers))
        shape = f"{c.n_layers} layers ({kinds}), width {c.d_model}"
    return (
        f"{out}: {model.parameter_count():,} parameters; {shape}; {coder.vocab_size:,} tokens ({coder.name})\n"
        f"model {model.fingerprint()}, tokenizer {coder.fingerprint}\n"
        f'next: linnet generate text {out} --prompt "Once upon a time"'
    )
