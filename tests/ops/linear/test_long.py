"""A million tokens: float32 stays with float64, and memory stays where it was.

The sequence is made block by block from a seed, so that nothing of length T is ever held. B = H = 1, D = V = 8.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import linnet
from linnet.native.library import info
from linnet.native.process_memory import extra_memory
from linnet.ops.state import State

TOKENS, BLOCK, WIDTH = 1_000_000, 2_000, 8  # a loop over a block holds views of all its tokens: a few megabytes
TOLERANCE = 1e-5  # relative to the largest entry
DRIFT = 1e-4  # of a float32 state rounded a million times over: half a unit of the last place, times sqrt(T)
GROWTH = 32 * TOKENS  # bytes: less than any object kept per token (a state has 288), than all blocks (96 per token)
BACKENDS = ["torch", *(["native"] if info()["loaded"] else [])]


def blocks() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """q, k, v [1, BLOCK, 1, WIDTH] of one and the same million tokens each time."""
    g = torch.Generator().manual_seed(0)
    for _ in range(TOKENS // BLOCK):
        q, k, v = torch.randn(3, 1, BLOCK, 1, WIDTH, generator=g)
        yield q, k, v + 0.5  # a mean, or the exact output would vanish with 1 / sqrt(T)


@pytest.fixture(scope="module")
def exact() -> tuple[list[Tensor], State]:
    """The last output of every block and the final state, in float64."""
    state, outs = None, []
    for q, k, v in blocks():
        how = {"initial_state": state, "output_final_state": True, "backend": "torch"}
        out, state = linnet.linear_attention(q.double(), k.double(), v.double(), **how)
        outs.append(out[0, -1, 0])
    assert state is not None
    return outs, state


def compare(outs: list[Tensor], state: State, exact: tuple[list[Tensor], State], tolerance: float = TOLERANCE) -> None:
    last, final = exact
    pairs = {"out": (torch.stack(outs), torch.stack(last)), "s": (state.s, final.s), "z": (state.z, final.z)}
    for name, (a, b) in pairs.items():
        error = (a.double() - b).abs().max() / b.abs().max()
        assert error <= tolerance, f"{name}: {error:.1e}"


def in_flat_memory(run: Callable[[], tuple[list[Tensor], State]]) -> tuple[list[Tensor], State]:
    """Return the result of a run over all blocks whose memory must not grow with the tokens.

    Garbage collection and threads that earlier tests left behind move a process by a few megabytes.
    """
    result, grown = extra_memory(run)
    assert grown is None or grown < GROWTH, f"{grown / TOKENS:.0f} bytes per token"
    outs, state = result
    return outs, state


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_chunks_of_random_length(backend: str, exact: tuple[list[Tensor], State]) -> None:
    def run() -> tuple[list[Tensor], State]:
        rng = random.Random(0)
        state, outs = None, []
        for q, k, v in blocks():
            left = 0
            while left < BLOCK:
                at = slice(left, left + rng.randint(1, 2000))
                how = {"initial_state": state, "output_final_state": True, "backend": backend}
                out, state = linnet.linear_attention(q[:, at], k[:, at], v[:, at], **how)
                left = at.stop
            outs.append(out[0, -1, 0].clone())
        assert state is not None
        return outs, state

    compare(*in_flat_memory(run), exact)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, TOLERANCE), (torch.float32, DRIFT)], ids=str)
def test_a_million_steps(dtype: torch.dtype, tolerance: float, exact: tuple[list[Tensor], State]) -> None:
    """float32 tokens one by one: a float64 state keeps up with float64; a float32 state drifts, but no further."""

    def run() -> tuple[list[Tensor], State]:
        outs = []
        state = State(torch.zeros(1, 1, WIDTH, WIDTH, dtype=dtype), torch.zeros(1, 1, WIDTH, dtype=dtype))
        for q, k, v in blocks():
            for x, y, w in zip(q[0], k[0], v[0], strict=True):  # [1, WIDTH] each
                out, state = linnet.linear_attention_step(x[None], y[None], w[None], state)
            outs.append(out[0, 0].clone())
        return outs, state

    compare(*in_flat_memory(run), exact, tolerance)
