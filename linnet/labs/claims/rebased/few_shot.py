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
from ....models import LanguageModel
from ....pretrained import load_llama
from ...core.claim import (
    CONFIRMED,
    REFUTED,
    UNCLEAR,
    UNTESTED,
    Claim,
    Config,
    Finding,
    Number,
    Row,
    Setting,
    Unit,
    unit,
    untested,
)
from ...core.intervals import Interval, interval
from ...fewshot.sets import read_set
from ...recall.language import train
from ...recall.language_config import TextConfig
from ...recall.language_text import prepared
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
    "paper": (1000, 3, LARGE, 1e6),
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
        if ending := train(model, text.windows("train", plan.seq_len), plan):
            return {"ending": ending}
    return asked(model, tokenizer, config, plan.seq_len)


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
            f"the folder that holds it, then run linnet reproduce {NAME}",
            "Nothing was measured: the package ships no questions.",
        )
    better = interval(differences(models["rebased"], models["based"]))
    above = {name: interval(beyond_chance(of_it)) for name, of_it in models.items()}
    outcome = outcome_of(better, above)
    return Finding(
        outcome,
        sentence_of(models, better, above),
        numbers_of(better, above),
        meaning_of(outcome, above),
        [table_of(models)],
        [chart_of(models)],
    )


def outcome_of(better: Interval, above: dict[str, Interval]) -> str:
    if any(above[name].low <= 0 for name in ("based", "rebased")):
        return UNTESTED
    if better.low > 0:
        return CONFIRMED
    return REFUTED if better.high < 0 else UNCLEAR


def sentence_of(models: dict[str, list[Row]], better: Interval, above: dict[str, Interval]) -> str:
    clauses = [f"{TITLES[name]} {_points(gap)}" for name, gap in above.items()]
    spread = pstdev(differences(models["rebased"], models["based"]))
    wanted = (NORMAL * spread * 100 / (MEANS[1] - MEANS[0])) ** 2
    text = f"points above chance on {better.seeds} questions: {'; '.join(clauses)}. "
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
    return [*first, *(_number(f"{TITLES[n]}: mean accuracy above chance", None, x, of) for n, x in above.items())]


def _number(what: str, paper: str | None, measured: Interval, of: str) -> Number:
    mean, low, high = (round(100 * value, 6) for value in measured[:3])  # thirds add up to 0 but for rounding
    return Number(what, paper, mean, low, high, of, "points")


def _points(measured: Interval) -> str:
    return f"{100 * measured.mean:.1f} [{100 * measured.low:.1f}, {100 * measured.high:.1f}]"


def meaning_of(outcome: str, above: dict[str, Interval]) -> str:
    if outcome == UNTESTED:
        known = [TITLES[name] for name, gap in above.items() if gap.low > 0]
        note = f"Of the models asked only {' and '.join(known)} did better than guessing. " if known else ""
        return (
            f"{note}Models that a small machine trains in this time guess, so they cannot show which kernel "
            "answers questions better; the paper's difference has no error bar either. Choose by recall and speed."
        )
    if outcome == CONFIRMED:
        return "ReBased answers more questions than Based at equal size and training, also at this scale."
    if outcome == REFUTED:
        return "Based answers more questions than ReBased at equal size and training, at this scale."
    return "Both do better than guessing, and no difference between them can be seen: either will do."


CLAIM = Claim(
    name=NAME,
    number="",
    place=13,
    paper="rebased",
    question="Does a better kernel make a linear language model better at answering questions from one example?",
    statement=(
        "At 150 million parameters trained on the Pile the paper prints a mean one-shot accuracy of 41.3 % for Based "
        "and 42.1 % for ReBased over five sets, one run each, without error bars and without a softmax row."
    ),
    rule=(
        "Not testable unless Based and ReBased both answer more questions than chance, with the interval over "
        "questions. Then confirmed if ReBased answers more than Based with the interval of the paired difference above "
        "0, refuted if it is below 0."
    ),
    units=units,
    read=read,
    needs="questions in the data folder fewshot, without which nothing is asked; stories15M in tiny-lm as a reference",
)
