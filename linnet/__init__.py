"""linnet: linear transformers you can train, run, understand and trust, on any machine.

    out, state = linnet.linear_attention(q, k, v)        q, k [B,T,H,D]   v, out [B,T,H,V]
    model = linnet.models.build(linnet.models.preset("char-small"))
    loaded = linnet.load("runs/text")                    loaded.model, loaded.tokenizer, loaded.config

The public names are listed below. They load on first use (PEP 562), so `import linnet` alone does not import torch and
`linnet --help` prints immediately.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import data as data
    from . import feature_maps as feature_maps
    from . import generate as generate
    from . import layers as layers
    from . import models as models
    from . import pretrained as pretrained
    from . import regress as regress
    from . import train as train
    from .errors import BackendError as BackendError
    from .errors import StateError as StateError
    from .layers import attention_map as attention_map
    from .loading import LoadedModel as LoadedModel
    from .loading import load as load
    from .ops import ConvState as ConvState
    from .ops import KVState as KVState
    from .ops import MatrixState as MatrixState
    from .ops import State as State
    from .ops import WindowState as WindowState
    from .ops import decayed_attention as decayed_attention
    from .ops import decayed_attention_step as decayed_attention_step
    from .ops import delta_rule as delta_rule
    from .ops import delta_rule_step as delta_rule_step
    from .ops import explain_dispatch as explain_dispatch
    from .ops import join_states as join_states
    from .ops import linear_attention as linear_attention
    from .ops import linear_attention_step as linear_attention_step
    from .ops import load_states as load_states
    from .ops import lsh_attention as lsh_attention
    from .ops import lsh_attention_step as lsh_attention_step
    from .ops import read_header as read_header
    from .ops import save_states as save_states
    from .ops import selective_scan as selective_scan
    from .ops import selective_scan_step as selective_scan_step
    from .ops import short_conv as short_conv
    from .ops import short_conv_step as short_conv_step
    from .ops import sliding_window_attention as sliding_window_attention
    from .ops import sliding_window_attention_step as sliding_window_attention_step
    from .ops import softmax_attention as softmax_attention
    from .ops import softmax_attention_step as softmax_attention_step
    from .ops import wkv as wkv
    from .ops import wkv7 as wkv7
    from .ops import wkv7_step as wkv7_step
    from .ops import wkv_step as wkv_step

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "ConvState",
    "KVState",
    "LoadedModel",
    "MatrixState",
    "State",
    "StateError",
    "WindowState",
    "__version__",
    "attention_map",
    "data",
    "decayed_attention",
    "decayed_attention_step",
    "delta_rule",
    "delta_rule_step",
    "explain_dispatch",
    "feature_maps",
    "generate",
    "join_states",
    "layers",
    "linear_attention",
    "linear_attention_step",
    "load",
    "load_states",
    "lsh_attention",
    "lsh_attention_step",
    "models",
    "pretrained",
    "read_header",
    "regress",
    "save_states",
    "selective_scan",
    "selective_scan_step",
    "short_conv",
    "short_conv_step",
    "sliding_window_attention",
    "sliding_window_attention_step",
    "softmax_attention",
    "softmax_attention_step",
    "train",
    "wkv",
    "wkv7",
    "wkv7_step",
    "wkv_step",
]

_FOLDERS = ("data", "feature_maps", "generate", "layers", "models", "pretrained", "regress", "train")
_HOMES = {"BackendError": ".errors", "StateError": ".errors", "attention_map": ".layers"}
_HOMES |= {"LoadedModel": ".loading", "load": ".loading"} | dict.fromkeys(_FOLDERS, "")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, ".ops")
    value = getattr(import_module(home, __name__), name) if home else import_module(f".{name}", __name__)
    globals()[name] = value  # later lookups skip this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
