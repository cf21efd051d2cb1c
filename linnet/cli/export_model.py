"""`linnet export MODEL --out DIR`: write a language model as a folder that transformers loads, the reverse of import.

The folder has config.json and model.safetensors (float32), and a byte-level BPE tokenizer as tokenizer.json. It appears
whole or not at all.
"""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from ..atomic import check_new
from .loading import load

EPILOG = """\
Architectures

    llama               softmax attention
    mamba, falcon_mamba, mamba2
    bamba, granitemoehybrid
                        Mamba-2 and softmax attention in one model
    qwen3_next, qwen3_5_text
                        gated DeltaNet and softmax attention in one model
    rwkv, rwkv7         RWKV-4 and RWKV-7

A model that none of them computes exactly is refused, with the option that
differs. Imported models go back with the same logits.

Examples

    linnet import mamba2-130m/ --out models/mamba2
    linnet export models/mamba2 --out exported
    linnet export models/mine --out exported --model-type qwen3_5_text
"""

export_model = App(name="export", help_format="plaintext", help_epilogue=EPILOG)


@export_model.default
def run_export(model: Path, *, out: Path, model_type: str | None = None, checkpoint: str | None = None) -> None:
    """Export a language model to a folder that Hugging Face transformers loads with equal logits.

    Parameters
    ----------
    model
        A folder written by `linnet train`, `linnet import` or save_pretrained.
    out
        The folder to write; it must not exist yet, or must be empty.
    model_type
        The architecture, where several have the same layers. The first that fits unless given.
    checkpoint
        Of a run: best (by held-out loss; the default), newest, or a step.
    """
    check_new(out)
    from ..data.tokenizer import FILE
    from ..pretrained import export_pretrained

    loaded = load(model, checkpoint)
    chosen = export_pretrained(loaded.model, out, model_type, loaded.tokenizer)
    print(f"{out}: model_type {chosen}, {loaded.model.parameter_count():,} parameters, float32")
    if loaded.tokenizer is not None and not (out / FILE).exists():
        print(f"the tokenizer ({loaded.tokenizer.name}) has no form that transformers reads, and was left out")
    print(f'next: transformers.AutoModelForCausalLM.from_pretrained("{out}")')
