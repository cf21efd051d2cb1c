"""What `linnet reproduce --budget day` does besides running: take rows of another folder, show what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ...lock import exclusive
from . import reproduce_show

if TYPE_CHECKING:
    from ..core.claim import Claim


def check_options(budget: str, plan: bool, join: Path | None) -> None:
    """Refuse what only a run in stages can do with other budgets."""
    from ..core.claim import DAY

    given = "--plan" if plan else "--join" if join is not None else ""
    if given and budget != DAY:
        raise ValueError(
            f"{given} is given with --budget {budget}; accepted: with --budget {DAY}, which continues over many calls"
        )


def join_rows(other: Path, claims: Sequence[Claim], budget: str, folder: Path, shipped: bool) -> None:
    """Take the rows of another folder, and say how many and which not."""
    from ..core.folder import begin
    from ..core.join import join

    with exclusive(folder):
        joined = join(folder, other, begin(folder, budget, claims, shipped=shipped), claims)
    message = f"{joined.taken:,} rows of {other} joined, {joined.known:,} were here already"
    if joined.foreign:
        message += f", {len(joined.foreign):,} belong to other work and stay out: {joined.foreign[0]}"
        message += ", ..." if len(joined.foreign) > 1 else ""
    Console(stderr=True, highlight=False, soft_wrap=True).print(message)


def show(claims: Sequence[Claim], budget: str, folder: Path, skip_damaged: bool) -> None:
    """Print what a run has, what it lacks and what that would cost."""
    from ..claims import claims as every
    from ..claims.document import read_folder
    from ..core.claim import Setting
    from ..core.folder import RUN
    from ..core.outlook import outlook
    from ..core.results import key

    known = {}
    if (folder / RUN).exists():
        known = {key(row["config"]): row for row in read_folder(folder, every(), skip_damaged=skip_damaged)[1]}
    setting = Setting(budget, folder, row=lambda config: known.get(key(config)))
    reproduce_show.show_plan(outlook(claims, setting, known), reproduce_show.wide())
