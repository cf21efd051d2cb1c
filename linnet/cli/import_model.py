"""`linnet import PATH --out DIR`: convert a pretrained Llama-type model (softmax attention) into a linnet folder.

The folder has config.json, model.safetensors (float32) and tokenizer.json, and is created atomically: everything is
read and checked first, written to a temporary folder, then renamed. Files that another command has put into OUT in the
meantime are left alone.
"""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from cyclopts import App

EPILOG = """\
Accepted formats

    a Hugging Face folder    config.json with model_type llama, and
                             model.safetensors or its shards with their index
    a llama2.c .bin          the legacy format; or its arrays as .npz
    a GGUF file              plain, or quantised (which needs the extra gguf)

Weights are read as safetensors, numpy arrays or plain numbers, never pickled.

Examples

    linnet import stories260K.bin --tokenizer tok512.bin --out models/stories
    linnet generate text models/stories --prompt "Once upon a time"
    linnet import TinyLlama-1.1B/ --out models/tinyllama
    linnet import model-q8_0.gguf --out models/mine
"""

import_model = App(name="import", help_format="plaintext", help_epilogue=EPILOG)


@import_model.default
def run_import(path: Path, *, out: Path, tokenizer: Path | None = None) -> None:
    """Import a pretrained Llama-type model (softmax attention), to run it or to train it further.

    Parameters
    ----------
    path
        A Hugging Face folder, a llama2.c .bin or .npz, or a GGUF file.
    out
        The folder to write; it must not exist yet, or must be empty.
    tokenizer
        llama2.c's tokenizer.bin (or .gz) or a tokenizer.json. Hugging Face folders and GGUF files have their own.
    """
    _check_out(out)
    from ..pretrained import load_llama

    model, coder = load_llama(path, tokenizer)
    if coder is None:
        raise ValueError(f"{path} has no tokenizer; add --tokenizer: llama2.c's tokenizer.bin, or a tokenizer.json")
    _write(out, model, coder)
    print(_summary(out, model, coder))


def _check_out(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out is {out}, which exists; accepted: a folder that does not exist yet, or is empty")


def _write(out: Path, model: Any, coder: Any) -> None:
    """Write all files to a temporary folder next to `out`, then rename it."""
    missing = [folder for folder in out.absolute().parents if not folder.exists()]
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(temporary)
        coder.save(temporary)
        try:
            temporary.rename(out)
        except OSError:
            _check_out(out)  # raises if another command has filled it in the meantime
            raise
    except BaseException:  # interrupts included: no temporary folder stays behind
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in missing:
            with suppress(OSError):  # not empty
                folder.rmdir()
        raise


def _summary(out: Path, model: Any, coder: Any) -> str:
    c = model.config
    heads = f"{c.n_heads} heads" + ("" if c.n_kv_heads in (None, c.n_heads) else f" ({c.n_kv_heads} for keys)")
    shape = f"{c.n_layers} layers, width {c.d_model}, {heads}, trained on up to {c.max_length:,} tokens"
    return (
        f"{out}: {model.parameter_count():,} parameters; {shape}; {coder.vocab_size:,} tokens ({coder.name})\n"
        f"model {model.fingerprint()}, tokenizer {coder.fingerprint}\n"
        f'next: linnet generate text {out} --prompt "Once upon a time"'
    )
