"""The mixers that the native decoder runs: one table from layer classes to adapters (adapter.py).

    adapter_for(block.mixer, exact=True)         BackendError for a mixer that only torch can run

A subclass may compute something else, so it does not inherit the adapter of its base class: it needs its own entry.
"""

from __future__ import annotations

from torch import nn

from ....errors import BackendError
from ....layers import (
    GLA,
    KDA,
    RWKV4,
    RWKV7,
    BaseConv,
    ChannelMix,
    Delta,
    GatedConv,
    GatedDelta,
    LinearAttention,
    Mamba,
    Mamba2,
    RetNet,
    Shift,
    SoftmaxAttention,
    WindowAttention,
)
from .adapter import BLOCK as BLOCK
from .adapter import Memory as Memory
from .adapter import MixerAdapter as MixerAdapter
from .adapter import round_up as round_up
from .conv import ConvAdapter, GatedConvAdapter
from .decay import GLAAdapter, RetNetAdapter
from .delta import DeltaAdapter, GatedDeltaAdapter, KDAAdapter
from .linear import LinearAdapter
from .mamba import Mamba2Adapter, MambaAdapter
from .rwkv import ChannelMixAdapter, RWKV4Adapter, RWKV7Adapter
from .softmax import SoftmaxAdapter
from .window import WindowAdapter

ADAPTERS: dict[type[nn.Module], type[MixerAdapter]] = {
    LinearAttention: LinearAdapter,
    SoftmaxAttention: SoftmaxAdapter,
    WindowAttention: WindowAdapter,
    BaseConv: ConvAdapter,
    Shift: ConvAdapter,
    GatedConv: GatedConvAdapter,
    RetNet: RetNetAdapter,
    GLA: GLAAdapter,
    Delta: DeltaAdapter,
    GatedDelta: GatedDeltaAdapter,
    KDA: KDAAdapter,
    Mamba: MambaAdapter,
    Mamba2: Mamba2Adapter,
    RWKV4: RWKV4Adapter,
    RWKV7: RWKV7Adapter,
    ChannelMix: ChannelMixAdapter,
}


def adapter_for(mixer: nn.Module, *, exact: bool) -> MixerAdapter:
    """Return the adapter of a mixer, or raise BackendError if there is none for its class."""
    adapter = ADAPTERS.get(type(mixer))
    if adapter is None:
        raise BackendError(f"the native decoder does not know the mixer {type(mixer).__name__}; use backend 'torch'")
    return adapter(mixer, exact=exact)
