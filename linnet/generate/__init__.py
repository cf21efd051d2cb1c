"""Generation at constant cost per token: prompts, streams, states and images from a trained model.

    engine = open_engine(model)        a running batch: join, read, step, fork, leave (engine.py)

Everything here steps through an engine: the whole model in native code where it can run, torch where it cannot.
"""

from __future__ import annotations

from .engine import Engine as Engine
from .engine import TorchEngine as TorchEngine
from .engine import open_engine as open_engine
