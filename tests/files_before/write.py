"""Write the files of this folder with linnet 0.1 at commit c2ecee0, the last one before linnet/labs; no test runs it.

    git worktree add before c2ecee0 && cd before && python linnet/native/build.py linnet/native
    PYTHONPATH=before python tests/files_before/write.py tests/files_before

tests/test_files_before.py reads every file with the present code and compares it with expected.json, which holds what
linnet computed when the files were written. A file format may change; what was written with it must still load.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from linnet.icl import InContextRegressor
from linnet.models.icl import ICLConfig

import linnet
from linnet.data import BPETokenizer, ByteTokenizer
from linnet.data.llama_tokenizer import LlamaTokenizer
from linnet.data.token_file import tokens_of
from linnet.generate import Session
from linnet.models import ICLTransformer, ModelConfig, build

TEXT = "Call me Ishmael. Some years ago, never mind how long precisely, I went to sea. "
TOKENS = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
HYBRID = ModelConfig(
    d_model=8,
    n_layers=6,
    n_heads=2,
    vocab_size=16,
    max_length=32,
    positions="rotary",
    mixer=("conv", "elu", "softmax", "window", "gla", "rwkv7"),
    mixer_options={"window": {"window": 4}},
)
RUN = "--d-model 4 --n-layers 2 --n-heads 2 --mixer conv elu --seq-len 8 --batch-size 2 --warmup 0 --eval-rows 4"
RUN += " --eval-every 2 --save-every 2 --log-every 1 --keep 2 --autocast none --lr 0.01 --schedule constant --steps "
REPRODUCE = ["reproduce", "kernels", "ablation", "theorems", "--budget", "smoke", "--shipped", "--workers", "1"]
LABORATORY = {
    "reproduce": [*REPRODUCE, "--out"],
    "recall": "recall --mixers elu --states 400 --lengths 16 --pairs 2 --rates 0.01 --seeds 1 --steps 2 --d-model 8 "
    "--heads 1 --vocab 32 --workers 1 --out".split(),
    "study": "recall study ablation --budget smoke --workers 1 --out".split(),
    "icl": "icl table --models diag --layers 1 --noise U5 --sequences 200 --workers 1 --out".split(),
}


def command(*words: str) -> str:
    """Run one command line of linnet; return what it printed."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "linnet", *words], env=env, capture_output=True, text=True, check=True)
    return done.stdout


def write_states(out: Path) -> dict[str, Any]:
    """One file of each kind of state, and one of version 2 with a configuration and a tensor next to the layers."""
    out.mkdir()
    draw = torch.Generator().manual_seed(1)

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw)

    mask = torch.tensor([[True, True, False], [True, True, True]])
    states = {
        "linear": linnet.State(rand(2, 2, 3, 4), rand(2, 2, 3)),
        "softmax": linnet.KVState(rand(2, 3, 2, 4), rand(2, 3, 2, 4), mask),
        "window": linnet.WindowState(rand(2, 3, 2, 4), rand(2, 3, 2, 4), mask),
        "conv": linnet.ConvState(rand(2, 3, 5)),
        "matrix": linnet.MatrixState(rand(2, 2, 3, 4), rand(2, 1, 5)),
    }
    for name, state in states.items():
        state.save(out / f"{name}.safetensors", tokens=3, model="m", tokenizer="t")
    extra = {"position": torch.tensor([3, 2])}
    linnet.save_states(
        out / "all.safetensors", list(states.values()), tokens=3, config={"d_model": 8}, extras=extra, model="m"
    )
    return {name: {k: None if x is None else x.tolist() for k, x in s._asdict().items()} for name, s in states.items()}


def write_model(out: Path) -> dict[str, Any]:
    """A hybrid of six mixers, its state after five tokens, a session, and its Hugging Face folder."""
    torch.manual_seed(3)
    model = build(HYBRID.but(init_std=0.3)).eval()
    model.save_pretrained(out / "model")
    with torch.no_grad():
        logits, state = model(torch.tensor(TOKENS))
        after, _ = model(torch.tensor([[11], [12]]), state)
    state.save(out / "model-state.safetensors", model=model, tokens=TOKENS, answer=logits[:, -1])
    with Session(model) as session:
        session.feed(TOKENS[0])
        session.save(out / "session.safetensors")
        chosen = [session.sample() for _ in range(4)]
    write_hf(out / "hf")
    return {
        "tokens": TOKENS,
        "logits": logits.tolist(),
        "next_logits": after[:, -1].tolist(),
        "fingerprint": model.fingerprint(),
        "config": model.config.to_dict(),
        "greedy": chosen,
    }


def write_hf(out: Path) -> None:
    """A converted model with the byte tokenizer; the weights of the model are those of a seed."""
    import linnet.hf

    torch.manual_seed(4)
    model = build(HYBRID.but(vocab_size=256, n_layers=2, mixer=("conv", "elu"), mixer_options={})).eval()
    wrapped, words = linnet.hf.to_hf(model, ByteTokenizer())
    wrapped.save_pretrained(out)
    words.save_pretrained(out)


def hf_expected(out: Path) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words, model = AutoTokenizer.from_pretrained(out), AutoModelForCausalLM.from_pretrained(out)
    ids = words("Call me", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(ids).logits[0, -1]
    return {"ids": ids.tolist(), "logits": logits.tolist()}


def write_tokenizers(out: Path) -> dict[str, Any]:
    out.mkdir()
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *" aceghilmorsw", "me", "ll"]
    made = {
        "byte": ByteTokenizer(),
        "bpe": BPETokenizer.train([TEXT * 3], 270),
        "llama": LlamaTokenizer(pieces, [-float(i) for i in range(len(pieces))]),
    }
    found = {}
    for name, tokenizer in made.items():
        tokenizer.save(out / f"{name}.json")
        ids = tokenizer.encode(TEXT + "\u00e9")
        found[name] = {"fingerprint": tokenizer.fingerprint, "ids": ids, "vocab_size": tokenizer.vocab_size}
    (out / "book.txt").write_text(TEXT)
    os.utime(out / "book.txt", (1, 1))
    tokens_of(out / "book.txt", made["bpe"], out)
    return found


def write_icl(out: Path) -> dict[str, Any]:
    out.mkdir()
    found: dict[str, Any] = {}
    for kind in ("diag", "full"):
        model = ICLTransformer(ICLConfig(kind=kind, layers=2, d=3, made={"seed": 0}), torch.Generator().manual_seed(0))
        model.save(out / f"{kind}.safetensors")
        found[kind] = {name: x.tolist() for name, x in model.state_dict().items()}
    draw = np.random.default_rng(2)
    x = draw.normal(size=(30, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.1 * draw.normal(size=30)
    regressor = InContextRegressor(forget_factor=0.9).fit(x, y)
    regressor.save(out / "state.safetensors")
    return found | {"x": x[:3].tolist(), "predicted": regressor.predict(x[:3]).tolist(), "count": regressor.count_}


def write_run(out: Path) -> dict[str, Any]:
    """A run of six steps with two checkpoints, and the losses of the same run continued to ten."""
    command("train", "text", "--out", str(out), *RUN.split(), "6")
    longer = out.with_name("longer")
    shutil.copytree(out, longer)
    command("train", "resume", str(longer), "--steps", "10")
    lines = [json.loads(line) for line in (longer / "log.jsonl").read_text().splitlines()]
    shutil.rmtree(longer)
    next(out.glob("*.tokens")).unlink()  # of the shipped text: a cache of a megabyte, built again when it is missing
    model = linnet.load(out).model
    with torch.no_grad():
        logits, _ = model(torch.tensor([[67, 97, 108]]))
    steps = [(line["step"], line["loss"]) for line in lines if line["kind"] == "step"]
    return {"logits": logits[0, -1].tolist(), "folder": linnet.load(out).folder.name, "losses": steps}


def write_laboratory(out: Path) -> dict[str, Any]:
    """The folders of reproduce, recall, a study and the in-context table, and the documents made of them."""
    found = {}
    for name, words in LABORATORY.items():
        command(*words, str(out / name))
    found["reproduce"] = json.loads(command("report", str(out / "reproduce"), "--json"))
    (out / "reproduce" / "report.html").unlink()
    found["recall"] = json.loads(command("recall", "--show", str(out / "recall"), "--json"))
    found["study"] = json.loads(command("recall", "study", "ablation", "--show", str(out / "study"), "--json"))
    found["icl"] = json.loads(command("icl", "table", "--show", str(out / "icl"), "--json"))
    return found


def main(out: Path) -> None:
    torch.set_num_threads(1)
    expected = {
        "states": write_states(out / "states"),
        "model": write_model(out),
        "hf": hf_expected(out / "hf"),
        "tokenizers": write_tokenizers(out / "tokenizers"),
        "icl": write_icl(out / "icl"),
        "run": write_run(out / "run"),
        "labs": write_laboratory(out / "labs"),
    }
    (out / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
