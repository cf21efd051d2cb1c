"""Time a training step of the recall model for each mixer, and for ReBased with its features in torch.

    step = forward, cross entropy at the labelled positions, backward, clipping and AdamW on `tokens` tokens

Two layers, a short convolution and the mixer, width 64, one head, q and k of width 16 (softmax: 64), no MLP, no
positions, 256 tokens: the model of Arora et al. 2023, "Zoology", arXiv:2312.04927, at the size of our recall runs. One
position in four has a target, as with N / 4 pairs. `INDEXED` and `PRODUCTS` have the weights and results of "rebased",
but phi(q) and phi(k), D (D + 1) / 2 wide, are tensors for plain torch chunks. The features x_i x_j come from indexing,
the usual form, or from two products with one-hot columns, which is faster, above all backward.
E model width, H heads, D width of q and k, V of v, F features, T length, N vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .train import BASELINE, FEWEST_ROUNDS, Subject, TrainSettings, attention_flops, compare, head_widths

if TYPE_CHECKING:
    from torch import Tensor

    from ...models import Model

INDEXED = ("indexed batched", "indexed loop")  # the two trainable forms of torch_forms.py
PRODUCTS = ("products batched", "products loop")
MATERIALISED = INDEXED + PRODUCTS
CHANGES: dict[str, dict[str, Any]] = {
    "rebased": {},
    **{name: {"mixer": ("conv", "rebased")} for name in MATERIALISED},
    "softmax": {"key_dim": 64},
    "taylor": {},
    "elu": {"key_dim": 64},
    "delta": {"key_dim": 64},
}
BASELINES = {"ratio": (BASELINE,), "ratio_indexed": INDEXED, "ratio_products": PRODUCTS}
CHUNK = 64  # tokens per chunk of these forms, the fastest of 32 to 256 here
LABELLED = 4  # one position in this many has a target
QUICK: dict[str, Any] = {"rounds": FEWEST_ROUNDS}


@dataclass(frozen=True, kw_only=True)
class RecallSettings(TrainSettings):
    """The sizes of the recall runs: 64 sequences of 256 tokens, 16 of 1,024."""

    known: ClassVar[Collection[str]] = tuple(CHANGES)

    lengths: tuple[int, ...] = (256, 1024)
    mixers: tuple[str, ...] = tuple(CHANGES)
    tokens: int = 16384


def race(settings: TrainSettings, length: int, **changes: Any) -> dict[str, Any]:
    """Return one row: every mixer at one length. A turn begins with an untimed step, as training repeats steps."""
    subjects = {name: partial(subject, name, length, settings.tokens, **changes) for name in settings.mixers}
    return compare(settings, length, subjects, BASELINES, warm=1)


def subject(mixer: str, length: int, tokens: int, **changes: Any) -> Subject:
    """Return the model with that mixer on random tokens; `changes` to its configuration make it smaller for tests."""
    import torch

    net = model(mixer, **changes)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    data = batch(length, tokens, net.config.vocab_size)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        total, count = net.loss(data)
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return float(total.detach() / count)

    return Subject(step, step_flops(net, length, tokens), net.parameter_count())


def model(mixer: str, **changes: Any) -> Model:
    import torch

    from ...models import ModelConfig, build

    torch.manual_seed(0)
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 1, "key_dim": 16, "mlp": "none", "vocab_size": 256}
    net = build(ModelConfig(**{**sizes, "mixer": ("conv", mixer), **CHANGES[mixer], **changes}))
    if mixer in MATERIALISED:
        attention: Any = net.blocks[1].mixer
        attention.attend = _materialised(attention.feature_map, mixer)
    return net


def batch(length: int, tokens: int, vocabulary: int) -> dict[str, Tensor]:
    """Return random tokens, and a random target at every fourth position: the positions do not change the work."""
    import torch

    from ...targets import IGNORE

    drawn = torch.randint(vocabulary, (2, tokens // length, length), generator=torch.Generator().manual_seed(0))
    scored = torch.arange(length) % LABELLED == 0
    return {"tokens": drawn[0], "targets": drawn[1].where(scored, IGNORE)}


def step_flops(net: Model, length: int, tokens: int) -> float | None:
    """Return the flops of forward and backward that every exact algorithm needs, as in train.py; None without a map.

    Weights per token: E E of the convolution's gate, H (2 D + 2 V) E of the attention; N E where there is a target.
    """
    c, mixer = net.config, net.blocks[1].mixer
    features = getattr(mixer, "feature_map", None)
    if features is None and c.mixers[1] != BASELINE:
        return None
    D, V = head_widths(c)
    weights = c.d_model * (c.d_model + c.n_heads * (2 * D + 2 * V)) + c.vocab_size * c.d_model / LABELLED
    width = None if features is None else int(features.feature_dim)
    return tokens * (6.0 * weights + c.n_heads * attention_flops(c, width, length))


def _materialised(phi: Any, name: str) -> Callable[..., tuple[Tensor, None]]:
    """Return ReBased's `attend` with phi(q) and phi(k) as tensors [B,H,T,F]."""
    from . import torch_forms

    features = phi.core.features if name in INDEXED else _products(phi)
    form = torch_forms.batched if name.endswith("batched") else torch_forms.loop

    def attend(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> tuple[Tensor, None]:
        q, k, v = (x.transpose(1, 2).contiguous() for x in (phi.prepare_q(q), phi.prepare_k(k), v))
        return form(features(q), features(k), v, chunk=CHUNK, maps=(_identity, _identity)).transpose(1, 2), None

    return attend


def _products(phi: Any) -> Callable[[Tensor], Tensor]:
    """Return core.features computed by matrix products alone."""
    import torch

    i, j = torch.triu_indices(phi.head_dim, phi.head_dim)  # [F]
    times = torch.where(i == j, 1.0, 2.0).double()  # multiplicity of the product in (x . y)^2
    columns = torch.eye(phi.head_dim, dtype=torch.float64)
    first, second = columns[:, i] * (phi.core.coeffs[2] * times).sqrt(), columns[:, j]  # [D,F]

    def features(x: Tensor) -> Tensor:  # [B,H,T,D] -> [B,H,T,F]
        return (x @ first.to(x.dtype)) * (x @ second.to(x.dtype))

    return features


def _identity(x: Tensor) -> Tensor:
    return x
