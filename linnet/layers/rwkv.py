"""RWKV: mixers that combine each token with the previous one, and replace attention by a recurrence.

    x^m_t = x_t + m * (x_{t-1} - x_t)                      token shift: every use of x has its own mixture m in [0,1]^E

    RWKV4    y = W_o( sigmoid(r) * wkv(k, v) )                                   Peng et al. 2023, arXiv:2305.13048
    RWKV7    y = W_o( (norm(S_t^T r_t) + (r_t . bonus k_t) v_t) * gate_t )       Peng et al. 2025, arXiv:2503.14456

These are the time mixing; the channel mixing of the papers is a separate mixer (channel_mix.py), or an MLP takes its
place. Where the papers start a parameter differently in every layer, here all layers start alike. RWKV4 has no heads:
`n_heads`, `head_dim` and `key_dim` change nothing there.
Two things that published RWKV-7 models have are options: the small networks may differ in rank, and with
`value_residual` the values of the first layer are mixed into those of the later ones, v + (v_first - v) * sigmoid(...),
by a fourth network that the first layer lacks. The values pass from layer to layer in `shared`, one dictionary for each
call of the model: they belong to the tokens of that call, so no state holds them.
The norm of RWKV7 is over the values of each head with the authors' eps, 64e-5; flash-linear-attention writes it as
head_dim * 1e-5, the same number at the published width of 64. Set `norm_eps` to import weights of another width.
State: x [B,1,E], the previous token; s [B,1,3,E] (ops/gated/wkv.py) and s [B,H,D,V] (ops/gated/wkv7.py).
"""

from __future__ import annotations

from math import exp, log

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, whole
from ..feature_maps.common import positive_float
from ..ops.conv.short_conv import short_conv
from ..ops.fused.norm import layer_norm, rms_norm
from ..ops.fused.token_shift import mixtures
from ..ops.gated.wkv import wkv, wkv_weights
from ..ops.gated.wkv7 import wkv7
from ..ops.state import ConvState, MatrixState
from .attention import head_width
from .matrix import MatrixMixer, only_causal
from .mixer import Shared

VALUES = "rwkv7.values"  # of the first layer

SHORTEST = 1e-24  # added to |x|^2, so that a key of zeros stays one


class RWKV4(MatrixMixer):
    """A weighted average with a fixed decay for each channel, gated by sigmoid(r)."""

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        causal: bool = True,
        bias: bool = True,
    ) -> None:
        only_causal("rwkv4", causal, n_heads, n_kv_heads)
        super().__init__((1, 3, d_model), (1, d_model))
        place = torch.arange(d_model) / d_model  # [E]
        self.shift_r = nn.Parameter(1 - place / 2)
        self.shift_k = nn.Parameter(1 - place)
        self.shift_v = nn.Parameter(1 - place)
        self.decay = nn.Parameter(-5 + 8 * (torch.arange(d_model) / max(d_model - 1, 1)) ** 0.7)  # w = e^decay
        self.bonus = nn.Parameter(0.5 * ((torch.arange(d_model) + 1) % 3 - 1) + log(0.3))
        self.r, self.k, self.v, self.out = (nn.Linear(d_model, d_model, bias=bias) for _ in range(4))

    def mix(self, x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, MatrixState]:
        x, change, newest = shifted(x, state, mask)
        k, v = self.k(x + self.shift_k * change), self.v(x + self.shift_v * change)
        y, new = wkv(k, v, self.decay.exp(), self.bonus, **self.how(state, mask))
        assert new is not None
        return self.out(torch.sigmoid(self.r(x + self.shift_r * change)) * y), MatrixState(new.s, newest)

    def attention_map(self, x: Tensor) -> Tensor:
        """[B,E,T,T]: the weights of the average, channel by channel, before sigmoid(r); rows sum to one."""
        x, change, _ = shifted(x, self.empty_state(x.shape[0], device=x.device, dtype=x.dtype), None)
        return wkv_weights(self.k(x + self.shift_k * change), self.decay.exp(), self.bonus)


class RWKV7(MatrixMixer):
    """A matrix per head that decays by channel, removes part of the value under its removal key, and adds k v^T.

    `rank`: numbers between the two matrices of each small network, unless decay_rank, rate_rank, gate_rank or
    value_rank says otherwise. `value_residual`: see above; `first`: this layer gives its values to the later ones.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        causal: bool = True,
        bias: bool = True,
        rank: int = 32,
        decay_rank: int | None = None,
        rate_rank: int | None = None,
        gate_rank: int | None = None,
        value_rank: int | None = None,
        value_residual: bool = False,
        first: bool = True,
        norm_eps: float = 64e-5,
    ) -> None:
        only_causal("rwkv7", causal, n_heads, n_kv_heads)
        positive_float("norm_eps", norm_eps)
        for name, value in (("value_residual", value_residual), ("first", first)):
            if not isinstance(value, bool):
                raise ArgumentError(name, value, "true or false")
        given = {"decay": decay_rank, "rate": rate_rank, "gate": gate_rank, "value": value_rank}
        whole("rank", rank, 1)
        ranks = {name: rank if one is None else whole(f"{name}_rank", one, 1) for name, one in given.items()}
        V = head_dim or head_width(d_model, n_heads)
        D = key_dim or V
        super().__init__((n_heads, D, V), (1, d_model))
        self.norm_eps = norm_eps
        keys, values = n_heads * D, n_heads * V
        place = torch.arange(d_model) / d_model
        self.shift = nn.Parameter((1 - place).repeat(6))  # [6 E]: r, k, v, decay, rate, gate; a vector: never decayed
        self.r, self.k = (nn.Linear(d_model, keys, bias=bias) for _ in range(2))
        self.v = nn.Linear(d_model, values, bias=bias)
        small = ("decay", "rate", "gate")
        self.decay_in, self.rate_in, self.gate_in = (nn.Linear(d_model, ranks[name], bias=False) for name in small)
        self.decay_out, self.rate_out = (nn.Linear(ranks[name], keys, bias=False) for name in small[:2])
        self.gate_out = nn.Linear(ranks["gate"], values, bias=False)
        self.shares, takes = value_residual, value_residual and not first
        self.value_in = nn.Linear(d_model, ranks["value"], bias=False) if takes else None
        self.value_out = nn.Linear(ranks["value"], values, bias=False) if takes else None
        self.value_bias = nn.Parameter(torch.ones(values)) if takes else None  # v is mostly that of the first layer
        self.decay_bias = nn.Parameter(torch.linspace(-6.0, -1.0, D).repeat(n_heads))  # from slow to fast in each head
        self.rate_bias = nn.Parameter(torch.zeros(keys))
        self.remove = nn.Parameter(torch.full((keys,), 0.85))
        self.replace = nn.Parameter(torch.ones(keys))
        self.bonus = nn.Parameter(torch.zeros(keys))
        self.norm_weight, self.norm_bias = nn.Parameter(torch.ones(values)), nn.Parameter(torch.zeros(values))
        self.out = nn.Linear(values, d_model, bias=bias)

    def mix(
        self, x: Tensor, state: MatrixState, mask: Tensor | None, shared: Shared | None = None
    ) -> tuple[Tensor, MatrixState]:
        (r, g, k, remove, rate), v, gate, newest = self._project(x, state, mask, shared)
        y, new = wkv7(r, g, k, v, remove, rate, **self.how(state, mask))
        assert new is not None
        y = torch.addcmul(self.norm_bias, layer_norm(y, eps=self.norm_eps).flatten(2), self.norm_weight)  # by head
        present = (r * k * self.bonus.view(r.shape[2:])).sum(-1, keepdim=True) * v  # [B,T,H,V]
        return self.out((y + present.flatten(2)) * gate), MatrixState(new.s, newest)

    def attention_map(self, x: Tensor) -> Tensor:
        """[B,H,T,T]: S_t^T r_t = sum_j A[t,j] v_j, before the norm, the bonus and the gate."""
        B, T, _ = x.shape
        state = self.empty_state(B, device=x.device, dtype=x.dtype)
        own = {VALUES: x.new_zeros(B, T, self.v.out_features)}  # the values do not matter here
        (r, g, k, remove, rate), _, _, _ = self._project(x, state, None, own)
        units = torch.eye(T, dtype=r.dtype, device=r.device)[None, :, None].expand(B, T, r.shape[2], T)
        out, _ = wkv7(r, g, k, units, remove, rate)
        return out.transpose(1, 2)

    def _project(
        self, x: Tensor, state: MatrixState, mask: Tensor | None, shared: Shared | None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]:
        """(r, log decay, k, remove, rate) [B,T,H,D], v [B,T,H,V], gate [B,T,H V], the newest input."""
        x, change, newest = shifted(x, state, mask)
        heads, D, V = self.matrix
        for_r, for_k, for_v, for_decay, for_rate, for_gate = mixtures(x, change, self.shift.view(6, -1))
        r, k, v = self.r(for_r), self.k(for_k), self._values(for_v, shared)
        speed = self.decay_out(torch.tanh(self.decay_in(for_decay))) + self.decay_bias
        rate = torch.sigmoid(self.rate_out(self.rate_in(for_rate)) + self.rate_bias)
        gate = self.gate_out(torch.sigmoid(self.gate_in(for_gate)))
        g = -exp(-0.5) * torch.sigmoid(speed)  # no channel loses more than 1 - e^-0.61 = 45 % at a token
        length = k.new_full((D,), D**-0.5)
        remove = rms_norm((k * self.remove).unflatten(-1, (heads, D)), length, SHORTEST / D)  # x / |x|
        k = k * torch.addcmul(1 - self.replace, rate, self.replace)  # 1 + (rate - 1) replace
        r, g, k, rate = (y.unflatten(-1, (heads, D)) for y in (r, g, k, rate))
        return (r, g, k, remove, rate), v.unflatten(-1, (heads, V)), gate, newest

    def _values(self, x: Tensor, shared: Shared | None) -> Tensor:  # [B,T,E] -> [B,T,H V]
        """Return the values, of the first layer too if this is a later one."""
        v: Tensor = self.v(x)
        if self.value_in is None or self.value_out is None or self.value_bias is None:
            if self.shares and shared is not None:
                shared[VALUES] = v
            return v
        if shared is None or VALUES not in shared:
            raise ValueError("this layer mixes in the values of the first one; call it as part of its model")
        return v + (shared[VALUES] - v) * torch.sigmoid(self.value_out(self.value_in(x)) + self.value_bias)


def shifted(x: Tensor, state: MatrixState, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return x [B,T,E] with zeros at padding, x_{t-1} - x_t over real tokens, and the newest of them [B,1,E]."""
    x = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
    if mask is None and x.shape[1]:
        before = torch.cat([state.x.to(x.dtype), x[:, :-1]], dim=1)
        return x, before - x, x[:, -1:].to(state.x.dtype, copy=True)
    one_ago = x.new_tensor([1.0, 0.0]).expand(x.shape[-1], 2)  # the filter that selects the previous token
    kept = ConvState(state.x.to(x.dtype))
    before, new = short_conv(x, one_ago, initial_state=kept, output_final_state=True, mask=mask)
    assert new is not None
    return x, before - x, new.x.to(state.x.dtype)
