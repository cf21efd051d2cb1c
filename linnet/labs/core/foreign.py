"""Find rows that do not belong to the run of a folder: of another version of linnet, another budget or other data.

Rows get mixed when files of two runs are joined. Each row is valid alone, so no rule would notice; they are refused by
name, or left out on request, and never deleted. A day run, which lasts longer than a version, takes the rows of any
version that have its configurations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import StateError
from .claim import BUDGETS, DAY, Claim, Setting
from .folder import DATA, Run
from .results import ROWS, Row, key, row_name


def own_rows(
    rows: Sequence[Row], run: Run, out: Path, every: Mapping[str, Claim], *, problems: list[str] | None = None
) -> list[Row]:
    """Return the rows of this run. problems: receives a sentence for every other row; without it the first one raises.

    every: all claims by name, also those that the run does not have.
    """
    known = {key(row["config"]): row for row in rows}
    keys = keys_of(run.setting(out, row=lambda config: known.get(key(config))), every)
    own = []
    for number, row in enumerate(rows, 1):
        problem = (other_version(row, run) if run.budget != DAY else "") or other_budget(row, run, keys, every)
        if not problem:
            own.append(row)
            continue
        text = f"row {number:,} of {out / ROWS} ({row_name(row['config'])}) {problem}"
        if problems is None:
            raise StateError(f"{text}; remove that line, or leave such rows out with --skip-damaged")
        problems.append(text)
    return own


def keys_of(setting: Setting, every: Mapping[str, Claim]) -> set[str]:
    return {one for claim in every.values() for one in claim.keys(setting)}


def other_version(row: Row, run: Run) -> str:
    wrote = (row.get("versions") or {}).get("linnet")
    return f"was computed by linnet {wrote}, and the run by {run.linnet}" if wrote not in (None, run.linnet) else ""


def other_budget(row: Row, run: Run, keys: set[str], every: Mapping[str, Claim]) -> str:
    this = key(row["config"])
    if this in keys:
        return ""
    belongs = next((words for words, setting in elsewhere(run) if this in keys_of(setting, every)), "")
    return f"belongs to {belongs}, and the run has budget {run.budget}" if belongs else "belongs to no claim"


def elsewhere(run: Run) -> Iterator[tuple[str, Setting]]:
    """Yield the settings a foreign row may come from, in words."""
    budgets: list[str] = [run.budget, *(budget for budget in BUDGETS if budget != run.budget)]
    choices: dict[str, Any] = {"": run.data, " with other data": DATA, " with the shipped data": ()}
    for budget in budgets:
        for words, data in choices.items():
            yield f"budget {budget}{words}", Setting(budget, data=frozenset(data))
