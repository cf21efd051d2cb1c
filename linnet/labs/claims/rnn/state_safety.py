"""T17: is a state a value? Fork it, split and pad the sequence, drop and reorder rows, save and load: nothing changes.

    fork    one branch continues, the other must keep every bit         rows   chosen rows continue as if alone
    split   pieces with padding anywhere agree with the unsplit run     save   a file restores every bit

Random cases on small models of every kind of state (equations 18-20 of arXiv:2006.16236 and other mixers); a case is
one seed. Outputs are compared with those of the unsplit run of each row alone, relative to the largest.
B rows, T tokens:  tokens [B,T] -> logits [B,T,N]
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....layers import MIXERS
from ....models import LanguageModel, ModelConfig, ModelState
from ...core.claim import (
    NO,
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
    unit,
    untested,
)

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
VOCABULARY, LONGEST, MOST_ROWS = 17, 24, 4
OPTIONS: dict[str, dict[str, Any]] = {"window": {"window": 4}, "lsh": {"n_buckets": 4, "span": 2}}
FEW = ("elu", "rebased", "taylor", "softmax", "window", "conv", "retnet", "gla", "delta", "mamba2", "rwkv7")
ENOUGH = 200


class Case:
    """A model, rows of tokens, and the outputs of the unsplit runs."""

    def __init__(self, model: LanguageModel, seed: int) -> None:
        self.model, self.random = model, random.Random(seed)
        draw = torch.Generator().manual_seed(seed)
        lengths = [self.random.randint(2, LONGEST) for _ in range(self.random.randint(1, MOST_ROWS))]
        self.rows = [torch.randint(VOCABULARY, (length,), generator=draw) for length in lengths]
        self.whole = [self.model(row[None])[0][0] for row in self.rows]  # [T,N] each
        self.tolerance = TOLERANCE[str(self.whole[0].dtype).removeprefix("torch.")]

    def off(self, actual: Tensor, want: Tensor) -> float:
        """Return the difference, in units of the tolerance."""
        if not len(want):
            return 0.0
        off = float((actual - want).abs().max() / want.abs().max()) / self.tolerance
        return off if off == off else float("inf")

    def piece(self, left: list[Tensor]) -> tuple[Tensor, Tensor, list[int]]:
        """Take some tokens off the front of every row, with padding anywhere: tokens, mask [B,T], how many."""
        takes = [self.random.randint(0, len(row)) for row in left]
        length = max(1, max(takes) + self.random.randint(0, 3))
        tokens = torch.randint(VOCABULARY, (len(left), length))
        mask = torch.zeros(len(left), length, dtype=torch.bool)
        for i, take in enumerate(takes):
            places = sorted(self.random.sample(range(length), take))
            mask[i, places] = True
            tokens[i, places] = left[i][:take]
        return tokens, mask, takes

    def begun(self) -> tuple[ModelState, list[int]]:
        """Return the state of all rows after a first piece, and how many tokens of each were read."""
        tokens, mask, takes = self.piece([row[:-1] for row in self.rows])
        state = self.model(tokens, mask=mask)[1]
        assert state is not None
        return state, takes

    def continues(self, state: ModelState, rows: Sequence[int], takes: Sequence[int]) -> float:
        """Return the error of the next token of each row, where row i of the state belongs to rows[i]."""
        next_tokens = torch.stack([self.rows[row][takes[row]] for row in rows])
        logits, _ = self.model.step(next_tokens, state)
        return max(self.off(logits[i], self.whole[row][takes[row]]) for i, row in enumerate(rows))


def fork(case: Case) -> float:
    state, takes = case.begun()
    kept, rows = state.clone(), list(range(len(case.rows)))
    on = state
    for _ in range(case.random.randint(1, 3)):
        _, on = case.model.step(torch.randint(VOCABULARY, (len(rows),)), on)
        _, on = case.model.read(torch.randint(VOCABULARY, (len(rows), 3)), on)
    return case.continues(state, rows, takes) if identical(state, kept) else float("inf")


def split(case: Case) -> float:
    left, state = list(case.rows), None
    worst, seen = 0.0, [0] * len(left)
    while any(len(row) for row in left):
        tokens, mask, takes = case.piece(left)
        logits, state = case.model(tokens, state, mask=mask)
        for i, take in enumerate(takes):
            worst = max(worst, case.off(logits[i, mask[i]], case.whole[i][seen[i] : seen[i] + take]))
            left[i], seen[i] = left[i][take:], seen[i] + take
    return worst


def reorder(case: Case) -> float:
    """Drop, reorder and duplicate rows; join two states into one."""
    state, takes = case.begun()
    every = range(len(case.rows))
    chosen = [case.random.choice(every) for _ in range(case.random.randint(1, 5))]
    joined = ModelState.join([state.select(chosen), state.select(list(reversed(every)))])
    return case.continues(joined, [*chosen, *reversed(every)], takes)


def save(case: Case) -> float:
    state, takes = case.begun()
    with tempfile.TemporaryDirectory(prefix="linnet-state-") as folder:
        path = Path(folder, "state.safetensors")
        state.save(path, model=case.model)
        again = ModelState.load(path, model=case.model)
    if not identical(state, again):
        return float("inf")
    return case.continues(again, list(range(len(case.rows))), takes)


KINDS: dict[str, Callable[[Case], float]] = {"fork": fork, "split": split, "rows": reorder, "save": save}


def identical(a: ModelState, b: ModelState) -> bool:
    """Return whether every bit of every tensor is equal."""
    pairs = [(one.tensors, other.tensors) for one, other in zip(a.layers, b.layers, strict=True)]
    pairs.append(({"position": a.position}, {"position": b.position}))
    return all(x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x) for x, y in pairs)


def units(setting: Setting) -> list[Unit]:
    mixers, cases = {"smoke": (("elu", "softmax"), 1), "quick": (FEW, 3), "hour": (MIXERS, 5), "paper": (MIXERS, 50)}[
        setting.budget
    ]
    base = {"experiment": "state", "cases": cases, "seed": 0}
    return [
        unit(check, {**base, "mixer": mixer, "dtype": dtype}, 0.03 * cases * len(KINDS))
        for mixer in mixers
        for dtype in TOLERANCE
    ]


@torch.no_grad()
def check(config: Config) -> dict[str, Any]:
    """Return kind -> how many of its cases failed, and the largest difference in units of the tolerance."""
    torch.manual_seed(config["seed"])
    network = model(config["mixer"]).to(getattr(torch, config["dtype"]))
    failed, worst = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0.0)
    for kind, run in KINDS.items():
        for case in range(config["cases"]):
            off = run(Case(network, 1000 * config["seed"] + case))
            failed[kind] += not off <= 1
            worst[kind] = max(worst[kind], off)
    return {"failed": failed, "worst": {kind: float(f"{off:.3g}") for kind, off in worst.items()}}


def model(mixer: str) -> LanguageModel:
    """Return a model of two layers, with weights away from zeros and ones, where a mistake could hide."""
    options = {mixer: OPTIONS[mixer]} if mixer in OPTIONS else {}
    sizes: dict[str, Any] = {"d_model": 24, "n_layers": 2, "n_heads": 4, "vocab_size": VOCABULARY}
    network = LanguageModel(ModelConfig(**sizes, mixer=mixer, mixer_options=options, positions="rotary")).eval()
    for parameter in network.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return network


def read(rows: Sequence[Row]) -> Finding:
    cases = sum(row["config"]["cases"] * len(row["metrics"]["failed"]) for row in rows)
    failed = {kind: sum(row["metrics"]["failed"][kind] for row in rows) for kind in KINDS}
    if cases < ENOUGH and not sum(failed.values()):
        return untested(f"{cases} cases without a failure are too few; {ENOUGH} are needed")
    state = NO if sum(failed.values()) else YES
    mixers = sorted({row["config"]["mixer"] for row in rows})
    wrong = [row["config"] for row in rows if sum(row["metrics"]["failed"].values())]
    where = sorted({f"{config['mixer']} ({config['dtype']})" for config in wrong})
    sentence = (
        f"{sum(failed.values())} of {cases:,} random cases failed, over {len(mixers)} mixers in float32 and float64."
    )
    if where:
        sentence += f" They are of {', '.join(where)}."
    numbers = [
        Number("random cases in which a forked, split, reordered or saved state went wrong", None, sum(failed.values()))
    ]
    numbers += [Number("random cases tried", None, cases), Number("mixers tried", None, len(mixers))]
    safe = (
        "A state may be kept, branched, moved between batches and written to disk without care: beam search, retries "
        "and resumed streams need no copies."
    )
    unsafe = f"Do not branch, batch or save states of {', '.join(where)} before these failures are understood."
    scope = f"{cases:,} cases, {len(mixers)} mixers, float32 and float64"
    return Finding(Evidence(state), sentence, numbers, scope, unsafe if where else safe, [table(rows)], [chart(rows)])


def table(rows: Sequence[Row]) -> Table:
    """Return the failures of both dtypes together."""
    body = []
    for mixer in dict.fromkeys(row["config"]["mixer"] for row in rows):
        own = [row for row in rows if row["config"]["mixer"] == mixer]
        cases = sum(row["config"]["cases"] for row in own)
        failed = (sum(row["metrics"]["failed"][kind] for row in own) for kind in KINDS)
        body.append((mixer, *(f"{count} of {cases}" for count in failed)))
    return Table(("mixer", *KINDS), body, "Failures by what was done to the state")


def chart(rows: Sequence[Row]) -> Chart:
    """Draw how near the outputs come to the tolerance; bits are not drawn."""
    series = {
        dtype: [
            [kind, max((row["metrics"]["worst"][kind] or 0.0) for row in rows if row["config"]["dtype"] == dtype)]
            for kind in KINDS
        ]
        for dtype in TOLERANCE
        if any(row["config"]["dtype"] == dtype for row in rows)
    }
    return Chart(
        "Largest difference from the unsplit run", "what was done", "difference / what is tolerated", series, "bars",
        caption="Above 1 a case fails. Tolerated: 1e-9 (float64) and 1e-4 (float32) of the largest logit.",
    )  # fmt: skip


CLAIM = Claim(
    name="state",
    number="T17",
    paper="rnn",
    statement="A model's state can be copied, branched, moved between batches and saved without changing its output.",
    source=(
        "A causal linear transformer is a recurrent network whose state can be carried along (equations 18-20). The "
        "paper does not speak of branching or saving it; public implementations alter states in place. The statement "
        "is ours."
    ),
    rule="holds if no random case fails and there are 200 or more; does not hold if one fails",
    answers={YES: "Yes, in every case tried", NO: "No, some cases change the output"},
    change="one case in which a forked, split, reordered or saved state gives another output",
    units=units,
    read=read,
)
