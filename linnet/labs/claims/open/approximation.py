"""T15: does the squared error of a kernel value estimated by random features fall as one over their number?

kernel_error.py measures the theorem: fixed queries and keys, maps drawn anew, the error by the number of features. It
decides. attention_error.py measures how many features the outputs of attention need; that is reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.claim import (
    NO,
    YES,
    Claim,
    Control,
    Evidence,
    Finding,
    Regime,
    Row,
    Setting,
    Unit,
    figures,
    untested,
)
from ...core.intervals import Interval
from .attention_error import (
    ATTENTION,
    SPREADS,
    attention_chart,
    attention_numbers,
    attention_table,
    attention_units,
    in_practice,
    why_many,
)
from .kernel_error import (
    BAND,
    COSINES,
    EXPECTED,
    FEATURES,
    HEAD_DIM,
    KERNEL,
    NORM,
    Cell,
    deciding,
    kernel_chart,
    kernel_table,
    kernel_units,
    ratios_of,
    slopes_of,
    state_of,
)
from .verdict_logic import shown

SAMPLED = 0.05  # how far the measured variance may be from the derived one


def units(setting: Setting) -> list[Unit]:
    return [*kernel_units(setting.budget), *attention_units(setting.budget)]


def read(rows: Sequence[Row]) -> Finding:
    kernel = [row for row in rows if row["config"]["experiment"] == KERNEL]
    attention = [row for row in rows if row["config"]["experiment"] == ATTENTION]
    if not kernel:
        return untested("the errors of the kernel were not measured")
    slopes, ratios, config = slopes_of(kernel), ratios_of(kernel), kernel[0]["config"]
    worst, off = deciding(slopes), furthest(ratios)
    seeds, features = slopes[worst].seeds, config["features"]
    sentence = (
        f"From {features[0]} to {features[-1]:,} features the expected squared error falls with their number to the "
        f"power {slopes[worst]} in the worst of {len(slopes)} cases ({worst}); the theorem has {EXPECTED:g}. With "
        f"independent rows it is {ratios[off]} times the derived variance in the furthest of {len(ratios)} ({off})"
    )
    numbers = [
        shown(f"log-log slope of the squared error by the number of features ({worst})", slopes[worst]),
        *(shown(f"the same ({cell})", one) for cell, one in slopes.items() if cell.cosine == 0 and cell != worst),
        shown(f"squared error times m / derived variance, furthest from 1 of {len(ratios)} ({off})", ratios[off]),
    ]
    tables, charts = [kernel_table(kernel)], [kernel_chart(kernel)]
    if attention:
        numbers += attention_numbers(attention)
        sentence += f". Apart from the theorem, {in_practice(attention)}"
        tables.append(attention_table(attention))
        charts += [attention_chart(attention, spread) for spread in SPREADS]
    scope = f"width {config['head_dim']}, norm {figures(config['norm'])}, {features[0]} to {features[-1]:,} features"
    evidence = Evidence(state_of(slopes[worst]), REGIME, [sampled(off, ratios[off])], seeds)
    words = advice(evidence.state, attention)
    return Finding(evidence, sentence, numbers, f"{scope}, {seeds} seeds", words, tables, charts)


def furthest(ratios: dict[Cell, Interval]) -> Cell:
    """Return the cell whose measured variance is furthest from the derived one."""
    return max(ratios, key=lambda cell: abs(ratios[cell].mean - 1))


def sampled(cell: Cell, ratio: Interval) -> Control:
    """Return the control that the draws reach the tails: the variance is what was derived for independent rows."""
    detail = (
        f"the variance is {ratio.mean:.3f} times the derived one where it is furthest from it ({cell}); "
        f"{1 - SAMPLED:g} to {1 + SAMPLED:g} is accepted"
    )
    return Control("the draws sample the variance", abs(ratio.mean - 1) <= SAMPLED, detail, "tails were not sampled")


def advice(state: str, attention: Sequence[Row]) -> str:
    if state != YES:
        return "Measure the error with as many random features as you will use: it does not follow from fewer."
    law = "Four times the random features halve the error of a weight."
    if not attention:
        return law
    width = attention[0]["config"]["head_dim"]
    return (
        f"{law} How many are enough depends on the norms of queries and keys: in heads of width {width} "
        f"{in_practice(attention)}, since {why_many(width)}. Random features stand in for softmax where attention is "
        "nearly flat; where it is sharp, train a model with its own feature map rather than approximate one."
    )


REGIME = Regime("a query and a key of any norm", f"norm {NORM:g}, where the variance can be sampled")
CLAIM = Claim(
    name="approximation",
    number="T15",
    paper="open",
    statement="Twice as many random features halve the expected squared error of the softmax kernel.",
    source="Choromanski et al. 2020 (FAVOR+) and Peng et al. 2021 (random Fourier features) estimate the kernel of "
    "softmax without bias by the mean of random terms, whose expected squared error at a fixed query and key is their "
    "variance over their number. The first paper of linear attention leaves the comparison open and gives no number.",
    rule=f"Heads of width {HEAD_DIM}, fixed queries and keys of norm {NORM:g} after scaling, cosines "
    f"{', '.join(f'{one:g}' for one in COSINES)}; FAVOR+ and random Fourier features with orthogonal and with "
    f"independent rows, {FEATURES[0]} to {FEATURES[-1]:,} features. The log-log slope of the expected squared error by "
    "the number of features, a t interval over seeds in each of these cases; the case that reaches furthest from "
    f"{EXPECTED:g} decides. Yes if its interval lies within {BAND:g} of {EXPECTED:g}, no if some interval lies wholly "
    f"outside; open between. Control: with independent rows the variance is within {SAMPLED:.0%} of the derived one. "
    "The features that outputs of attention need are reported, not judged.",
    answers={YES: "Yes, one over the number of features", NO: "No, it falls at another rate"},
    change=f"A query and a key at which the slope has an interval outside {EXPECTED - BAND:g} to {EXPECTED + BAND:g}.",
    units=units,
    read=read,
)
