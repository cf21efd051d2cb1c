"""The competitors of one rule in `linnet bench ops --family gated`, each with the same inputs and results.

    linnet          the op, native           linnet torch     the op on torch, in chunks
    torch loop      the op on torch, token by token: the recurrence as written
    transformers    its torch function of the same recurrence, in the layout that it takes
    elu + 1         linnet's native linear attention with as many heads and numbers: the yardstick

transformers names and scales some inputs differently. `enter` prepares them before the clock starts, and `leave` takes
its results back, so that they are compared with the same truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ...native import library
from ...ops import linear_attention
from .gated_rules import RULES, Named
from .sizes import BOTH, Case

OURS, OURS_TORCH, LOOP, TRANSFORMERS, YARDSTICK = "linnet", "linnet torch", "torch loop", "transformers", "elu + 1"
Results = tuple[Tensor, ...]


def _same(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Peer:
    name: str
    about: str
    run: Callable[..., Tensor] | None  # None: it cannot run here, for the reason in `about`
    enter: Callable[[Named], Named] = _same  # the rule's inputs -> its own
    leave: Callable[[Named, Results], Results] = lambda inputs, results: results
    bytes: Callable[[Case, str], float] | None = None  # of a call, if they exceed a few times the inputs


def peers(rule: str) -> list[Peer]:
    """Return linnet first, and the function of transformers where it has one for this rule."""
    op = RULES[rule].op

    def ours(name: str, form: str, backend: str, about: str) -> Peer:
        def run(**inputs: Tensor) -> Tensor:
            return op(**inputs, form=form, backend=backend)[0]

        return Peer(name, about, run)

    native = ours(OURS, "auto", "native", "the op, backend='native'")
    if library.library() is None:
        native = Peer(OURS, library.reason() or "no native library", None)
    return [
        native,
        ours(OURS_TORCH, "auto", "torch", "the op, backend='torch', in chunks"),
        ours(LOOP, "recurrent", "torch", "the op, backend='torch', form='recurrent': token by token"),
        *([transformers(rule)] if rule in THEIRS else []),
    ]


def yardstick() -> Peer:
    """Return elu + 1 on q, k, v of the same sizes, by its native kernel, or on torch where there is none."""
    backend = "native" if library.library() is not None else "torch"
    run = partial(linear_attention, feature_map="elu", backend=backend)
    return Peer(YARDSTICK, f"linnet.linear_attention, backend={backend!r}", lambda q, k, v: run(q, k, v)[0])


def transformers(rule: str) -> Peer:
    """Return the function of the installed transformers, or why there is none."""
    if find_spec("transformers") is None:
        return Peer(TRANSFORMERS, "transformers is not installed; use pip install 'linnet[hf]'", None)
    family, name, make = THEIRS[rule]
    from transformers import __version__

    function = getattr(import_module(f"transformers.models.{family}.modeling_{family}"), name, None)
    if function is None:
        return Peer(TRANSFORMERS, f"transformers {__version__} has no {name}", None)
    peer: Peer = make(function)
    return Peer(TRANSFORMERS, f"{name} of transformers {__version__}", peer.run, peer.enter, peer.leave, peer.bytes)


def _mamba(function: Callable[..., Any]) -> Peer:
    """Time is last: x, dt [B,E,T], b, c [B,N,T]."""

    def enter(inputs: Named) -> Named:
        return {name: x.transpose(1, 2).contiguous() if x.ndim == 3 else x for name, x in inputs.items()}

    def run(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        out: Tensor = function(x, dt, a, b, c)
        return out

    def leave(inputs: Named, results: Results) -> Results:
        return tuple(x.transpose(1, 2) if x.ndim == 3 else x for x in results)

    return Peer("", "", run, enter, leave, lambda case, mode: _states(case, mode) * 16 / case.head_dim)


def _mamba2(function: Callable[..., Any]) -> Peer:
    """Values and decays come apart as x dt and a dt: dt = -decay, a = -1, x = v / dt."""

    def enter(inputs: Named) -> Named:
        dt = -inputs["decay"]
        return {"q": inputs["q"], "k": inputs["k"], "v": inputs["v"] / dt[..., None], "decay": dt}

    def run(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
        out: Tensor = function(v, decay, -torch.ones(v.shape[2]), k, q, chunk_size=256)
        return out

    def leave(inputs: Named, results: Results) -> Results:
        if len(results) == 1:
            return results
        out, dq, dk, dx, ddt = results
        x, dt = inputs["v"], inputs["decay"]
        dv = dx / dt[..., None]
        return out, dq, dk, dv, (x * dv).sum(-1) - ddt  # out depends on dt by v = x dt and by decay = -dt

    return Peer("", "", run, enter, leave)


def _chunked_delta(function: Callable[..., Any]) -> Peer:
    """It divides q by sqrt(D), so the output and all gradients but that of q lack that factor, and so does dq."""

    def run(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
        out: Tensor = function(q, k, v, g=decay, beta=beta)[0]
        return out

    def leave(inputs: Named, results: Results) -> Results:
        return tuple(x * inputs["q"].shape[-1] ** 0.5 for x in results)

    return Peer("", "", run, leave=leave)


def _kimi(function: Callable[..., Any]) -> Peer:
    """Like the gated delta rule, with a tensor of all pairs of a chunk of 64 and all channels."""
    delta = _chunked_delta(function)
    return Peer("", "", delta.run, delta.enter, delta.leave, _states)


def _rwkv(function: Callable[..., Any]) -> Peer:
    """The decay is the logarithm of ours."""

    def enter(inputs: Named) -> Named:
        return inputs | {"decay": inputs["decay"].log()}

    def run(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
        out: Tensor = function(decay, bonus, k, v)[0]
        return out

    def leave(inputs: Named, results: Results) -> Results:
        if len(results) == 1:
            return results
        out, dk, dv, ddecay, dbonus = results
        return out, dk, dv, ddecay / inputs["decay"].exp(), dbonus

    return Peer("", "", run, enter, leave)


def _states(case: Case, mode: str) -> float:
    """Return the bytes of a state per token, as often as such functions hold them."""
    return 4.0 * case.tokens * case.head_dim * case.value_dim * (8 if mode == BOTH else 3)


Make = Callable[[Callable[..., Any]], Peer]
THEIRS: dict[str, tuple[str, str, Make]] = {  # rule -> folder of transformers.models, function, how it is called
    "mamba2": ("mamba2", "mamba2_chunk_scan", _mamba2),
    "gated_delta": ("qwen3_next", "torch_chunk_gated_delta_rule", _chunked_delta),
    "kda": ("kimi_linear", "chunk_kimi_delta_attention", _kimi),
    "selective_scan": ("mamba", "mamba_selective_scan", _mamba),
    "wkv": ("rwkv", "rwkv_linear_attention_cpu", _rwkv),
}
