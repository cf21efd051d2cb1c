"""Linear attention as an operator of torch: its schema and fake kernel, torch.compile without graph breaks, export."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet import State, linear_attention, linear_attention_step
from linnet import feature_maps as maps
from linnet.native import gate
from tests.ops.runs import RUNS, close, qkv


def operator_arguments(**change: Any) -> tuple[Any, ...]:
    q, k, v = qkv(1, 9, 2, 4, dtype=torch.float64)
    rest = {"mask": None, "s0": None, "z0": None, "cu": None, "kind": "elu", "coeffs": [], "causal": True} | change
    if rest["s0"] is not None:
        q, k, v = (x.requires_grad_() for x in (q, k, v))
    return (q, k, v, *rest.values(), True, 0.7, 1e-3, 4, "torch")


OPERATOR = {
    "plain": operator_arguments(),
    "mask": operator_arguments(mask=torch.arange(9)[None] % 4 != 1),
    "bidirectional": operator_arguments(causal=False),
    "packed": operator_arguments(cu=torch.tensor([0, 4, 4, 9])),
    "closed kernel": operator_arguments(kind="polynomial", coeffs=[1.0, 0.5, 0.125]),
    "state and gradients": operator_arguments(
        s0=torch.rand(1, 2, 4, 4, dtype=torch.float64, requires_grad=True),
        z0=torch.rand(1, 2, 4, dtype=torch.float64, requires_grad=True),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATOR)
def test_the_operator_keeps_torch_rules(name: str) -> None:
    torch.library.opcheck(torch.ops.linnet.linear_attention.default, OPERATOR[name])


COMPILED: dict[str, dict[str, Any]] = {
    "causal": {},
    "bidirectional": {"causal": False},
    "mask": {"mask": torch.arange(24).view(2, 12) % 5 != 0},
    "state": {"initial_state": State(torch.rand(2, 2, 4, 4), torch.rand(2, 2, 4)), "output_final_state": True},
    "not normalised": {"normalize": False, "scale": 0.5},
    "torch": {"backend": "torch"},
    "parallel": {"form": "parallel"},
    "map with parameters": {"feature_map": maps.ReBased(4, n_heads=2)},
    **{f"map {name}": {"feature_map": name} for name in ("relu", "relu2", "exp", "polynomial", "taylor", "dpfp")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_without_graph_breaks(name: str) -> None:
    torch.compiler.reset()
    how = COMPILED[name]

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        out, state = linear_attention(q, k, v, **how)
        return (out, *state) if state is not None else (out,)

    whole = torch.compile(run, fullgraph=True, backend="aot_eager")
    results = []
    for f in (run, whole):
        leaves = [x.requires_grad_() for x in qkv(2, 12, 2, 4)]
        out = f(*leaves)
        results.append([*out, *torch.autograd.grad(sum(x.sum() for x in out), leaves)])
    assert all(close(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.slow
def test_compiled_packed_batch_and_step() -> None:
    torch.compiler.reset()
    q, k, v = qkv(1, 12, 2, 4)
    cu = torch.tensor([0, 5, 12])
    packed = torch.compile(
        lambda q, k, v: linear_attention(q, k, v, cu_seqlens=cu)[0], fullgraph=True, backend="aot_eager"
    )
    assert close(packed(q, k, v), linear_attention(q, k, v, cu_seqlens=cu)[0])
    step = torch.compile(lambda q, k, v, s: linear_attention_step(q, k, v, s), fullgraph=True, backend="aot_eager")
    _, state = linear_attention_step(q[:, 0], k[:, 0], v[:, 0])
    got, want = (f(q[:, 1], k[:, 1], v[:, 1], state) for f in (step, linear_attention_step))
    assert close(got[0], want[0])
    assert close(got[1].s, want[1].s)


@pytest.mark.slow
def test_compiled_offsets_as_a_list() -> None:
    torch.compiler.reset()
    q, k, v = qkv(1, 12, 2, 4)
    packed = torch.compile(
        lambda q, k, v: linear_attention(q, k, v, cu_seqlens=[0, 5, 12])[0], fullgraph=True, backend="aot_eager"
    )
    assert close(packed(q, k, v), linear_attention(q, k, v, cu_seqlens=[0, 5, 12])[0])


@pytest.mark.parametrize("offsets", [[0, 5, 13], [0, 7, 5, 12], [-1, 12]])
@pytest.mark.parametrize("backend", sorted({backend for _, backend in RUNS}))
def test_the_operator_refuses_bad_offsets(offsets: list[int], backend: str) -> None:
    """A recorded graph has no values to check: they are checked when it runs."""
    cu, rule = torch.tensor(offsets), ("elu", [], True, True, 1.0, 1e-6, 4, backend)
    with pytest.raises(ValueError, match=r"cu_seqlens .* accepted: (from 0 to the length 12|offsets that never)"):
        torch.ops.linnet.linear_attention(*qkv(1, 12, 2, 4), None, None, None, cu, *rule)


@pytest.mark.slow
def test_exported() -> None:
    class Model(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return linnet.linear_attention(q, k, v)[0]

    inputs = qkv(1, 12, 2, 4)
    program = torch.export.export(Model(), inputs)
    assert any("linnet.linear_attention" in str(node.target) for node in program.graph.nodes)
    assert close(program.module()(*inputs), Model()(*inputs))


def test_values_mode_asserts_inside_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "VALUES", True)
    run = torch.compile(lambda *x: linear_attention(*x, form="parallel")[0], fullgraph=True, backend="eager")
    q, k, v = qkv(1, 9, 2, 4)
    run(q, k, v)
    v[0, 3] = torch.nan
    with pytest.raises(RuntimeError, match="an input of linear_attention is not finite"):
        run(q, k, v)
