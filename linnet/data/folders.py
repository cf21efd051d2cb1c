"""Where data sets that are not shipped are looked for: $LINNET_DATA, then `shared/data` beside the repository.

    data_folder("mnist")  ->  $LINNET_DATA/mnist  or  <repository>/../shared/data/mnist  or  None

Nothing is downloaded. Tests and recipes that need a set which is not there say so and go on without it.
"""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def data_folder(name: str) -> Path | None:
    """The folder of the data set `name`, or None when this machine does not have it."""
    given = os.environ.get("LINNET_DATA")
    roots = [Path(given)] if given else []
    for root in [*roots, REPOSITORY.parent / "shared" / "data"]:
        if (root / name).is_dir():
            return root / name
    return None
