"""The picture of `linnet bench decode --plot`: state and time per token against position, all axes logarithmic.

Linear attention is the flat line in both panels; softmax attention keeps every key and value, and reads them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..atomic import atomic

Row = dict[str, Any]
NAMES = {"linear": "linear attention ({engine})", "softmax": "softmax, cache made beforehand (torch)"}


def draw(document: Row, path: Path) -> None:
    """Two panels from the rows of the section curve."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    (row,) = document["rows"]["curve"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, label in NAMES.items():
        points = lines(row, name)
        if not points:
            continue
        tokens, mebibytes, milliseconds = zip(*points, strict=True)
        style: Row = {"marker": "o", "markersize": 4, "linewidth": 2, "label": label.format(engine=row["engine"])}
        left.plot(tokens, mebibytes, **style)
        right.plot(tokens, milliseconds, **style)
    for axes, title in ((left, "state of one stream, MiB"), (right, "milliseconds per token")):
        axes.set(xscale="log", yscale="log", xlabel="tokens so far", title=title)
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    machine = f"{document['machine']['name']}, threads {row['threads']}"
    figure.suptitle(f"Decoding with the {document['preset']} model on {machine}", fontsize=11)
    with atomic(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix[1:] or "png")
    pyplot.close(figure)


def lines(row: Row, name: str) -> list[tuple[int, float, float]]:
    """(token, MiB, ms per token) of each point that was measured."""
    found = [(one["token"], one["state_bytes"][name], one["seconds"][name]) for one in row["points"]]
    return [(token, held / 2**20, seconds * 1e3) for token, held, seconds in found if seconds is not None]
