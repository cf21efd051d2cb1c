"""Find data sets that are not shipped: in $LINNET_DATA, then in `shared/data` next to the repository.

    data_folder("mnist")  ->  $LINNET_DATA/mnist  or  <repository>/../shared/data/mnist  or  None

Nothing is downloaded. Tests and recipes that need a missing set report it and continue without it.
"""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def data_folder(name: str) -> Path | None:
    """Return the folder of the data set `name`, or None if this machine does not have it."""
    given = os.environ.get("LINNET_DATA")
    roots = [Path(given)] if given else []
    for root in [*roots, REPOSITORY.parent / "shared" / "data"]:
        if (root / name).is_dir():
            return root / name
    return None
