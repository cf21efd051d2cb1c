"""At the same bytes of state, which mixers recall more than a rival: what C1 and C13 ask of their rows.

    lead = accuracy(mixer) - accuracy(rival), seed by seed, at each place (a number of tokens and a width)

Yes if at every place the leads of all `ahead` have intervals above 0; no if at every place one of them lies below 0.
Places count where the rival has learned and is not at its ceiling; if there is none, the controls fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.claim import Number, spread
from ..core.intervals import Interval, paired
from ..core.licence import CEILING, learned, room, settled
from ..core.results import Row
from ..core.verdicts import NO, OPEN, YES, Cell, Table, Verdict, intervals, missing
from .bench import Bench
from .cells import NAMES, RECALL, Charts, bar_chart, by_cell, curves_of, point, recall
from .config import RecallConfig
from .study import deciding, everywhere, judged

EXACT = "softmax"
PERFECT = 0.99  # floor of softmax
LEARNED = 0.3  # floor of the rival
MOST = 4  # mixers whose recall is a number; the table has all
TITLE = "recall at the same bytes of state"
Place = tuple[int, int]  # tokens, width
Cells = Mapping[Cell, Mapping[int, float]]
Leads = dict[Place, dict[str, Interval]]


@dataclass(frozen=True)
class Race:
    """Mixers at the same bytes: `ahead` of them should lead `rival`, the others are shown."""

    ahead: tuple[str, ...]
    rival: str
    shown: tuple[str, ...]
    bench: Bench

    @property
    def judged(self) -> tuple[str, ...]:
        """Return the mixers that every place needs; the others may be missing at some."""
        return (EXACT, *self.ahead, self.rival)

    @property
    def mixers(self) -> tuple[str, ...]:
        return (*self.judged, *self.shown)

    def verdict(self, rows: Sequence[Row]) -> Verdict:
        cells = by_cell(rows, cell)
        places = places_of(cells)
        words = {place: named(place, places, " ") for place in places}
        seeds_of = {(words[place], mixer): seeds for (place, mixer), seeds in cells.items()}
        absent = missing(seeds_of, [(words[place], mixer) for place in places for mixer in self.judged])
        if absent:
            return absent
        gaps, rival = self.leads(cells), NAMES[self.rival]
        state = everywhere([state_of(at_place) for at_place in gaps.values()])
        clauses = [
            f"{named(place, places, ' = ')}: {NAMES[one]} less {rival} {gap}"
            for place, at_place in gaps.items()
            for one, gap in at_place.items()
        ]
        means = {one: seeds.mean for one, seeds in intervals(dict(cells)).items()}
        rivals = {f"{rival} at {named(place, places, ' ')}": means[place, self.rival] for place in gaps}
        controls = [
            learned("softmax", min(means[place, EXACT] for place in gaps), PERFECT),
            learned(rival, min(rivals.values()), LEARNED),
            room(rivals),
            settled(rival, curves_of(rows, cell, [(place, self.rival) for place in gaps])),
        ]
        seeds = min(gap.seeds for at_place in gaps.values() for gap in at_place.values())
        return judged(state, f"{TITLE}, {'; '.join(clauses)}", rows, self.bench, seeds, controls)

    def leads(self, cells: Cells) -> Leads:
        """Return place -> mixer -> lead, at the places that count, or at all if none does."""
        means = {one: sum(seeds.values()) / len(seeds) for one, seeds in cells.items()}
        places = places_of(cells)
        able = [place for place in places if LEARNED <= means[place, self.rival] < CEILING]
        return {
            place: {one: paired(cells[place, one], cells[place, self.rival]) for one in self.ahead}
            for place in able or places
        }

    def tables(self, rows: Sequence[Row]) -> list[Table]:
        measured, stored = intervals(by_cell(rows, cell)), by_cell(rows, cell, "mixer_bytes")
        several = len({tokens for (tokens, _), _ in measured}) > 1
        lines = []
        for place, mixer in sorted(measured, key=lambda one: (*by_width(one[0]), self.mixers.index(one[1]))):
            seeds, size = measured[place, mixer], max(stored[place, mixer].values())
            line = (str(place[1]), mixer, f"{size:,}", str(seeds), str(seeds.seeds))
            lines.append((f"{place[0]:,}", *line) if several else line)
        head = ("d", "mixer", "bytes of state", "accuracy", "seeds")
        return [Table(("tokens", *head) if several else head, lines, TITLE)]

    def numbers(self, rows: Sequence[Row]) -> list[Number]:
        """Return the lead that decides, and the recalls at the longest place of the widest model."""
        cells = by_cell(rows, cell)
        gaps, places = self.leads(cells), places_of(cells)
        states = {place: state_of(at_place) for place, at_place in gaps.items()}
        weakest = {place: deciding(states[place], at_place, one_refutes=True) for place, at_place in gaps.items()}
        least = {place: gaps[place][one] for place, one in weakest.items()}
        place = deciding(everywhere(list(states.values())), least)
        one, widest, same = weakest[place], max(gaps, key=by_width), "at the same bytes of state"
        which = ", the smaller lead" if len(self.ahead) > 1 else ""
        what = f"recall of {NAMES[one]} less that of {NAMES[self.rival]} {same}, {named(place, places, ' ')}{which}"
        others = [one for one in self.mixers if one not in (EXACT, "conv") and (widest, one) in cells]
        return [
            spread(what, None, least[place]),
            recall("recall of softmax, whose state grows", cells[widest, EXACT]),
            *(recall(f"recall of {NAMES[one]} {same}", cells[widest, one]) for one in others[:MOST]),
        ]

    def charts(self, rows: Sequence[Row]) -> Charts:
        cells = by_cell(rows, cell)
        places = places_of(cells)
        series = {
            named(place, places, " "): [point(NAMES[m], cells[place, m]) for m in self.mixers if (place, m) in cells]
            for place in places
        }
        return bar_chart(TITLE, "mixer", RECALL, series)


def cell(config: RecallConfig) -> tuple[Place, str]:
    return (config.seq_len, config.d_model), config.mixer


def places_of(cells: Cells) -> list[Place]:
    """Return the places, by width and then by tokens."""
    return sorted({place for place, _ in cells}, key=by_width)


def by_width(place: Place) -> Place:
    return place[1], place[0]


def named(place: Place, places: Sequence[Place], sign: str) -> str:
    """Return a place in words: "d = 64", or with its tokens where there is more than one length."""
    width = f"d{sign}{place[1]}"
    return width if len({tokens for tokens, _ in places}) == 1 else f"{place[0]:,} tokens, {width}"


def state_of(gaps: Mapping[str, Interval]) -> str:
    """Return what the leads at one place say."""
    if all(gap.low > 0 for gap in gaps.values()):
        return YES
    return NO if any(gap.high < 0 for gap in gaps.values()) else OPEN
