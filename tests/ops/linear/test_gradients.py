"""Linear attention under autograd: twice, in forward mode, through the state alone, in memory linear in time.

First derivatives against the reference are in test_parity.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet import State, linear_attention, linear_attention_step
from linnet import feature_maps as maps
from tests.ops.runs import RUNS, close, every_run, qkv


@pytest.mark.parametrize(
    ("phi", "normalize", "causal"),
    [
        *(("elu", normalize, causal) for normalize in (True, False) for causal in (True, False)),
        ("relu2", True, False),  # the map is differentiated apart from the rule: one of its four kinds is enough
        ("exp", False, True),
        ("taylor", True, True),
        (maps.Polynomial(2, degree=3), False, False),
    ],
    ids=str,
)
def test_double_backward(phi: Any, normalize: bool, causal: bool) -> None:
    g = torch.Generator().manual_seed(0)
    width = maps.resolve(phi, 2).feature_dim
    shapes = ((1, 4, 1, 2), (1, 4, 1, 2), (1, 4, 1, 2), (1, 1, width, 2), (1, 1, width))
    q, k, v, s0, z0 = (torch.rand(n, generator=g, dtype=torch.float64).requires_grad_() for n in shapes)
    mask = torch.tensor([[True, False, True, True]])

    def run(q: Tensor, k: Tensor, v: Tensor, s0: Tensor, z0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        how = {"feature_map": phi, "causal": causal, "normalize": normalize, "mask": mask, "chunk_size": 2}
        out, state = linear_attention(q, k, v, initial_state=State(s0, z0), output_final_state=True, **how)
        assert state is not None
        return out, *state

    assert torch.autograd.gradcheck(run, (q, k, v, s0, z0))
    assert torch.autograd.gradgradcheck(run, (q, k, v, s0, z0))


def test_double_backward_of_the_native_form() -> None:
    def second(backend: str) -> Tensor:
        q, k, v = (x.requires_grad_() for x in qkv(1, 40, 2, 4))
        out, _ = linear_attention(q, k, v, backend=backend)
        (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(dq.square().sum(), k)[0]

    assert close(second("auto"), second("torch"))


@pytest.mark.parametrize("step", [False, True])
def test_forward_mode_derivatives_are_not_lost(step: bool) -> None:
    q, k, v = qkv(1, 1 if step else 20, 2, 4)
    past = State(torch.rand(1, 2, 4, 4), torch.rand(1, 2, 4))  # without one, a single token's output is v whatever q is

    def tangent(**how: str) -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            x = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
            if step and not how:
                out, _ = linear_attention_step(x[:, 0], k[:, 0], v[:, 0], past)
            else:
                out, _ = linear_attention(x, k, v, initial_state=past, **how)
            return torch.autograd.forward_ad.unpack_dual(out).tangent

    assert close(tangent().view(v.shape), tangent(form="parallel"))


@every_run
def test_no_gradient_gives_the_same_bits(form: str, backend: str) -> None:
    q, k, v = qkv(2, 70, 2, 8)
    with torch.no_grad():
        quick, _ = linear_attention(q, k, v, form=form, backend=backend)
    with torch.inference_mode():
        quicker, _ = linear_attention(q, k, v, form=form, backend=backend)
    tracked, _ = linear_attention(q.requires_grad_(), k, v, form=form, backend=backend)
    assert torch.equal(quick, tracked)
    assert torch.equal(quicker, tracked)
    assert not quick.requires_grad
    assert tracked.requires_grad


def test_a_parameter_can_be_an_input() -> None:
    q, k, v = (torch.nn.Parameter(x) for x in qkv(1, 5, 2, 4))
    linear_attention(q, k, v)[0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (q, k, v))


def test_only_the_state_is_used() -> None:
    """A loss on the final state alone, and a state that alone asks for a gradient."""
    q, k, v = qkv(1, 9, 2, 4)
    s0, z0 = (torch.rand(n).requires_grad_() for n in ((1, 2, 4, 4), (1, 2, 4)))
    out, state = linear_attention(q, k, v, initial_state=State(s0, z0), output_final_state=True)
    assert state is not None
    (ds,) = torch.autograd.grad(state.s.sum(), s0, retain_graph=True)
    assert torch.equal(ds, torch.ones_like(ds))
    assert torch.autograd.grad(out.sum(), z0)[0].abs().sum() > 0


MEMORY = """
import sys, torch, linnet
from linnet.native.process_memory import extra_memory
torch.set_num_threads(1)
T, phi, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def inputs(T):
    q, k, v = (torch.rand(1, T, 1, 16, requires_grad=True) for _ in range(3))
    return (q, k, v), torch.ones(1, T, 1, 16)
(q, k, v), g = inputs(300)  # whatever is loaded or cached at the first call
torch.autograd.grad(linnet.linear_attention(q, k, v, feature_map=phi, backend=backend)[0], (q, k, v), g)
(q, k, v), g = inputs(T)
def forward_and_backward():
    out, _ = linnet.linear_attention(q, k, v, feature_map=phi, backend=backend)
    return out, torch.autograd.grad(out, (q, k, v), g)
print(extra_memory(forward_and_backward)[1])
"""


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps what is freed")
@pytest.mark.parametrize("backend", sorted({backend for _, backend in RUNS}))
def test_memory_is_linear_in_time(backend: str) -> None:
    """Forward and backward take out, dq, dk, dv and a little more: not T x F x V, not T x T, not even T x F."""
    T, floats = 60_000, 4 * 16
    command = [sys.executable, "-c", MEMORY, str(T), "taylor", backend]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    if run.stdout.strip() == "None":
        pytest.skip("the system does not tell the peak of a process")
    taken = int(run.stdout) / (4 * T)  # in float32 per token
    assert taken < 1.3 * floats, f"{taken:.0f} floats per token; Taylor has 153 features, 153 x 16 state entries"
