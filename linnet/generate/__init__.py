"""Generation at constant cost per token: prompts, streams, states and images from a trained model.

    generate(model, prompts)           completions of a batch of prompts; `stream` for one, as it comes (text.py)
    beam_search(model, prompt)         the most likely continuation (beam.py)
    sample_images(model, 16, length=64)   pictures, or completions of them (images.py); save_grid draws them
    engine = open_engine(model)        a running batch: join, read, step, fork, leave (engine.py)
    Session(model)                     one stream: feed, sample, roll back, fork, save (session.py)

Everything here steps through an engine: the whole model in native code where it can run, torch where it cannot.
"""

from __future__ import annotations

from .beam import beam_search as beam_search
from .engine import Engine as Engine
from .engine import TorchEngine as TorchEngine
from .engine import open_engine as open_engine
from .generation import Completion as Completion
from .generation import Generation as Generation
from .generation import Piece as Piece
from .grid import save_grid as save_grid
from .images import sample_images as sample_images
from .sampling import Sampling as Sampling
from .session import Session as Session
from .text import generate as generate
from .text import stream as stream
