"""Sequence mixers as pure functions: (inputs, state) -> (out, state), no parameters and no modules.

    linear_attention            kernel attention, constant state; parallel, chunked and recurrent form
    softmax_attention           the quadratic baseline, with a growing KV cache
    sliding_window_attention    softmax over the last tokens only, constant state
    decayed_attention           linear attention whose memory fades, by head or by key channel
    delta_rule                  a matrix that a token can overwrite, not only add to
    short_conv                  each channel over its last few tokens, constant state

Each takes q, k, v [B,T,H,.] (short_conv: x [B,T,E]) and an initial state, and hands back the state after the last token
when asked; each has a `_step` for one token at a time, and its module a `state_bytes` for the size of that state.
"""

from __future__ import annotations

from .decay import decayed_attention as decayed_attention
from .decay import decayed_attention_step as decayed_attention_step
from .delta import delta_rule as delta_rule
from .delta import delta_rule_step as delta_rule_step
from .dispatch import Decision as Decision
from .dispatch import explain_dispatch as explain_dispatch
from .linear_attention import linear_attention as linear_attention
from .linear_attention import linear_attention_step as linear_attention_step
from .short_conv import short_conv as short_conv
from .short_conv import short_conv_step as short_conv_step
from .sliding_window import sliding_window_attention as sliding_window_attention
from .sliding_window import sliding_window_attention_step as sliding_window_attention_step
from .softmax import softmax_attention as softmax_attention
from .softmax import softmax_attention_step as softmax_attention_step
from .state import ConvState as ConvState
from .state import KVState as KVState
from .state import MatrixState as MatrixState
from .state import State as State
from .state import WindowState as WindowState
from .state import join_states as join_states
from .state_file import load_states as load_states
from .state_file import read_header as read_header
from .state_file import save_states as save_states
