"""Generate text and images from a trained model, at a constant cost per token.

    generate(model, prompts)           completions of a batch of prompts; `stream` yields one token by token (text.py)
    beam_search(model, prompt)         the most likely continuation (beam.py)
    sample_images(model, 16, length=64)   images, or completions of images (images.py); save_grid writes a PNG
    Scheduler(engine).add(Request(prompt="It was"))   requests that start and end at any time (scheduler.py)
    engine = open_engine(model)        a running batch: add, read, step, fork, remove (engine.py)
    Session(model)                     one stream: feed, sample, roll back, fork, save (session.py)

Everything runs on an engine: the whole model in native code if possible, otherwise torch.
"""

from __future__ import annotations

from .beam import beam_search as beam_search
from .completion import Completion as Completion
from .completion import Piece as Piece
from .engine import Engine as Engine
from .engine import TorchEngine as TorchEngine
from .engine import open_engine as open_engine
from .generation import Generation as Generation
from .grid import save_grid as save_grid
from .images import sample_images as sample_images
from .prefixes import Passage as Passage
from .prefixes import Passages as Passages
from .prefixes import PrefixStates as PrefixStates
from .requests import Request as Request
from .sampling import Sampling as Sampling
from .scheduler import Event as Event
from .scheduler import QueueFullError as QueueFullError
from .scheduler import Scheduler as Scheduler
from .session import Session as Session
from .text import generate as generate
from .text import stream as stream
