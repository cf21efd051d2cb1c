"""The few-shot table: softmax, Based and ReBased models answer multiple-choice questions after one example.

    accuracy = mean over questions of 1[the right choice is the most likely one];   chance = mean of 1 / choices

Three small models train on the same bytes of text for the same number of steps, then answer the same questions
(questions.py) of the five sets whose mean ReBased's paper prints. With the data folder tiny-lm, stories15M, a
pretrained softmax model, answers too. Intervals are over questions, each the mean over seeds, paired where models are
compared (few_shot_table.py).
Aksenov et al. 2024, arXiv:2402.10644, one-shot table at 150 million parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import pstdev
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ....data import Tokenizer, data_folder
from ....json_file import finite_or_none
from ....models import LanguageModel
from ....pretrained import load_llama
from ...core.claim import (
    NO,
    OPEN,
    YES,
    Claim,
    Config,
    Control,
    Evidence,
    Finding,
    Number,
    Row,
    Setting,
    Unit,
    unit,
    untested,
)
from ...core.intervals import Interval, interval
from ...core.licence import converged
from ...fewshot.sets import read_set
from ...recall.language import Curve, train
from ...recall.language_config import TextConfig
from ...recall.language_text import prepared
from ...recall.language_verdict import PAPER as REGIME
from ...recall.language_verdict import text_regime
from .few_shot_table import MEANS, PAPER, TITLES, beyond_chance, chart_of, differences, table_of
from .questions import answers, prompts

NAME = "few-shot"
MIXERS = ("softmax", "based", "rebased")
PRETRAINED = {  # name -> weights, tokenizer; files of the data folder tiny-lm
    "stories15M": ("stories15M_f16.npz", "tokenizer32k.bin.gz"),
    "stories260K": ("stories260K.bin", "tok512.bin"),
}
NORMAL = 1.96  # standard errors on each side of 95 %
SMALL = {"vocab_size": 256, "d_model": 64, "n_heads": 2, "key_dim": 8, "batch_size": 4, "lr": 8e-3}
LARGE = {"seq_len": 1024, "d_model": 768, "n_heads": 12, "key_dim": 16, "n_layers": 24, "steps": 20_000, "lr": 1e-3}
# budget -> questions of each set, seeds, sizes, seconds of a unit
BUDGETS: dict[str, tuple[int, int, dict[str, Any], float]] = {
    "smoke": (2, 1, {"seq_len": 32, "d_model": 16, "key_dim": 4, "n_layers": 2, "steps": 2}, 0.3),
    "quick": (16, 3, {"steps": 40}, 2.2),
    "hour": (60, 3, {"steps": 250}, 13.0),
    "paper": (1000, 5, LARGE, 1e6),
}


def units(setting: Setting) -> list[Unit]:
    if "fewshot" not in setting.data:
        return []
    questions, seeds, sizes, seconds = BUDGETS[setting.budget]
    asked = {"experiment": NAME, "sets": list(PAPER), "questions": questions, "shots": 1}
    text = "wikitext2" if "text" in setting.data and setting.budget != "smoke" else "shipped"
    work = []
    for mixer in MIXERS:
        for seed in range(seeds):
            plan = asdict(TextConfig(**{**SMALL, **sizes, "text": text, "mixer": mixer, "seed": seed}))
            work.append(unit(trained, {**asked, "model": mixer, "seed": seed, "training": plan}, seconds))
    if "tiny-lm" in setting.data:
        model = "stories260K" if setting.budget == "smoke" else "stories15M"
        work.append(unit(pretrained, {**asked, "model": model, "seed": 0}, 0.4 * questions))
    return work


def trained(config: Config) -> dict[str, Any]:
    """Train a model on bytes of text, then evaluate it."""
    plan = TextConfig.from_dict(config["training"])
    torch.manual_seed(plan.seed)
    with TemporaryDirectory() as folder:
        text = prepared([plan.text], plan.vocab_size, Path(folder))
        tokenizer = text.tokenizer()
        model = LanguageModel(plan.model(tokenizer.vocab_size))
        source, held = (text.windows(split, plan.seq_len) for split in ("train", "valid"))
        curve = Curve()
        if ending := train(model, source, plan, held, curve):
            return {"ending": ending}
    return {**asked(model, tokenizer, config, plan.seq_len), "curve": finite_or_none(curve)}


def pretrained(config: Config) -> dict[str, Any]:
    """Evaluate a pretrained model."""
    folder = data_folder("tiny-lm")
    if folder is None:
        raise FileNotFoundError(f"{config['model']} lies in the folder 'tiny-lm', which is not there; set LINNET_DATA")
    weights, tokenizer_file = PRETRAINED[config["model"]]
    model, tokenizer = load_llama(folder / weights, folder / tokenizer_file)
    assert tokenizer is not None  # its file was given
    return asked(model, tokenizer, config, model.config.max_length)


def asked(model: LanguageModel, tokenizer: Tokenizer, config: Config, context: int) -> dict[str, Any]:
    """Return ones and zeros for the questions of each set, its chance, and how many questions were truncated."""
    metrics: dict[str, Any] = {"right": {}, "chance": {}, "cut": {}, "parameters": model.parameter_count()}
    model.eval()
    for name in config["sets"]:
        given = read_set(name).first(config["questions"])
        taken, cut = answers(model, tokenizer, prompts(given, config["shots"], seed=0), context)
        pairs = zip(taken, given.items, strict=True)
        metrics["right"][name] = "".join(str(int(choice == item["label"])) for choice, item in pairs)
        metrics["chance"][name], metrics["cut"][name] = given.chance, cut
    return metrics


def read(rows: Sequence[Row]) -> Finding:
    rows = [row for row in rows if "right" in row["metrics"]]
    models = {name: [row for row in rows if row["config"]["model"] == name] for name in TITLES}
    models = {name: of_it for name, of_it in models.items() if of_it}
    absent = [TITLES[name] for name in MIXERS if name not in models]
    if rows and absent:
        return untested(f"there are no answers of {' and '.join(absent)}; run linnet reproduce {NAME} to the end")
    if absent:
        return untested(
            "nothing was asked: the questions lie in the data folder fewshot, which is not there; set LINNET_DATA to "
            f"the folder that holds it, then run linnet reproduce {NAME}"
        )
    better = interval(differences(models["rebased"], models["based"]))
    above = {name: interval(beyond_chance(of_it)) for name, of_it in models.items()}
    state = state_of(better, seed_means(models))
    seeds = min(len(models[name]) for name in ("based", "rebased"))
    first = models["rebased"][0]
    where = text_regime(first["metrics"]["parameters"], first["config"]["training"]["steps"])
    curves = [row["metrics"].get("curve") or [] for name in ("based", "rebased") for row in models[name]]
    controls = [*(knows(name, above[name]) for name in ("based", "rebased")), converged("either model", curves)]
    return Finding(
        Evidence(state, where, controls, seeds),
        sentence_of(models, better, above),
        numbers_of(better, above),
        f"{where.here}, {better.seeds} questions, {seeds} seeds",
        MEANING[state],
        [table_of(models)],
        [chart_of(models)],
    )


def seed_means(models: dict[str, list[Row]]) -> Interval:
    """Return the mean difference of each seed, ReBased less Based: the spread that another training would have."""
    by_seed = [{row["config"]["seed"]: row for row in models[name]} for name in ("rebased", "based")]
    common = sorted(set(by_seed[0]) & set(by_seed[1]))
    each = [differences([by_seed[0][seed]], [by_seed[1][seed]]) for seed in common]
    return interval([sum(of_one) / len(of_one) for of_one in each])


def state_of(better: Interval, seeds: Interval) -> str:
    """Return what the intervals say: over questions, and over seeds."""
    if min(better.low, seeds.low) > 0:
        return YES
    return NO if max(better.high, seeds.high) < 0 else OPEN


def knows(name: str, above: Interval) -> Control:
    """Return the control that a model answers more questions than guessing does."""
    title = TITLES[name]
    detail = f"accuracy of {title} less chance: {_points(above)} points; the interval must be above 0"
    return Control(f"{title} does better than guessing", above.low > 0, detail, f"{title} guesses")


def sentence_of(models: dict[str, list[Row]], better: Interval, above: dict[str, Interval]) -> str:
    clauses = [f"{TITLES[name]} {_points(gap)}" for name, gap in above.items()]
    spread = pstdev(differences(models["rebased"], models["based"]))
    wanted = (NORMAL * spread * 100 / (MEANS[1] - MEANS[0])) ** 2
    text = f"accuracy less chance in points, {better.seeds} questions: {'; '.join(clauses)}. "
    text += f"ReBased less Based: {_points(better)} points. "
    if wanted:
        text += f"A difference as small as the paper's takes about {wanted:,.0f} questions to see. "
    steps = models["rebased"][0]["config"]["training"]["steps"]
    size = models["rebased"][0]["metrics"]["parameters"]
    return text + f"Our models have {size:,} parameters and {steps:,} steps of training, the paper's 150 million"


def numbers_of(better: Interval, above: dict[str, Interval]) -> list[Number]:
    of = f"{better.seeds} questions"
    what = "mean accuracy of five sets after one example, ReBased less Based"
    first = [_number(what, "0.8 (42.1 less 41.3)", better, of)]
    return [*first, *(_number(f"{TITLES[n]}: mean accuracy less chance", None, x, of) for n, x in above.items())]


def _number(what: str, paper: str | None, measured: Interval, of: str) -> Number:
    mean, low, high = (round(100 * value, 6) for value in measured[:3])  # thirds add up to 0 but for rounding
    return Number(what, paper, mean, low, high, of, "points")


def _points(measured: Interval) -> str:
    return f"{100 * measured.mean:.1f} [{100 * measured.low:.1f}, {100 * measured.high:.1f}]"


MEANING = {
    YES: "ReBased answers more questions than Based at equal size and training, also at this scale.",
    NO: "Based answers more questions than ReBased at equal size and training, at this scale.",
    OPEN: "No difference between the two kernels can be seen: choose by recall and speed.",
}
CLAIM = Claim(
    name=NAME,
    number="",
    place=13,
    paper="rebased",
    statement="After one example a ReBased language model answers more questions than a Based one.",
    source=(
        "At 150 million parameters trained on the Pile the paper prints a mean one-shot accuracy of 41.3 % for Based "
        "and 42.1 % for ReBased over five sets, one run each, without error bars and without a softmax row."
    ),
    rule=(
        "yes if ReBased answers more than Based with the interval of the paired difference above 0, over questions and "
        "over seeds; no if both are below 0. Controls: Based and ReBased both answer more questions than chance, with "
        f"the interval over questions; inside the regime no loss falls any more. Regime: {REGIME}"
    ),
    answers={YES: "Yes, ReBased answers more", NO: "No, Based answers more"},
    change="Five seeds of each kernel at a size at which both do better than guessing.",
    units=units,
    read=read,
    needs="questions in the data folder fewshot, without which nothing is asked; stories15M in tiny-lm as a reference",
)
