"""A trainer that takes no time, in a module a worker can import; its model follows from the cell and `previous`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch

from linnet.labs.icl.recipes import Cell, Trained
from linnet.regress.model import ICLConfig, ICLTransformer

KILL = "LINNET_TEST_KILL"  # a file: the process that trains four layers of DIAG removes it and is killed


def train(cell: Cell, previous: ICLTransformer | None, report: object = None) -> Trained:
    """A random model, the first layers of which are those of `previous`."""
    assert (previous is None) == (cell.layers == 1 or cell.recipe == "paper")
    note = Path(os.environ.get(KILL, "nowhere"))
    if cell.layers == 4 and cell.kind == "diag" and note.exists():
        note.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    generator = torch.Generator().manual_seed(100 * cell.seed + cell.layers)
    model = ICLTransformer(ICLConfig(cell.kind, cell.layers), generator)
    with torch.no_grad():
        for name, value in previous.named_parameters() if previous is not None else ():
            model.get_parameter(name)[: cell.layers - 1] = value
    return Trained(model, {"steps": cell.layers})
