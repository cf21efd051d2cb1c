"""What every op on rows promises, as checks: float64's numbers and gradients, any thread count, every kind of graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from linnet.native import library

FLOAT32, FLOAT64 = 2e-5, 1e-10  # of the largest number
needs_library = pytest.mark.skipif(not library.info()["loaded"], reason=f"no native library: {library.reason()}")
Op = Callable[..., Any]
Given = tuple[Tensor | None, ...]


def draw(*shapes: tuple[int, ...] | None, seed: int = 0) -> Given:
    g = torch.Generator().manual_seed(seed)
    return tuple(None if shape is None else torch.randn(shape, generator=g) for shape in shapes)


def tensors(found: Any) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else tuple(found)


def run(op: Op, given: Given, dtype: torch.dtype = torch.float32, graph: bool = False) -> list[Tensor]:
    """Outputs and the gradients of all that is given, for output gradients drawn from one seed."""
    leaves = [None if t is None else t.to(dtype).clone().requires_grad_() for t in given]
    outs = tensors(op(*leaves))
    g = torch.Generator().manual_seed(9)
    grads = [torch.randn(out.shape, generator=g, dtype=torch.float64).to(dtype) for out in outs]
    wanted = [t for t in leaves if t is not None]
    found = torch.autograd.grad(outs, wanted, grads, create_graph=graph)
    if graph:  # the gradient of the sum of squares of the gradients
        squares = sum((x.square().sum() for x in found), start=torch.zeros(()))
        found += torch.autograd.grad(squares, wanted, materialize_grads=True)
    return [*outs, *found]


def close(got: list[Tensor], want: list[Tensor], tolerance: float) -> None:
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape
        off = (a.detach().double() - b.detach().double()).abs().max() / b.detach().abs().max().clamp(min=1e-3)
        assert off <= tolerance, f"result {i} is off by {off:.1e}"


@contextmanager
def threads(count: int) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def check(op: Op, plain: Op, given: Given) -> None:
    """The op against plain torch in float64: values, gradients, gradients of gradients, and without a graph."""
    want = run(plain, given, torch.float64)
    close(run(op, given), want, FLOAT32)
    close(run(op, given, torch.float64), want, FLOAT64)
    with torch.no_grad():
        outs = tensors(op(*given))
    close(list(outs), want[: len(outs)], FLOAT32)
    close(run(op, given, graph=True), run(plain, given, torch.float64, graph=True), 10 * FLOAT32)


def check_graphs(op: Op, given: Given) -> None:
    """torch.compile without a break and forward-mode AD, which go through plain torch."""
    torch.compiler.reset()
    outs = tensors(op(*given))
    whole = torch.compile(op, fullgraph=True, backend="aot_eager")
    close(list(tensors(whole(*given))), list(outs), FLOAT32)
    first, *rest = given
    assert first is not None
    (way,) = draw(tuple(first.shape), seed=5)
    assert way is not None
    value, slope = torch.func.jvp(lambda x: tensors(op(x, *rest))[0], (first,), (way,))
    up, down = (tensors(op(first + step * way, *rest))[0] for step in (1e-2, -1e-2))
    close([value], [outs[0]], FLOAT32)
    close([slope], [(up - down) / 2e-2], 1e-2)


def one_thread_or_more(call: Callable[[], list[Tensor]]) -> None:
    """The same bits on 1, 2 and 3 threads."""
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(call())
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
