"""Time a training step of an in-context regression transformer: native code, eager torch, and per cent of sgemm.

    step = draw `batch` sequences, forward, backward, Adam; the paper's: n = 20, d = 10, one query each, noise U5

    native   linnet/native/icl.py: sums S drawn directly, Gram form, hand-derived backward, everything in one call
    tokens   eager torch, as the paper writes it:  e <- e + (e Qᵀ Cᵀ) C Pᵀ, C the n examples       e [B,n+1,E]
    gram     eager torch on sums:  H = I + P S Q,  S <- H S Hᵀ, and the query row separately        S [B,E,E]

Vladymyrov et al. 2024 (arXiv:2402.14180) train for 200,000 such steps. Every form's gradient is compared with float64
autograd before it is timed; all take turns in one process with an sgemm in every round. E = d + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import unknown
from .checks import check_given, check_rounds, check_threads, cores

if TYPE_CHECKING:
    from torch import Tensor

    from ...regress.model import ICLTransformer
    from ..icl.regression import Batch

D, N, NOISE, RATE = 10, 20, "U5", 1e-4
STEPS, PAPER_HOURS = 200_000, (4, 12)  # of one model in the paper, and its hours on an H100
PRODUCTS = {"full": 10, "diag": 4}  # of E x E matrices in a layer that is not the last
SAVED = {"full": 1.5, "diag": 0.5}  # of them not needed in the first layer, which has no dS
FORMS = ("native", "tokens", "gram")
PER_CALL = 10  # native steps per call, as in training
TOLERANCE = 1e-4  # relative to the largest entry: float32 gradients of seven layers against float64
FEWEST_ROUNDS = 3
QUICK: dict[str, Any] = {"threads": (1,), "rounds": FEWEST_ROUNDS}


@dataclass(frozen=True, kw_only=True)
class ICLSettings:
    """What to time."""

    model: str = "full"
    layers: int = 7
    batch: int = 2048
    threads: tuple[int, ...] = (1, 2) if cores() > 1 else (1,)
    rounds: int = 7

    def __post_init__(self) -> None:
        if self.model not in PRODUCTS:
            raise unknown("model", self.model, PRODUCTS)
        if self.layers < 2:
            raise ValueError(f"--layers is {self.layers}; accepted: 2 or more, the last one is not counted")
        if self.batch < 1:
            raise ValueError(f"--batch is {self.batch}; accepted: 1 sequence or more")
        check_rounds(self.rounds, FEWEST_ROUNDS)
        check_given(threads=self.threads)
        check_threads(self.threads)


def step_flops(model: str, layers: int, batch: int) -> float:
    """Return 2 E³ for each product of a layer but the last, symmetric results counted half, and nothing else.

    FULL: S Q, P X, H S and half of (H S) Hᵀ forward; dS' H, half of Hᵀ U, U S, Pᵀ dG, S Y, Y Qᵀ and dG Xᵀ backward.
    DIAG: H S, half of (H S) Hᵀ; dS' H, half of Hᵀ U, U S. The first layer needs no Hᵀ U and no Y Qᵀ. Sampling, the last
    layer and Adam are not counted.
    """
    return 2.0 * (D + 1) ** 3 * (PRODUCTS[model] * (layers - 1) - SAVED[model]) * batch


def by_tokens(p: Tensor, q: Tensor, batch: Batch) -> Tensor:
    """Return predictions [B]; p, q [L,E,E]."""
    import torch

    labels = torch.cat([batch.y, torch.zeros_like(batch.y[:, :1])], dim=1)
    e = torch.cat([torch.cat([batch.x, batch.query[:, None]], dim=1), labels[..., None]], dim=-1)
    for p_l, q_l in zip(p, q, strict=True):
        context = e[:, :-1]
        e = e + (e @ q_l.mT @ context.mT) @ context @ p_l.mT
    return -e[:, -1, -1]


def by_sums(p: Tensor, q: Tensor, batch: Batch) -> Tensor:
    """Return predictions [B]; p, q [L,E,E]."""
    import torch

    e = torch.cat([batch.query, torch.zeros_like(batch.query[:, :1])], dim=-1)
    s = batch.gram.s
    eye = torch.eye(s.shape[-1], dtype=s.dtype)
    for p_l, q_l in zip(p, q, strict=True):
        h = eye + p_l @ s @ q_l
        e = (h @ e[..., None])[..., 0]
        s = h @ s @ h.mT
    return -e[:, -1]


def start(settings: ICLSettings) -> ICLTransformer:
    """Return the initial model, float64."""
    import torch

    from ...regress.model import ICLConfig, ICLTransformer

    config = ICLConfig(settings.model, settings.layers, D, N)
    return ICLTransformer(config, generator=torch.Generator().manual_seed(0))


def eager_step(form: Callable[[Tensor, Tensor, Batch], Tensor], settings: ICLSettings) -> Callable[[], float]:
    """Return one step of eager torch in float32, in the usual form."""
    import torch

    from ..icl.noise import Noise
    from ..icl.regression import Regression

    model, generator = start(settings).float(), torch.Generator().manual_seed(1)
    task, optimizer = Regression(Noise.parse(NOISE), D, N), torch.optim.Adam(model.parameters(), lr=RATE)

    def step() -> float:
        batch = task.sample(settings.batch, generator, torch.float32)
        optimizer.zero_grad(set_to_none=True)
        p, q = model.matrices()
        loss = 0.5 * (form(p[:, 0], q[:, 0], batch) - batch.target).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def native_steps(settings: ICLSettings, threads: int) -> Callable[[], float]:
    """Return a call of PER_CALL native steps, which returns the last loss."""
    import torch

    from ...native import icl
    from ..icl.noise import Noise

    model = start(settings)
    p, q = model.p.detach().clone(), model.q.detach().clone()
    sigma, rates = torch.tensor(Noise.parse(NOISE).values).double(), torch.full((PER_CALL,), RATE).double()
    adam = icl.Adam(p, q)

    def steps() -> float:
        first = adam.done * settings.batch
        source = icl.Fresh(D, N, settings.batch, sigma, True, seed=1, first=first, target="query")
        return float(adam.train(source, p, q, rates, threads=threads)[0][-1])

    return steps


def gradient_errors(settings: ICLSettings, count: int = 64) -> dict[str, float]:
    """Compare each form's float32 gradient with float64 autograd, relative to the largest entry; refuse a wrong one.

    The eager forms have the loss of the query, native code that of stored sequences, 1/2 |w - weights|².
    """
    import torch

    from ...native import icl
    from ..icl.noise import Noise
    from ..icl.regression import Batch, Regression

    batch = Regression(Noise.parse(NOISE), D, N).sample(count, torch.Generator().manual_seed(2))
    model, small = start(settings), Batch(*(x.float() for x in batch))
    w = model.weights(batch.gram.s)
    by_query = 0.5 * ((w * batch.query).sum(-1) - batch.target).square().sum()
    want = torch.autograd.grad(by_query, (model.p, model.q), retain_graph=True)
    errors = {}
    for name, form in (("tokens", by_tokens), ("gram", by_sums)):
        narrow = start(settings).float()
        p, q = narrow.matrices()
        loss = 0.5 * (form(p[:, 0], q[:, 0], small) - small.target).square().sum()
        errors[name] = _off(torch.autograd.grad(loss, (narrow.p, narrow.q)), want)
    stored = icl.pack(batch.gram.s, batch.weights, wide=False)
    gradient = icl.gradient(stored, model.p.detach(), model.q.detach())
    want = torch.autograd.grad(0.5 * (w - batch.weights).square().sum(), (model.p, model.q))
    errors["native"] = _off((gradient.dp, gradient.dq), want)
    for name, error in errors.items():
        if not error <= TOLERANCE:
            raise ValueError(f"the gradient of {name} is off by {error:.1e}; accepted: {TOLERANCE}: not timed")
    return errors


def _off(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> float:
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(got, want, strict=True))


def race(settings: ICLSettings, threads: int) -> dict[str, Any]:
    """Return one row: every form on `threads` threads."""
    import torch

    from ...native import icl, library
    from . import timing

    if not icl.available():
        raise ValueError(f"there is no native code to time: {library.reason()}")
    torch.set_num_threads(threads)
    errors = gradient_errors(settings)
    calls: dict[str, Callable[[], Any]] = {"sgemm": timing.sgemm(), "native": native_steps(settings, threads)}
    calls |= {"tokens": eager_step(by_tokens, settings), "gram": eager_step(by_sums, settings)}
    seconds = timing.interleave(calls, settings.rounds, warm=1)
    seconds["native"] = [turn / PER_CALL for turn in seconds["native"]]
    times = {name: timing.summary(values) for name, values in seconds.items()}
    rate, flops = (
        timing.sgemm_rate(times["sgemm"]["min_s"]),
        step_flops(settings.model, settings.layers, settings.batch),
    )
    forms: dict[str, dict[str, Any]] = {}
    for name in FORMS:
        one, native = times[name], times["native"]
        forms[name] = {**one, "gradient_error": errors[name], "sgemm_percent": 100 * flops / one["min_s"] / rate}
        forms[name] |= {"slower": one["min_s"] / native["min_s"], "slower_median": one["median_s"] / native["median_s"]}
        forms[name] |= {"minutes": STEPS * one["min_s"] / 60, "minutes_median": STEPS * one["median_s"] / 60}
    sgemm = {**times["sgemm"], "gflops": rate / 1e9}
    return {"threads": threads, "flops": flops, "sgemm": sgemm, "forms": forms}
