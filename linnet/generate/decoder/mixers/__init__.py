"""The mixers that the native decoder runs: one table from layer classes to adapters (adapter.py).

    adapter_for(block.mixer, exact=True)         BackendError for a mixer that only torch can run

A subclass may compute something else, so it does not inherit the adapter of its base class: it needs its own entry.
"""

from __future__ import annotations

from torch import nn

from ....errors import BackendError
from ....layers import BaseConv, GatedConv, LinearAttention, Shift, SoftmaxAttention, WindowAttention
from .adapter import BLOCK as BLOCK
from .adapter import Memory as Memory
from .adapter import MixerAdapter as MixerAdapter
from .adapter import round_up as round_up
from .conv import ConvAdapter, GatedConvAdapter
from .linear import LinearAdapter
from .softmax import SoftmaxAdapter
from .window import WindowAdapter

ADAPTERS: dict[type[nn.Module], type[MixerAdapter]] = {
    LinearAttention: LinearAdapter,
    SoftmaxAttention: SoftmaxAdapter,
    WindowAttention: WindowAdapter,
    BaseConv: ConvAdapter,
    Shift: ConvAdapter,
    GatedConv: GatedConvAdapter,
}


def adapter_for(mixer: nn.Module, *, exact: bool) -> MixerAdapter:
    """Return the adapter of a mixer, or raise BackendError if there is none for its class."""
    adapter = ADAPTERS.get(type(mixer))
    if adapter is None:
        raise BackendError(f"the native decoder does not know the mixer {type(mixer).__name__}; use backend 'torch'")
    return adapter(mixer, exact=exact)
