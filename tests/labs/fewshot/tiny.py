"""Files as those of the folder `fewshot`, with a few invented items of every kind, and models to ask."""

from __future__ import annotations

import bz2
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import torch

from linnet.data import ByteTokenizer, Tokenizer
from linnet.data.llama_tokenizer import LlamaTokenizer
from linnet.models import LanguageModel, ModelConfig

SIZE = 40  # items of a set
NAMES = ["Ann", "Bo", "Cy", "Di"]
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), " ", *"abcdefghijklmnopqrstuvwxyz", " a", "th"]
WORDS = LlamaTokenizer(PIECES, [0.0] * len(PIECES))


def write_sets(folder: Path, size: int = SIZE) -> Path:
    """The files in a folder `fewshot` under `folder`, which can be LINNET_DATA."""
    place = folder / "fewshot"
    place.mkdir()
    goals = [{"goal": f"open box {i}", "sol1": f"pull lid {i}", "sol2": f"push the table {i}"} for i in range(size)]
    _gz(place / "piqa_valid.jsonl.gz", _lines(goals))
    _gz(place / "piqa_valid-labels.lst.gz", "".join(f"{i % 2}\n" for i in range(size)))
    _gz(
        place / "lambada_test_openai.jsonl.gz",
        _lines([{"text": f"it is {i}.\n\nso we say {i % 7}"} for i in range(size)]),
    )
    asked = [_instruction(f"what is {i}?", "Answer", NAMES[: 3 + i % 2], i % 3) for i in range(size)]
    for name in ("arc_easy", "arc_challenge", "openbookqa"):
        _gz(place / f"{name}_llmadapters.json.gz", json.dumps(asked))
    blanks = [_instruction(f"Ann saw Bo {i} so _ waved.", "Option", NAMES[:2], i % 2) for i in range(size)]
    _gz(place / "winogrande_llmadapters.json.gz", json.dumps(blanks))
    endings = "".join(f"A man {i}: he\n{i % 4}\nsits.\nruns away.\nsings.\nwaits.\n" for i in range(size))
    (place / "hellaswag_val_full.txt.bz2").write_bytes(bz2.compress(endings.encode()))
    for file, path in (("superglue_val_and_small_train", "{}/val"), ("fewglue_32shot_train", "FewGLUE/{}/train")):
        with zipfile.ZipFile(place / f"{file}.zip", "w") as archive:
            for name, row in _rows().items():
                archive.writestr(f"{path.format(name)}.jsonl", _lines([{**row, "idx": i} for i in range(size)]))
    return folder


def language_model(mixer: str = "elu", tokenizer: Tokenizer | None = None, **fields: Any) -> LanguageModel:
    """Random weights, large enough that no two choices are alike."""
    torch.manual_seed(0)
    size = (tokenizer or ByteTokenizer()).vocab_size
    shape = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.3, "vocab_size": size, "max_length": 1024}
    return LanguageModel(ModelConfig(mixer=mixer, **(shape | fields))).eval()


def _instruction(text: str, kind: str, options: list[str], right: int) -> dict[str, str]:
    listed = " ".join(f"{kind}{i + 1}: {option}" for i, option in enumerate(options))
    form = "/".join(f"{kind.lower()}{i + 1}" for i in range(len(options)))
    gap = "\n\n" if kind == "Answer" else " "
    instruction = f"Please choose: {text}\n\n{listed}{gap}Answer format: {form}"
    return {"instruction": instruction, "answer": f"{kind.lower()}{right + 1}"}


def _rows() -> dict[str, dict[str, Any]]:
    answers = [{"text": "one", "label": 1}, {"text": "two", "label": 0}]
    return {
        "BoolQ": {"passage": "Fish swim.", "question": "do fish swim", "label": True},
        "RTE": {"premise": "It rains.", "hypothesis": "It is wet.", "label": "not_entailment"},
        "CB": {"premise": "Maybe.", "hypothesis": "it is so", "label": "neutral"},
        "COPA": {"premise": "He fell.", "choice1": "It hurt.", "choice2": "It sang.", "question": "effect", "label": 0},
        "WiC": {"sentence1": "A bank.", "sentence2": "The banks.", "start1": 2, "end1": 6, "label": False},
        "WSC": {
            "text": 'it said "take it," and left it',
            "target": {"span1_text": "the cup", "span2_text": "it", "span2_index": 2},
            "label": True,
        },
        "MultiRC": {"passage": {"text": " Count. ", "questions": [{"question": "Which?", "answers": answers}]}},
    }


def _lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _gz(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))
