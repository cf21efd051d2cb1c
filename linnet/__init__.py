"""linnet: exact, fast linear attention on CPU; one op with one meaning in every form and on every back end.

    out, state = linnet.linear_attention(q, k, v)        q, k [B,T,H,D]   v, out [B,T,H,V]

The names below are all there is to import. They load on first use (PEP 562), so `import linnet` alone does not
import torch and the command line can answer `--help` at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import feature_maps as feature_maps
    from .errors import BackendError as BackendError
    from .errors import StateError as StateError
    from .ops import KVState as KVState
    from .ops import State as State
    from .ops import WindowState as WindowState
    from .ops import explain_dispatch as explain_dispatch
    from .ops import join_states as join_states
    from .ops import linear_attention as linear_attention
    from .ops import linear_attention_step as linear_attention_step
    from .ops import load_states as load_states
    from .ops import read_header as read_header
    from .ops import save_states as save_states
    from .ops import sliding_window_attention as sliding_window_attention
    from .ops import sliding_window_attention_step as sliding_window_attention_step
    from .ops import softmax_attention as softmax_attention
    from .ops import softmax_attention_step as softmax_attention_step

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "KVState",
    "State",
    "StateError",
    "WindowState",
    "__version__",
    "explain_dispatch",
    "feature_maps",
    "join_states",
    "linear_attention",
    "linear_attention_step",
    "load_states",
    "read_header",
    "save_states",
    "sliding_window_attention",
    "sliding_window_attention_step",
    "softmax_attention",
    "softmax_attention_step",
]

_HOMES = {"BackendError": ".errors", "StateError": ".errors", "feature_maps": ""}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, ".ops")
    value = getattr(import_module(home, __name__), name) if home else import_module(f".{name}", __name__)
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
