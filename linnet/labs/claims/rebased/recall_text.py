"""C12: on real text, do Based and ReBased lose more to softmax on recall hits than on all other tokens?

    gap(mixer, part) = loss(mixer, part) - loss(softmax, part), in nats, seed by seed;   part: hits or the rest

Runs, hits and rule are those of `linnet recall text` (linnet/labs/recall/language*.py), on bytes: no package is needed.
Two controls: softmax must be better on hits than a table of bigram counts, or it has not learned to look anything up;
and both kernels must be behind softmax over all tokens, or there is no gap to explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
    Unit,
    number,
    spread,
    untested,
)
from ...core.intervals import interval, paired
from ...recall.language import FOLDER, run
from ...recall.language_config import TextConfig, cost
from ...recall.language_config import Unit as TextUnit
from ...recall.language_table import PARTS
from ...recall.language_text import prepared
from ...recall.language_verdict import (
    LINEAR,
    SOFTMAX,
    Runs,
    ahead_of_table,
    by_mixer,
    gaps,
    losses,
    more_on_hits,
    state_of,
    tables_of,
    verdict,
)
from ...recall.language_verdict import PAPER as REGIME
from ...recall.study import Judged, deciding

MIXERS = (SOFTMAX, *LINEAR)
TABLE = "bigram table"
TITLES = {"softmax": "softmax", "based": "Based", "rebased": "ReBased"}
PAPER = {  # nats behind softmax, from the perplexities that ReBased's paper prints
    ("rebased", "hits"): "0.057 (perplexity 3.25 over 3.07)",
    ("rebased", "rest"): "0.079 (perplexity 36.73 over 33.95)",
    ("based", "hits"): "0.063 (perplexity 3.27 over 3.07)",
    ("based", "rest"): "0.087 (perplexity 37.02 over 33.95)",
}
NAMES = {"hits": "on recall hits", "rest": "on all other tokens"}
SMALL = {"vocab_size": 256, "rare": 0.3, "d_model": 64, "n_heads": 2, "key_dim": 8, "batch_size": 4, "lr": 8e-3}
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"seq_len": 32, "d_model": 16, "key_dim": 4, "n_layers": 2, "steps": 3, "chosen_on": 1, "windows": 8},
    "hour": {"steps": 600, "chosen_on": 32, "windows": 256},
    "paper": {"seq_len": 1024, "d_model": 768, "n_heads": 12, "key_dim": 16, "n_layers": 24, "steps": 20_000}
    | {"vocab_size": 16384, "batch_size": 64, "lr": 1e-3, "rare": 0.5},
}
RATES = {"hour": (3e-3, 8e-3)}  # each mixer uses the better one; other budgets have one rate for all
SEEDS = {"smoke": 1, "paper": 5}  # else 3
SPEED = 9e-8  # seconds of one core for each unit of `cost`


def units(setting: Setting) -> list[Unit]:
    """Return the runs; none in a quick budget, in which no model learns to look anything up."""
    if setting.budget == "quick":
        return []
    text = "wikitext2" if "text" in setting.data and setting.budget != "smoke" else "shipped"
    base = TextConfig(**{**SMALL, **SIZES[setting.budget], "text": text})
    folder = str(setting.out / FOLDER)
    rates, seeds = RATES.get(setting.budget, (base.lr,)), range(SEEDS.get(setting.budget, 3))
    configs = [base.replace(mixer=m, lr=rate, seed=seed).to_dict() for m in MIXERS for rate in rates for seed in seeds]
    return [Unit(rows_of, (config, folder), (config,), 1.0 + SPEED * cost(config)) for config in configs]


def rows_of(work: tuple[Config, str]) -> Iterator[Row]:
    """Yield the row of one run; the folder holds the tokenizer and the tokens, created by the first run."""
    config = TextConfig.from_dict(work[0])
    text = prepared([config.text], config.vocab_size, Path(work[1]))
    yield run(TextUnit(config, text))


def read(rows: Sequence[Row]) -> Finding:
    if not rows:
        return untested("a model learns to look words up in text after some minutes of training: take --budget hour")
    runs = by_mixer(rows)
    result = verdict(runs)
    if not isinstance(result, Judged):
        return Finding(untested("").evidence, result.sentence, tables=tables_of(runs))
    evidence = Evidence(result.state, result.regime, result.controls, result.repeats)
    numbers, tables = numbers_of(runs), tables_of(runs)
    return Finding(evidence, result.sentence, numbers, result.scope, MEANING[result.state], tables, [chart(runs)])


def numbers_of(runs: Runs) -> list[Number]:
    """Return the smaller difference of gaps, which decides, and the gaps next to the paper's."""
    more = {mixer: more_on_hits(runs, mixer) for mixer in LINEAR}
    first = deciding(state_of(more), more, one_refutes=True)
    what = f"gap of {TITLES[first]} to softmax on recall hits less that elsewhere, the smaller of the two kernels"
    lines = [spread(what, None, more[first], unit="nats")]
    for (mixer, part), printed in PAPER.items():
        what = f"loss of {TITLES[mixer]} less that of softmax {NAMES[part]}"
        lines.append(number(what, printed, list(gaps(runs, mixer, part).values()), unit="nats"))
    apart = paired(losses(runs, "rebased", "hits"), losses(runs, "based", "hits"))
    what = "loss of ReBased less that of Based on recall hits"
    lines.append(spread(what, "-0.006 (perplexity 3.25 over 3.27)", apart, unit="nats"))
    ahead = ahead_of_table(runs)
    what = "loss of a table of bigram counts less that of softmax on recall hits"
    return [*lines, *([] if ahead is None else [spread(what, None, ahead, unit="nats")])]


def chart(runs: Runs) -> Chart:
    def bars(by_part: dict[str, list[float]]) -> list[tuple[Any, ...]]:
        return [(NAMES[part], *interval(values)[:3]) for part, values in by_part.items()]

    series = {TITLES[m]: bars({p: list(losses(runs, m, p).values()) for p in PARTS}) for m in MIXERS}
    table = next(iter(runs[SOFTMAX].values()))["metrics"].get("table")
    if table:
        series[TABLE] = bars({part: [table[part]["loss"]] for part in PARTS})
    return Chart("Loss on text, lower is better", "", "nats per byte", series, kind="bars")


MEANING = {
    YES: "What Based and ReBased give up to softmax on text is recall: take softmax, or mix it in, where names and "
    "numbers must be repeated.",
    NO: "At this size recall is not where the gap to softmax lies: the kernels are behind in general.",
    OPEN: "The gap is too small, or too unsteady over seeds, to say where it lies.",
}
CLAIM = Claim(
    name="recall-text",
    number="C12",
    paper="rebased",
    statement="On text, Based and ReBased lose more to softmax where words can be looked up than elsewhere.",
    source=(
        "Zoology's paper prints that 82 % of the gap between gated convolutions and attention is on recall hits, 6.4 % "
        "of the tokens. ReBased's paper, where a hit is any token seen before, prints perplexities on hits of 3.07 "
        "(softmax), 3.27 (Based) and 3.25 (ReBased), and 33.95, 37.02 and 36.73 on the rest, at 150 million "
        "parameters, one run each."
    ),
    rule=(
        "yes if for Based and for ReBased the gap to softmax on hits less the gap on the rest has an interval above 0; "
        "no if for one of them it lies below 0. Controls: softmax is better on hits than a table of bigram counts, and "
        "both kernels are behind softmax over all tokens, each with its interval; inside the regime no loss falls any "
        f"more. Regime: {REGIME}"
    ),
    answers={YES: "Yes, the gap is larger on recall hits", NO: "No, the gap is smaller on recall hits"},
    change="Five seeds of models large enough that softmax is ahead of both kernels over all tokens.",
    units=units,
    read=read,
    needs="WikiText-2 in the data folder `text`; without it the shipped novel",
)
