"""Sequence ops as pure functions: (inputs, state) -> (out, state), without parameters or modules.

    linear_attention            kernel attention, constant state; parallel, chunked and recurrent form
    softmax_attention           the quadratic baseline, with a growing KV cache
    sliding_window_attention    softmax over the last tokens only, constant state
    lsh_attention               softmax over tokens in the same hash bucket
    decayed_attention           linear attention with decay, per head or per key channel
    delta_rule                  linear attention that overwrites the value of a key
    selective_scan              the recurrence of Mamba
    wkv, wkv7                   the recurrences of RWKV-4 and RWKV-7
    short_conv                  a causal filter per channel, constant state

All have one contract: they take `initial_state`, `output_final_state`, `mask`, `cu_seqlens`, `form` and `backend`, and
return (out, state or None). Each has a `_step` for one token, and its module a `state_bytes` for the size of its state.
The folders hold the ops by family, each with the float64 truth in naive.py and the derivation in README.md.
"""

from __future__ import annotations

from .conv.short_conv import short_conv as short_conv
from .conv.short_conv import short_conv_step as short_conv_step
from .dispatch import Decision as Decision
from .explain import explain_dispatch as explain_dispatch
from .gated.decay import decayed_attention as decayed_attention
from .gated.decay import decayed_attention_step as decayed_attention_step
from .gated.delta import delta_rule as delta_rule
from .gated.delta import delta_rule_step as delta_rule_step
from .gated.selective_scan import selective_scan as selective_scan
from .gated.selective_scan import selective_scan_step as selective_scan_step
from .gated.wkv import wkv as wkv
from .gated.wkv import wkv_step as wkv_step
from .gated.wkv7 import wkv7 as wkv7
from .gated.wkv7 import wkv7_step as wkv7_step
from .linear.attention import linear_attention as linear_attention
from .linear.attention import linear_attention_step as linear_attention_step
from .softmax.full import softmax_attention as softmax_attention
from .softmax.full import softmax_attention_step as softmax_attention_step
from .softmax.lsh import lsh_attention as lsh_attention
from .softmax.lsh import lsh_attention_step as lsh_attention_step
from .softmax.window import sliding_window_attention as sliding_window_attention
from .softmax.window import sliding_window_attention_step as sliding_window_attention_step
from .state import ConvState as ConvState
from .state import KVState as KVState
from .state import MatrixState as MatrixState
from .state import State as State
from .state import WindowState as WindowState
from .state import join_states as join_states
from .state_file import load_states as load_states
from .state_file import read_header as read_header
from .state_file import save_states as save_states
