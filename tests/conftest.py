"""Every test runs on one torch thread, memory that torch hands out unwritten is full of NaN, and extents are verified.

An output that a kernel forgot to write then fails its comparison, instead of passing on a lucky zero; and a call that
would read beside its tensors says so (LINNET_CHECK, linnet/native/gate.py), also in the processes that tests start.
"""

from __future__ import annotations

import os

os.environ.setdefault("LINNET_CHECK", "1")  # read when linnet is imported

import torch
from hypothesis import settings


def pytest_configure() -> None:
    torch.set_num_threads(1)
    # A busy machine is no failure: hypothesis would count an example of more than 200 ms as one.
    settings.register_profile("linnet", deadline=None)
    settings.load_profile("linnet")
    # "warn" turns deterministic mode on, and with it the NaN filling; unlike use_deterministic_algorithms it does not
    # import torch's compiler. Operations without a deterministic version warn, and warnings are errors here.
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_deterministic_debug_mode("warn")
