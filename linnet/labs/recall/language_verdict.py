"""The rule about language models on text: losses of each mixer on hits and on the rest, and gaps to softmax.

    gap(mixer, part) = loss(mixer, part) - loss(softmax, part), seed by seed, in nats
    more on hits     = gap(mixer, hits) - gap(mixer, rest): what the rule judges
    share of hits    = gap on hits x number of hits / gap on all targets x their number: Zoology's 82 %

Two controls precede it: softmax is better on hits than a table of bigram counts, and the others are behind softmax at
all. Each mixer runs at the rate that is best on the validation windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp

from ..core.intervals import Interval, interval, paired
from ..core.licence import Control, Regime, converged, regime
from ..core.results import Row
from ..core.verdicts import FEWEST, NO, OPEN, UNTESTED, YES, Table, Verdict
from .cells import NAMES, best_rate
from .language_config import TextConfig
from .language_table import PARTS
from .study import Judged

SOFTMAX, LINEAR = "softmax", ("based", "rebased")
PAPER = "150 million parameters, 20,000 steps"
MILLIONS, STEPS = 150, 20_000
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
GAPS = ("mixer", "more than softmax on hits", "on the rest", "difference", "share of hits")
Runs = dict[str, dict[int, Row]]  # mixer -> seed -> row


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
    if len(seeds) < FEWEST:
        names = ", ".join((SOFTMAX, *LINEAR))
        plural = "" if len(seeds) == 1 else "s"
        return Verdict(UNTESTED, f"{names} have {len(seeds)} seed{plural} in common; {FEWEST} are needed")
    more = {mixer: more_on_hits(runs, mixer) for mixer in LINEAR}
    sentence = "loss on hits beyond softmax's, less that on the rest, in nats: "
    sentence += "; ".join(f"{NAMES[mixer]} {gap}" for mixer, gap in more.items())
    row = next(iter(runs[LINEAR[0]].values()))
    where = text_regime(row["info"]["parameters"], row["config"]["steps"])
    curves = [one["metrics"].get("curve") or [] for mixer in (SOFTMAX, *LINEAR) for one in runs[mixer].values()]
    controls = [looks_up(runs), behind(runs), converged("a model", curves)]
    scope = f"{where.here} on {row['config']['text']}, {len(seeds)} seeds"
    return Judged(state_of(more), sentence, where, controls, len(seeds), scope)


def text_regime(parameters: int, steps: int) -> Regime:
    """Return the regime of a language model: the paper trained one size for one number of steps."""
    millions = parameters / 1e6
    here = f"{millions:.3g} million parameters, {steps:,} steps"
    sizes = (round(millions, 3), MILLIONS, MILLIONS), (steps, STEPS, STEPS)
    return regime(PAPER, here, million_parameters=sizes[0], steps=sizes[1])


def state_of(more: Mapping[str, Interval]) -> str:
    """Return what the gaps on hits less those on the rest say."""
    if any(gap.high < 0 for gap in more.values()):
        return NO
    return YES if all(gap.low > 0 for gap in more.values()) else OPEN


def ahead_of_table(runs: Runs) -> Interval | None:
    """Return the nats by which softmax is better on hits than the table; None where no table was measured."""
    measured = [row["metrics"] for row in runs[SOFTMAX].values() if "table" in row["metrics"]]
    return interval([one["table"]["hits"]["loss"] - one["hits"]["loss"] for one in measured]) if measured else None


def looks_up(runs: Runs) -> Control:
    """Return the control that softmax is better on hits than a table that looks nothing up."""
    ahead = ahead_of_table(runs)
    name, short = "softmax looks things up", "softmax looks nothing up"
    if ahead is None:
        return Control(name, False, "no table of bigram counts was measured, so what softmax learned is unknown", short)
    detail = f"on hits softmax is better than a table of bigram counts by {ahead} nats; more than 0 is needed"
    return Control(name, ahead.low > 0, detail, short)


def behind(runs: Runs) -> Control:
    """Return the control that there is a gap to explain: both kernels lose more than softmax on all tokens."""
    every = {mixer: interval(list(gaps(runs, mixer, "all").values())) for mixer in LINEAR}
    least = min(every, key=lambda mixer: every[mixer].low)
    detail = f"over all tokens the loss of {NAMES[least]} less that of softmax is {every[least]} nats; more than 0 is "
    detail += "needed, or there is no gap to explain"
    return Control("the kernels are behind softmax", every[least].low > 0, detail, "no gap to explain")


def more_on_hits(runs: Runs, mixer: str) -> Interval:
    return paired(gaps(runs, mixer, "hits"), gaps(runs, mixer, "rest"))


def tables_of(runs: Runs) -> list[Table]:
    lines = [_losses_line(mixer, list(seeds.values()), runs) for mixer, seeds in runs.items()]
    tables = [Table(LOSSES, lines, _title(runs))]
    others = [mixer for mixer in runs if mixer != SOFTMAX and SOFTMAX in runs and set(runs[mixer]) & set(runs[SOFTMAX])]
    if others:
        lines = [_gaps_line(runs, mixer) for mixer in others]
        tables.append(Table(GAPS, lines, "loss less that of softmax at the same seed, in nats (below 0: ahead)"))
    return tables


def _title(runs: Runs) -> str:
    row = next((row for seeds in runs.values() for row in seeds.values()), None)
    if row is None:
        return "no run ended with a loss that is a number"
    config, metrics = row["config"], row["metrics"]
    hits, every = metrics["hits"]["targets"], metrics["all"]["targets"]
    rare = f"bigrams seen at most {metrics['most']} times in training"
    return f"{config['text']}: {hits:,} hits of {every:,} held-out tokens, {rare}; mean nats and their 95 % t interval"


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
    share = f"{on_hits / whole:.0%}" if 0 < on_hits <= whole else "-"  # no share of a gap that has two signs
    means = (str(interval(list(seeds.values()))) for seeds in (hits, rest))
    return (mixer, *means, str(more_on_hits(runs, mixer)), share)
