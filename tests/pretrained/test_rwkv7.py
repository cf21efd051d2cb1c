"""RWKV-7 from a file in the layout of flash-linear-attention, against the paper's equations in float64, token by token.

The reference is written from section 3 of arXiv:2503.14456, in numpy and with the state as the paper has it (values by
keys), so that it shares neither code nor layout with the layers. It has not been compared with that library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from linnet.generate import open_engine
from linnet.native.library import library
from linnet.pretrained import export_pretrained, load_pretrained

E, D, F, N, LAYERS = 24, 8, 40, 50, 3
RANKS = {"w": 5, "a": 3, "g": 7, "v": 2}
EPS, CLOSE = 1e-3, 2e-5  # of the norms, large enough to matter; of the largest logit
CONFIG: dict[str, Any] = {
    "model_type": "rwkv7", "hidden_size": E, "head_dim": D, "num_hidden_layers": LAYERS, "intermediate_size": F,
    "decay_low_rank_dim": 5, "a_low_rank_dim": 3, "gate_low_rank_dim": 7, "v_low_rank_dim": 2, "vocab_size": N,
    "norm_eps": EPS, "hidden_act": "sqrelu", "attn": None, "fuse_norm": True, "value_dim": [E] * LAYERS,
}  # fmt: skip


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    draw = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"model.embeddings.weight": (N, E), "lm_head.weight": (N, E)}
    norms = ["model.norm", "model.layers.0.pre_norm"]
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        norms += [layer + name for name in ("attn_norm", "ffn_norm", "attn.g_norm")]
        shapes |= {f"{layer}attn.x_{name}": (1, 1, E) for name in "rwkvag"}
        shapes |= {f"{layer}attn.{name}_proj.weight": (E, E) for name in "rkvo"}
        shapes |= {f"{layer}attn.{name}": (E,) for name in ("k_k", "k_a")} | {layer + "attn.r_k": (E // D, D)}
        for name, rank in RANKS.items():
            lora = f"{layer}attn.{name}_lora.lora."
            if name != "v" or i:
                shapes |= {lora + "0.weight": (rank, E), lora + "2.weight": (E, rank)}
                shapes |= {lora + "2.bias": (E,)} if name != "g" else {}
        shapes |= {layer + "ffn.x_k": (E,), layer + "ffn.key.weight": (F, E), layer + "ffn.value.weight": (E, F)}
    shapes |= {f"{norm}.{part}": (E,) for norm in norms for part in ("weight", "bias")}
    return {
        name: torch.tensor(0.5 * draw.standard_normal(shape), dtype=torch.float32) for name, shape in shapes.items()
    }


def folder_of(path: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG | changes))
    save_file(tensors, path / "model.safetensors")
    return path


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def reference(tensors: dict[str, torch.Tensor], tokens: list[int]) -> Any:  # [T,N]
    w = {name: x.double().numpy() for name, x in tensors.items()}
    state = [(np.zeros(E), np.zeros(E), np.zeros((E // D, D, D))) for _ in range(LAYERS)]

    def norm(name: str, x: Any, groups: int = 1, eps: float = EPS) -> Any:
        parts = x.reshape(groups, -1)
        parts = (parts - parts.mean(1, keepdims=True)) / np.sqrt(parts.var(1, keepdims=True) + eps)
        return parts.reshape(-1) * w[name + ".weight"] + w[name + ".bias"]

    def lora(name: str, x: Any, middle: Any = lambda x: x) -> Any:
        return w[name + "2.weight"] @ middle(w[name + "0.weight"] @ x) + w.get(name + "2.bias", 0.0)

    outs = []
    for token in tokens:
        x = norm("model.layers.0.pre_norm", w["model.embeddings.weight"][token])
        first = None
        for i in range(LAYERS):
            at = f"model.layers.{i}.attn."
            before, before_ffn, S = state[i]
            n = norm(f"model.layers.{i}.attn_norm", x)
            m = {name: n + (before - n) * w[at + "x_" + name].reshape(-1) for name in "rwkvag"}
            r, k, v = (w[f"{at}{name}_proj.weight"] @ m[name] for name in "rkv")
            decay = np.exp(-np.exp(-0.5) * sigmoid(lora(at + "w_lora.lora.", m["w"], np.tanh)))
            rate = sigmoid(lora(at + "a_lora.lora.", m["a"]))
            gate = lora(at + "g_lora.lora.", m["g"], sigmoid)
            first = v if first is None else first
            if i:
                v = v + (first - v) * sigmoid(lora(at + "v_lora.lora.", m["v"]))
            removed = (k * w[at + "k_k"]).reshape(-1, D)
            removed = removed / np.linalg.norm(removed, axis=1, keepdims=True)
            k = k * (1 + (rate - 1) * w[at + "k_a"])
            r, k, v, decay, rate = (y.reshape(-1, D) for y in (r, k, v, decay, rate))
            new, out = np.empty_like(S), np.empty_like(v)
            for h in range(E // D):  # S [value, key]
                transition = np.diag(decay[h]) - np.outer(removed[h], removed[h] * rate[h])
                new[h] = S[h] @ transition + np.outer(v[h], k[h])
                out[h] = new[h] @ r[h]
            y = norm(at + "g_norm", out.reshape(-1), E // D, D * EPS).reshape(-1, D)
            y = y + (r * k * w[at + "r_k"]).sum(1, keepdims=True) * v
            x = x + w[at + "o_proj.weight"] @ (y.reshape(-1) * gate)
            c, ffn = norm(f"model.layers.{i}.ffn_norm", x), f"model.layers.{i}.ffn."
            inner = w[ffn + "key.weight"] @ (c + (before_ffn - c) * w[ffn + "x_k"])
            x = x + w[ffn + "value.weight"] @ np.maximum(inner, 0) ** 2
            state[i] = n, c, new
        outs.append(w["lm_head.weight"] @ norm("model.norm", x))
    return np.stack(outs)


def test_every_form_is_the_papers_equations(tmp_path: Path) -> None:
    tensors = weights()
    model, _ = load_pretrained(folder_of(tmp_path / "m", tensors))
    tokens = torch.randint(0, N, (1, 37), generator=torch.Generator().manual_seed(2))
    want = torch.from_numpy(reference(tensors, tokens[0].tolist()))
    found = {}
    with torch.no_grad():
        found["whole"] = model(tokens)[0][0]
        head, state = model(tokens[:, :11])
        found["split"] = torch.cat([head[0], model(tokens[:, 11:], state)[0][0]])
        steps, state = [], None
        for token in tokens.unbind(1):
            out, state = model.step(token, state)
            steps.append(out[0])
        found["steps"] = torch.stack(steps)
    if library() is not None:
        engine = open_engine(model, backend="native")
        rows = engine.add(rows=1)
        found["native"] = torch.stack([engine.step(token, rows)[0] for token in tokens.unbind(1)])
    for name, logits in found.items():
        assert float((logits - want).abs().max() / want.abs().max()) < CLOSE, name
        assert torch.equal(logits.argmax(-1), want.argmax(-1)), name


def test_it_is_exported_as_it_came(tmp_path: Path) -> None:
    tensors = weights()
    model, _ = load_pretrained(folder_of(tmp_path / "m", tensors))
    assert export_pretrained(model, tmp_path / "out") == "rwkv7"
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == tensors.keys()
    assert all(torch.equal(written[name], value) for name, value in tensors.items())
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {name: fields[name] for name in fields.keys() & CONFIG.keys()}.items() <= CONFIG.items()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"attn": {"layers": [1], "num_heads": 2}}, "attn is"),
        ({"value_dim": [E, E, 2 * E]}, "value_dim is"),
        ({"norm_bias": False}, "norm_bias is False"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"v_low_rank_dim": None}, "has no v_low_rank_dim"),
        ({"v_low_rank_dim": 3}, "v_lora"),
        ({"norm_first": False}, "pre_norm"),
        ({"experts": 4}, "experts is 4"),
    ],
)
def test_what_is_not_this_model_is_refused_by_name(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        load_pretrained(folder_of(tmp_path / "m", weights(), **changes))
