"""The Llama forward pass in plain NumPy float64, the reference for the readers.

parts: tok_embeddings [N,E], norm [E], output [N,E], and stacked by layer attention_norm, wq, wk, wv, wo, ffn_norm,
w1, w2, w3; matrices [out,in]. Rotary rotates the pairs (2i, 2i + 1) of a head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Sizes(NamedTuple):
    """In the order of llama2.c's header."""

    dim: int = 24
    hidden: int = 40
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    vocab: int = 300
    longest: int = 32


def random_parts(sizes: Sizes, tied: bool = True) -> dict[str, Array]:
    draw = np.random.default_rng(0)
    E, F, L, N = sizes.dim, sizes.hidden, sizes.layers, sizes.vocab
    shared = E // sizes.heads * sizes.kv_heads
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings": (N, E), "attention_norm": (L, E), "wq": (L, E, E)}
    shapes |= {"wk": (L, shared, E), "wv": (L, shared, E), "wo": (L, E, E), "ffn_norm": (L, E)}
    shapes |= {"w1": (L, F, E), "w2": (L, E, F), "w3": (L, F, E), "norm": (E,)}
    shapes |= {} if tied else {"output": (N, E)}
    return {name: (draw.normal(size=shape) * 0.4).astype(np.float32) for name, shape in shapes.items()}


def logits(
    parts: dict[str, Array], tokens: list[int], heads: int, kv_heads: int, eps: float = 1e-5, base: float = 10000.0
) -> Array:
    """[T] -> [T,N]"""
    p = {name: array.astype(np.float64) for name, array in parts.items()}
    T, D = len(tokens), p["wq"].shape[1] // heads
    turn = np.arange(T)[:, None] * base ** (-np.arange(0, D, 2) / D)  # [T,D/2]
    hidden = np.triu(np.full((T, T), -np.inf), 1)
    x = p["tok_embeddings"][tokens]
    for i in range(len(p["wq"])):
        n = _rms(x, p["attention_norm"][i], eps)
        q = _turned((n @ p["wq"][i].T).reshape(T, heads, D), turn)
        k = _turned((n @ p["wk"][i].T).reshape(T, kv_heads, D), turn)
        v = (n @ p["wv"][i].T).reshape(T, kv_heads, D)
        out = []
        for h in range(heads):
            shared = h // (heads // kv_heads)
            score = np.exp(q[:, h] @ k[:, shared].T / np.sqrt(D) + hidden)
            out.append(score / score.sum(1, keepdims=True) @ v[:, shared])
        x = x + np.concatenate(out, axis=1) @ p["wo"][i].T
        n = _rms(x, p["ffn_norm"][i], eps)
        gate = n @ p["w1"][i].T
        x = x + (gate / (1 + np.exp(-gate)) * (n @ p["w3"][i].T)) @ p["w2"][i].T
    return _rms(x, p["norm"], eps) @ p.get("output", p["tok_embeddings"]).T


def _rms(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def _turned(x: Array, turn: Array) -> Array:  # [T,H,D]
    out, cos, sin = np.empty_like(x), np.cos(turn)[:, None], np.sin(turn)[:, None]
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def half_split(rows: Array, heads: int) -> Array:
    """Reorder rows [H D, E] of interleaved pairs as Hugging Face stores them."""
    D = len(rows) // heads
    order = [h * D + d for h in range(heads) for d in (*range(0, D, 2), *range(1, D, 2))]
    return rows[order]
