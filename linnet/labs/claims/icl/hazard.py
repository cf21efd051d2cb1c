"""Models that are equally good on the noise of their training can differ on more: many fits of one model, tested there.

    fit       DIAG, 4 layers, sigma 1 or 3: the shipped model's weights, each times 1 + JITTER N(0, 1), minimised by
              Levenberg-Marquardt on POOL sequences; each seed is a start, and the loss has several minima
    outside   sigma = 6, twice the largest of the training: mean, median, share of sequences with ½|w - w_true|² > 50
    guard     the check of linnet/regress/adapt.py on the same sums: where it rejects a prediction, AdaRR replaces it

L layers are a polynomial of degree up to 3^L in the examples (Vladymyrov et al. 2024, arXiv:2402.14180, figure 3 goes
as far out). Training determines it where the sequences are, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....regress import pretrained
from ....regress.adapt import Problem, distrust
from ....regress.gram import Gram
from ....regress.model import ICLTransformer
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Chart,
    Claim,
    Config,
    Control,
    Evidence,
    Finding,
    Number,
    Setting,
    Table,
    Unit,
    figures,
    number,
    unit,
    untested,
)
from ...core.results import Row
from ...icl.baselines import ada_rr
from ...icl.engine import pool
from ...icl.evaluate import TEST_SEED, Score, evaluate_model, predictor, profile, score
from ...icl.grow import LOST
from ...icl.newton import minimise
from ...icl.noise import Noise
from ...icl.paper import LAYERS, TABLE1
from ...icl.recipes import Cell, finish, parameters
from ...icl.regression import Regression
from .chains import TWO, curve, too_few
from .controls import counted, regime_of

EXPERIMENT = "icl-hazard"
JITTER, POOL_SEED = 0.3, 101  # .3, .5 and .6 were tried: each reaches both kinds of minima, .3 with the fewest bad fits
TEMPERS = (30.0, 1e3)  # first the bulk of the sequences, then nearly all
SIGMAS = (1.0, 3.0, 4.0, 5.0, 6.0)
INSIDE, OUTSIDE = 3.0, 6.0
POOL = {"smoke": 64, "quick": 4096, "hour": 4096, "paper": 16_384}
SEEDS = {"smoke": 2, "quick": 6, "hour": 24, "paper": 96}
SEQUENCES = {"smoke": 200, "quick": 10_000, "hour": 20_000, "paper": 100_000}
GUARDED = {"smoke": 20, "quick": 2_000, "hour": 5_000, "paper": 20_000}
LIKE = 1.1  # times the least loss inside: as good a model as any
EXPLODES, SAFE = 0.01, 0.001  # share of sequences that diverge
DEPTH = 4  # layers of the model
SOLVED = 0.5  # a loss of ridge outside below which the sequences there can be solved


def measure(config: Config) -> dict[str, Any]:
    model = fitted(config)
    inside = evaluate_model(model, Noise.parse(config["noise"]), config["sequences"])
    metrics: dict[str, Any] = curve(profile(predictor(model), config["sigmas"], count=config["sequences"]))
    metrics |= {"inside": inside.sharp, "inside_diverged": inside.diverged}
    asked, ridge, share = guarded(model, OUTSIDE, config["guarded"])
    metrics |= {"guarded": asked.sharp, "guarded_diverged": asked.diverged, "ridge": ridge.sharp, "to_ridge": share}
    metrics["to_ridge_inside"] = guarded(model, INSIDE, config["guarded"])[2]
    return metrics


def fitted(config: Config) -> ICLTransformer:
    """Return one of the minima, depending on the start."""
    generator = torch.Generator().manual_seed(config["seed"])
    p, q, _ = parameters(pretrained("diag"))
    p, q = (v * (1 + config["jitter"] * torch.randn(v.shape, generator=generator, dtype=v.dtype)) for v in (p, q))
    cell = Cell("diag", config["noise"], config["layers"], config["seed"])
    sequences = pool(cell.problem, config["pool"], POOL_SEED)
    for temper in TEMPERS:
        p, q, _ = minimise(sequences, p, q, iterations=60, temper=temper, most=LOST * cell.d)
    return finish(cell, p, q, {}).model


def guarded(model: ICLTransformer, sigma: float, count: int) -> tuple[Score, Score, float]:
    """Return the score with AdaRR in place of rejected predictions, that of AdaRR alone, and the share rejected."""
    problem = Regression(Noise("fixed", (sigma,)), model.config.d, model.config.n)
    batch = problem.sample(count, torch.Generator().manual_seed(TEST_SEED))
    with torch.no_grad():
        w, ridge = model.weights(batch.gram.s), ada_rr(batch.gram)
    doubted = doubts(batch.gram, w)
    return (
        score(torch.where(doubted.unsqueeze(-1), ridge, w), batch),
        score(ridge, batch),
        float(doubted.double().mean()),
    )


def doubts(gram: Gram, w: Tensor) -> Tensor:
    """Return [B]: whether the regressor's guard rejects the prediction."""
    sums = zip(gram.sigma.numpy(), gram.alpha.numpy(), gram.lam.tolist(), gram.n.tolist(), w.numpy(), strict=True)
    return torch.tensor([distrust(Problem(*problem), answer) is not None for *problem, answer in sums])


def units(setting: Setting) -> list[Unit]:
    sizes = {"pool": POOL, "sequences": SEQUENCES, "guarded": GUARDED}
    of = {name: by_budget[setting.budget] for name, by_budget in sizes.items()}
    about = {
        "experiment": EXPERIMENT,
        "kind": "diag",
        "noise": TWO,
        "layers": DEPTH,
        "jitter": JITTER,
        "sigmas": list(SIGMAS),
    }
    return [unit(measure, about | {"seed": seed} | of, 2.0) for seed in range(SEEDS[setting.budget])]


def read(rows: Sequence[Row]) -> Finding:
    early = too_few(rows)
    if early:
        return early
    models = [row["metrics"] | {"seed": row["config"]["seed"]} for row in rows if row["metrics"]["inside"] is not None]
    least = min((model["inside"] for model in models), default=0.0)
    good = sorted((one for one in models if one["inside"] <= LIKE * least), key=lambda model: model["inside"])
    if not good:
        return untested("no fit is finite")
    sigmas = rows[0]["config"]["sigmas"]
    out = sigmas.index(OUTSIDE)
    exploding = [model for model in good if model["diverged"][out] > EXPLODES]
    near = any(model["diverged"][out] > SAFE for model in good)
    state = YES if exploding else OPEN if near else NO
    sentence = (
        f"{len(exploding)} of {len(good)} fits that are equally good inside (loss {figures(least)} to "
        f"{figures(max(model['inside'] for model in good))}) lose more than {EXPLODES:.0%} of the sequences at sigma "
        f"{OUTSIDE:g}{', the best of all inside among them' if good[0] in exploding else ''}; with the guard the mean "
        f"there is {figures(_mean(exploding or good, 'guarded'))}, ridge has {figures(_mean(good, 'ridge'))}"
    )
    about = rows[0]["config"]
    axes = {"layers": (about["layers"], LAYERS[0], LAYERS[-1]), "sigma": (max(sigmas), 0.0, OUTSIDE)}
    here = f"DIAG with {about['layers']} layers, sigma {OUTSIDE:g} after 1 and 3"
    regime = regime_of(rows, f"{LAYERS[0]} to {LAYERS[-1]} layers, sigma 0 to {OUTSIDE:g} after 1 and 3", here, **axes)
    evidence = Evidence(state, regime, controls(good, least), len(good), "fits")
    scope = f"{regime.here}, {counted(len(good), 'fits')}, {about['sequences']:,} sequences"
    return Finding(evidence, sentence, _numbers(good, exploding, out), scope, _meaning(good, exploding),
                   [_table(models, out)], _charts(good, sigmas))  # fmt: skip


def controls(good: Sequence[dict[str, Any]], least: float) -> list[Control]:
    """Return the controls: the fits are good and safe inside, and the sequences outside can be solved."""
    printed, lost = TABLE1["diag", DEPTH, TWO], max(model["inside_diverged"] for model in good)
    ridge = _mean(good, "ridge")
    return [
        Control("the fits are as good as the paper's model", least <= LIKE * printed,
                f"the best loss inside is {figures(least)}, the paper prints {printed:.3f}; {LIKE:g} times that is "
                "accepted", "the fits did not learn"),
        Control("the fits are safe on the noise of their training", lost <= SAFE,
                f"at most {lost:.2%} of the sequences inside diverge; {SAFE:.1%} is accepted", "fits diverge inside"),
        Control("the sequences outside can be solved", ridge <= SOLVED,
                f"ridge with an estimated penalty loses {figures(ridge)} on them; {SOLVED:g} is accepted",
                "ridge fails as well"),
    ]  # fmt: skip


def _numbers(good: Sequence[dict[str, Any]], exploding: Sequence[dict[str, Any]], out: int) -> list[Number]:
    outside = f"sigma {OUTSIDE:g}, trained on 1 and 3"
    shown = max(good, key=lambda model: model["diverged"][out])
    most = f"at {outside}, of the fit that diverges most"
    numbers = [
        Number(f"fits equally good inside that explode at {outside}", None, len(exploding), unit=f"of {len(good)}"),
        Number(f"sequences that diverge {most}", None, 100 * shown["diverged"][out], unit="%"),
        Number(f"median loss {most}", None, shown["median"][out]),
    ]
    if shown["mean"][out] is not None:
        numbers.append(Number("mean loss there, of the same fit", None, shown["mean"][out]))
    of = exploding or good
    kind = "that explode" if exploding else "equally good inside"
    numbers.append(number(f"mean loss there with the guard, fits {kind}", None, [m["guarded"] for m in of], of="fits"))
    numbers.append(
        number("share of answers there that the guard hands to ridge", None, [m["to_ridge"] for m in of], "fits")
    )
    return numbers


def _meaning(good: Sequence[dict[str, Any]], exploding: Sequence[dict[str, Any]]) -> str:
    if not exploding:
        return "None of these fits explodes on twice the noise, though nothing in the training forbids it: check yours."
    caught = _mean(exploding, "guarded_diverged") <= SAFE
    text = (
        "A test on the training's own noise does not tell a safe model from one that explodes: test outside it, and "
        "look at the mean as well as the median. "
    )
    if caught:
        text += "Checking each answer against its own examples, with ridge to fall back on, catches what explodes"
        share = _mean(good, "to_ridge_inside")
        few = f"{share:.1%}" if share >= 1e-3 else "less than 0.1%"
        text += f" and hands over {few} of the answers inside the training's range."
        better = _mean(good, "ridge") < _mean(exploding, "guarded")
        return text + (" Outside it, ridge alone is better still." if better else "")
    return text + "Checking each answer against its own examples catches only a part of what explodes."


def _mean(models: Sequence[dict[str, Any]], name: str) -> float:
    values = [model[name] for model in models if model[name] is not None]
    return sum(values) / len(values) if values else float("inf")


def _table(models: Sequence[dict[str, Any]], out: int) -> Table:
    body = [
        (str(model["seed"]), figures(model["inside"]), figures(model["median"][out]), _large(model["mean"][out]),
         f"{model['diverged'][out]:.2%}", figures(model["guarded"]), f"{model['to_ridge']:.1%}")
        for model in sorted(models, key=lambda model: model["inside"])
    ]  # fmt: skip
    head = ("start", "loss inside", "median outside", "mean outside", "diverged", "with guard", "to ridge")
    return Table(head, body, f"each fit, inside (sigma 1 or 3) and outside (sigma {OUTSIDE:g})")


def _large(value: float | None) -> str:
    return "not finite" if value is None else figures(value)


def _charts(good: Sequence[dict[str, Any]], sigmas: Sequence[float]) -> list[Chart]:
    out = len(sigmas) - 1
    ranked = sorted(good, key=lambda model: model["diverged"][out])
    ends = {"safest": ranked[0], "wildest": ranked[-1]}
    series = {
        f"{name}, {what}": [(s, v) for s, v in zip(sigmas, model[what], strict=True) if v is not None and v > 0]
        for name, model in ends.items()
        for what in ("mean", "median")
    }
    caption = "Two fits that are equally good at sigma 1 and 3. The median hides what the mean shows."
    return [Chart("inside and outside", "sigma", "loss above the oracle", series, log_y=True, caption=caption)]


CLAIM = Claim(
    name="hazard",
    number="",
    place=6,
    paper="icl",
    statement="A model as good as any on the noise of its training can still fail on twice that noise.",
    source="The paper draws the loss of models trained on noise of 1 and 3 up to a noise of 6, finds that DIAG "
    "carries over better than FULL, and prints no number; it says nothing about rare sequences. As a layer multiplies "
    "its tokens, four of them are a polynomial of high degree, which has to explode somewhere.",
    rule=f"of the fits with a loss of no more than {LIKE:g} times the best on the training's noise: yes if one or more "
    f"lose over {EXPLODES:.0%} of the sequences at sigma {OUTSIDE:g}; no if none loses over {SAFE:.1%} there; open "
    f"otherwise. Controls: the best fit is within {LIKE:g} times the paper's loss, no fit loses over {SAFE:.1%} "
    "inside, and ridge solves the sequences outside. Regime: d = 10, n = 20, up to 7 layers and sigma 6",
    answers={YES: "Yes, some of the best fits explode", NO: "No, none of the best fits explodes"},
    change=f"many more starts, none of which loses over {SAFE:.1%} of the sequences at sigma {OUTSIDE:g}",
    units=units,
    read=read,
)
