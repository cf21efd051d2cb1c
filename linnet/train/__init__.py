"""Training: one loop for every model and every kind of data, on one core or many machines.

    result = fit(model, train, valid, TrainConfig(steps=2000, lr=1e-3), out="runs/first")
    result = fit(model, train, valid, config, out="runs/first", resume=True)        # the same bits as without a stop

The names load on first use (PEP 562): the command line reads TrainConfig for its help without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoint import CheckpointError as CheckpointError
    from .config import TrainConfig as TrainConfig
    from .distributed import ProcessGroup as ProcessGroup
    from .divergence import TrainingDiverged as TrainingDiverged
    from .evaluation import evaluate as evaluate
    from .log import Event as Event
    from .log import read_log as read_log
    from .loop import Result as Result
    from .loop import fit as fit
    from .optim import learning_rate as learning_rate
    from .optim import make_optimizer as make_optimizer
    from .source import Source as Source

_HOMES = {
    "CheckpointError": ".checkpoint",
    "Event": ".log",
    "ProcessGroup": ".distributed",
    "Result": ".loop",
    "Source": ".source",
    "TrainConfig": ".config",
    "TrainingDiverged": ".divergence",
    "evaluate": ".evaluation",
    "fit": ".loop",
    "learning_rate": ".optim",
    "make_optimizer": ".optim",
    "read_log": ".log",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value  # later lookups skip this function
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
