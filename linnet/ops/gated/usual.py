"""The usual call by a short path: on short sequences, checking what to run takes longer than running it.

Usual is float32 on the CPU with the shapes of the equation, no mask and no packing, and nothing that records or
transforms. `usual` looks at all of that in a few microseconds and returns what `begin` of prologue.py would. Any other
call, and any argument that needs a sentence, goes the long way; both give the same bits.
"""

from __future__ import annotations

import torch

from ...native.gate import ordinary
from ...native.gated import Inputs
from ...native.library import library
from ..native_allowed import recorded, transformed
from ..prologue import Call, Contract, plain_matrix

BACKENDS = ("auto", "native")


def usual(x: Inputs, how: Contract, default_chunk: int) -> Call | None:
    """Return a call of the kernel that passed the checks; None for one that has to be looked at closely."""
    # `is not`: 32.0 equals 32, and is refused the long way
    if how.mask is not None or how.cu_seqlens is not None or how.chunk_size is not default_chunk:
        return None
    if how.backend not in BACKENDS or type(how.output_final_state) is not bool:
        return None
    if torch.compiler.is_compiling() or transformed() or recorded() or library() is None or not ordinary(*x):
        return None
    shape = x.q.shape
    if len(shape) != 4 or not (how.form in ("auto", "chunked") or (how.form == "recurrent" and shape[1] == 1)):
        return None
    if not _shapes_fit(x, shape):
        return None
    B, _, H, D = shape
    state, s = how.initial_state, None
    if state is not None:
        if not (plain_matrix(state, B, (H, D, x.v.shape[3]), x.q.device) and ordinary(state.s)):
            return None
        s = state.s
    return Call((), (), s, None, how.form, None, torch.float32, how.output_final_state, True, None)


def _shapes_fit(x: Inputs, shape: torch.Size) -> bool:
    tokens = shape[:3]
    return (
        x.k.shape == shape
        and x.v.shape[:3] == tokens
        and len(x.v.shape) == 4
        and (x.decay is None or x.decay.shape == shape or x.decay.shape == tokens)
        and (x.beta is None or x.beta.shape == tokens)
        and (x.erase is None or x.erase.shape == shape)
        and (x.rate is None or x.rate.shape == shape)
    )
