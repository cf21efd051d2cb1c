"""The verdict of `linnet recall text`: losses of each mixer on hits and on the rest, and gaps to softmax.

    gap(mixer, part) = loss(mixer, part) - loss(softmax, part), seed by seed, in nats
    share of hits    = gap on hits x number of hits / gap on all targets x their number: Zoology's 82 %

The rule was fixed before any row was computed. Each mixer runs at the rate that is best on the validation windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp
from typing import Any

from ...json_file import finite_or_none
from ..core.intervals import Interval, interval, paired
from ..core.results import Row
from ..core.verdicts import CONFIRMED, REFUTED, UNCLEAR, UNTESTED, Table, Verdict
from .cells import best_rate
from .document import about, table_dicts
from .language import PARTS
from .language_config import TextConfig

SOFTMAX, LINEAR = "softmax", ("based", "rebased")
ENOUGH = 3  # seeds
QUESTION = (
    "Do linear kernels lose to softmax attention on what could be looked up, and do Based and ReBased differ there?"
)
EXPECTED = (
    "Zoology: gated convolutions lose 82 % of their gap on hits; ReBased's paper, where a hit is any token that stood "
    "before: perplexity 3.07 softmax, 3.27 Based, 3.25 ReBased on hits, 33.95, 37.02, 36.73 on the rest"
)
RULE = (
    "confirmed if softmax is ahead of Based and of ReBased by more on hits than on the rest, and the two differ on "
    f"hits by less than either is behind, each difference above 0 with its interval over {ENOUGH} seeds or more; "
    "refuted if one of them is below 0 with its interval"
)
LOSSES = (
    "mixer",
    "hits",
    "perplexity",
    "rest",
    "perplexity",
    "bits per token",
    "parameters",
    "state bytes",
    "rate",
    "s",
)
GAPS = ("mixer", "behind softmax on hits", "on the rest", "more on hits", "share of hits")
Runs = dict[str, dict[int, Row]]  # mixer -> seed -> row


def document(rows: Sequence[Row], minutes: float) -> dict[str, Any]:
    """Return one comparison as JSON values, in the form of a study's document."""
    runs = by_mixer(rows)
    result = verdict(runs)
    summary: dict[str, Any] = {"name": "text", "claim": "C12", "question": QUESTION, "expected": EXPECTED, "rule": RULE}
    summary |= {"outcome": result.outcome, "sentence": result.sentence, "tables": table_dicts(tables_of(runs))}
    return dict(finite_or_none({**about(rows, minutes), **summary}))


def by_mixer(rows: Sequence[Row]) -> Runs:
    """Return the runs of each mixer at its best rate, without runs whose loss is not finite."""
    runs: dict[str, dict[float, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if all(row["metrics"][part]["loss"] is not None for part in PARTS):
            config = TextConfig.from_dict(row["config"])
            runs[config.mixer][config.lr][config.seed] = row
    return {mixer: dict(sorted(rates[best_rate(rates)].items())) for mixer, rates in runs.items()}


def losses(runs: Runs, mixer: str, part: str) -> dict[int, float]:
    return {seed: row["metrics"][part]["loss"] for seed, row in runs[mixer].items()}


def gaps(runs: Runs, mixer: str, part: str) -> dict[int, float]:
    """Return the gaps to softmax over the seeds that both have."""
    ours, theirs = losses(runs, mixer, part), losses(runs, SOFTMAX, part)
    return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}


def verdict(runs: Runs) -> Verdict:
    absent = [mixer for mixer in (SOFTMAX, *LINEAR) if mixer not in runs]
    if absent:
        return Verdict(UNTESTED, f"no row for {absent[0]}" + (" and others" if absent[1:] else ""))
    seeds = set.intersection(*(set(runs[mixer]) for mixer in (SOFTMAX, *LINEAR)))
    if len(seeds) < ENOUGH:
        names = ", ".join((SOFTMAX, *LINEAR))
        return Verdict(UNTESTED, f"{names} have {len(seeds)} seeds in common; {ENOUGH} are needed")
    differences = {f"{m}: behind on hits by more than on the rest by": more_on_hits(runs, m) for m in LINEAR}
    differences["behind softmax on hits by more than they differ by"] = closer_together(runs, sorted(seeds))
    sentence = "; ".join(f"{name} {gap}" for name, gap in differences.items())
    if all(gap.low > 0 for gap in differences.values()):
        return Verdict(CONFIRMED, sentence)
    return Verdict(REFUTED if any(gap.high < 0 for gap in differences.values()) else UNCLEAR, sentence)


def more_on_hits(runs: Runs, mixer: str) -> Interval:
    return paired(gaps(runs, mixer, "hits"), gaps(runs, mixer, "rest"))


def closer_together(runs: Runs, seeds: Sequence[int]) -> Interval:
    """Return the smaller of the two gaps on hits minus the distance between the two kernels."""
    first, second = (gaps(runs, mixer, "hits") for mixer in LINEAR)
    return interval([min(first[seed], second[seed]) - abs(first[seed] - second[seed]) for seed in seeds])


def tables_of(runs: Runs) -> list[Table]:
    lines = [_losses_line(mixer, list(seeds.values()), runs) for mixer, seeds in runs.items()]
    tables = [Table(LOSSES, lines, _title(runs))]
    others = [mixer for mixer in runs if mixer != SOFTMAX and SOFTMAX in runs and set(runs[mixer]) & set(runs[SOFTMAX])]
    if others:
        lines = [_gaps_line(runs, mixer) for mixer in others]
        tables.append(Table(GAPS, lines, "nats behind softmax at the same seed"))
    return tables


def _title(runs: Runs) -> str:
    row = next((row for seeds in runs.values() for row in seeds.values()), None)
    if row is None:
        return "no run ended with a loss that is a number"
    config, metrics = row["config"], row["metrics"]
    hits, every = metrics["hits"]["targets"], metrics["all"]["targets"]
    rare = f"bigrams seen at most {metrics['most']} times in training"
    return f"{config['text']}: {hits:,} hits of {every:,} held-out tokens, {rare}; mean nats and their 95 % interval"


def _losses_line(mixer: str, rows: list[Row], runs: Runs) -> tuple[str, ...]:
    hits, rest = (interval(list(losses(runs, mixer, part).values())) for part in PARTS)
    bits = interval([row["metrics"]["all"]["bits"] for row in rows])
    sizes = (f"{rows[0]['info']['parameters']:,}", f"{rows[0]['metrics']['state_bytes']:,}")
    seconds = sum(row["seconds"] for row in rows) / len(rows)
    shown = (str(hits), f"{exp(hits.mean):.2f}", str(rest), f"{exp(rest.mean):.2f}", f"{bits.mean:.3f}")
    return (f"{mixer} ({len(rows)} seeds)", *shown, *sizes, f"{rows[0]['config']['lr']:g}", f"{seconds:.0f}")


def _gaps_line(runs: Runs, mixer: str) -> tuple[str, ...]:
    hits, rest = (gaps(runs, mixer, part) for part in PARTS)
    counts = next(iter(runs[mixer].values()))["metrics"]
    on_hits = sum(hits.values()) * counts["hits"]["targets"]
    whole = on_hits + sum(rest.values()) * counts["rest"]["targets"]
    share = f"{on_hits / whole:.0%}" if whole > 0 and on_hits > 0 else "-"
    means = (str(interval(list(seeds.values()))) for seeds in (hits, rest))
    return (mixer, *means, str(more_on_hits(runs, mixer)), share)
