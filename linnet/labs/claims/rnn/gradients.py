"""T2: are the gradients by cumulative sums right, for every feature map, initial state and final state included?

    dL/dx  against  (L(x + h) - L(x - h)) / 2h,    L = <g, out> + <gs, s_T> + <gz, z_T>,    h = 1e-6, float64

Equations 13-15 of arXiv:2006.16236 with the denominator added (linnet/ops/linear/backward.py); and in float32 at a
thousand tokens against float64. All shifted copies of an input are rows of one batch: 2P rows for P numbers.
T = 17, one head, D width, F features, V values:  q, k [1,T,1,D]   v [1,T,1,V]   s0 [1,1,F,V]   z0 [1,1,F]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....feature_maps import FEATURE_MAPS, FeatureMap, build
from ....ops import State, linear_attention
from ...bench.competitors import OURS_TORCH, ours
from ...bench.inputs import Inputs
from ...bench.race import call_of
from ...bench.reference import piece, relative
from ...bench.sizes import BOTH
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Evidence,
    Finding,
    Number,
    Row,
    Setting,
    Table,
    Unit,
    figures,
    unit,
    untested,
)

BOUND, BOUND_32 = 1e-7, 5e-4
FAR = 100  # times the bound: more than rounding
NAMES = ("q", "k", "v", "s0", "z0")
SINGLE = "float32"


def units(setting: Setting) -> list[Unit]:
    smoke = setting.budget == "smoke"
    sizes = {"length": 17, "head_dim": 5, "values": 4, "chunk": 4, "step": 1e-6, "seed": 0}
    base = {"experiment": "gradients", "dtype": "float64"}
    maps = ["elu", "taylor"] if smoke else list(FEATURE_MAPS)
    work = [unit(differences, {**base, "map": name, **sizes}, 0.5) for name in maps]
    long = {"experiment": "gradients", "dtype": SINGLE, "map": "elu", "length": 100 if smoke else 1000, "heads": 2}
    widths = (32,) if setting.budget in ("smoke", "quick") else (8, 32, 64)
    return work + [unit(single, {**long, "head_dim": width, "values": width}, 0.5) for width in widths]


def differences(config: Config) -> dict[str, Any]:
    """Return input -> largest error of the gradient against central differences, relative to its largest entry."""
    torch.manual_seed(config["seed"])
    phi = build(config["map"], config["head_dim"]).double()
    D, T, V, F = config["head_dim"], config["length"], config["values"], phi.feature_dim
    shapes = ((1, T, 1, D), (1, T, 1, D), (1, T, 1, V), (1, 1, F, V), (1, 1, F))
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes[:3]]
    inputs += [torch.rand(shape, dtype=torch.float64) for shape in shapes[3:]]
    weights = [torch.randn(shape, dtype=torch.float64) for shape in (shapes[2], *shapes[3:])]
    leaves = [x.clone().requires_grad_() for x in inputs]
    grads = torch.autograd.grad(losses(leaves, weights, phi, config["chunk"]).sum(), leaves)
    errors = {}
    for i, (name, grad) in enumerate(zip(NAMES, grads, strict=True)):
        with torch.no_grad():
            errors[name] = float(f"{relative(grad, central(inputs, i, weights, phi, config)):.3g}")
    return {"errors": errors, "features": F}


def losses(inputs: Sequence[Tensor], weights: Sequence[Tensor], phi: FeatureMap, chunk: int) -> Tensor:
    """Return L of every row of the batch, [B]."""
    q, k, v, s0, z0 = inputs
    start = State(s0, z0)
    out, state = linear_attention(
        q, k, v, feature_map=phi, initial_state=start, output_final_state=True, chunk_size=chunk, backend="torch"
    )
    assert state is not None
    parts = zip(weights, (out, *state), strict=True)
    return torch.stack([(weight * x).flatten(1).sum(1) for weight, x in parts]).sum(0)


def central(inputs: Sequence[Tensor], which: int, weights: Sequence[Tensor], phi: FeatureMap, config: Config) -> Tensor:
    """Return the central difference in every entry of input `which`, in its shape."""
    x, step = inputs[which], config["step"]
    shifts = step * torch.eye(x.numel(), dtype=x.dtype).view(-1, *x.shape[1:])  # one entry per row
    moved = torch.cat([x + shifts, x - shifts])
    rows = [moved if i == which else y.expand(len(moved), *y.shape[1:]) for i, y in enumerate(inputs)]
    above, below = losses(rows, weights, phi, config["chunk"]).chunk(2)
    return ((above - below) / (2 * step)).view(x.shape)


def single(config: Config) -> dict[str, Any]:
    """Compare float32 as dispatched with autograd of the explicit sum in float64, at every token."""
    given = Inputs(1, config["length"], config["heads"], config["head_dim"], config["values"])
    native, torch_form = ours("elu")
    chosen = native if native.run is not None else torch_form
    _, *grads = call_of(chosen, given, BOTH)()
    want = piece("elu", given.bthd, 0, config["length"], True)
    assert want.dk is not None
    assert want.dv is not None
    wanted = dict(zip(NAMES, (want.dq, want.dk, want.dv), strict=False))
    errors = {name: relative(grad[0], wanted[name]) for name, grad in zip(wanted, grads, strict=True)}
    return {
        "errors": {name: float(f"{error:.3g}") for name, error in errors.items()},
        "native": chosen.name != OURS_TORCH,
    }


def read(rows: Sequence[Row]) -> Finding:
    double = {row["config"]["map"]: worst(row) for row in rows if row["config"]["dtype"] != SINGLE}
    narrow = [worst(row) for row in rows if row["config"]["dtype"] == SINGLE]
    if not double or not narrow:
        return untested("there are no rows of " + ("central differences" if not double else "float32 gradients"))
    over = max(max(double.values()) / BOUND, max(narrow) / BOUND_32)
    state = YES if over <= 1 else NO if over > FAR else OPEN
    furthest = max(double, key=lambda name: double[name])
    sentence = (
        f"Gradients of {len(double)} feature maps agree with central differences to {figures(double[furthest])} "
        f"({furthest} is furthest; the bound is 1e-7), and float32 with float64 to {figures(max(narrow))} (5e-4)."
    )
    numbers = [
        Number("largest relative error of a gradient against central differences, float64", None, double[furthest]),
        Number("largest relative error of a float32 gradient against float64, 1,000 tokens", None, max(narrow)),
        Number("feature maps checked", None, len(double)),
    ]
    right = (
        "Training through the memory-saving backward pass is training on the true gradient, whichever map is chosen."
    )
    wrong = (
        f"The gradient of {furthest} is furthest from the derivative of what it computes: find out why before training."
    )
    scope = f"{len(double)} feature maps, all inputs and both states"
    meaning = right if state == YES else wrong
    return Finding(Evidence(state), sentence, numbers, scope, meaning, [table(rows)], [chart(double)])


def worst(row: Row) -> float:
    return max(float("inf") if value is None else value for value in row["metrics"]["errors"].values())


def table(rows: Sequence[Row]) -> Table:
    body = []
    for row in rows:
        errors = row["metrics"]["errors"]
        kind = f"{row['config']['map']}, {row['config']['dtype']}, {row['config']['length']} tokens"
        body.append((kind, *(f"{errors[name]:.1e}" if errors.get(name) is not None else "-" for name in NAMES)))
    return Table(("feature map", *(f"d{name}" for name in NAMES)), body, "Relative error of each gradient")


def chart(double: dict[str, float]) -> Chart:
    bars = [[name, error] for name, error in double.items() if 0 < error < float("inf")]
    return Chart(
        "Gradient against central differences", "feature map", "relative error", {"largest error": bars}, "bars",
        log_y=True, caption="float64, 17 tokens, all inputs and both states; the bound is 1e-7.",
    )  # fmt: skip


CLAIM = Claim(
    name="gradients",
    number="T2",
    paper="rnn",
    statement="The backward pass that keeps no states computes the true gradient.",
    source=(
        "The gradients of causal linear attention are cumulative sums themselves (equations 13-15). The paper derives "
        "them for the numerator and leaves the denominator to automatic differentiation; it gives no error."
    ),
    rule=(
        "holds if every gradient is within 1e-7 of central differences (float64, every feature map) and float32 within "
        "5e-4 of float64; does not hold beyond 100 times that; too close to call between"
    ),
    answers={YES: "Yes, for every feature map", NO: "No, gradients are wrong"},
    change="an input or feature map whose gradient is off by more than rounding",
    units=units,
    read=read,
)
