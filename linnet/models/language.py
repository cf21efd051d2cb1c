"""LanguageModel: predict the next token from the earlier ones.

    logits, state = model(tokens, state)       tokens [B,T]  ->  logits [B,T,N]
    logits, state = model.step(token, state)   token [B]     ->  logits [B,N], equal to the last of `model(tokens)`

The loss is the cross entropy of `targets` (tokens shifted by one) in nats; a target of -100 is not scored.
B batch, T time, E model width, N vocabulary, n positions with a target.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..ops.fused.cross_entropy import SCORES, linear_cross_entropy
from ..targets import IGNORE as IGNORE
from .backbone import Backbone
from .base import StreamModel
from .config import ModelConfig
from .state import ModelState


class LanguageModel(StreamModel):
    """Embedding, backbone and head; the head shares the embedding's weight unless `tie_embeddings` is False."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.backbone = Backbone(config)
        self.head = None if config.tie_embeddings else nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.initialize()

    def forward(
        self,
        tokens: Tensor,
        state: ModelState | None = None,
        *,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        output_state: bool = True,
    ) -> tuple[Tensor, ModelState | None]:
        """Return logits [B,T,N] and the state; mask [B,T]: True = real; cu_seqlens: offsets of packed sequences."""
        how = {"mask": mask, "cu_seqlens": cu_seqlens, "output_state": output_state}
        h, state = self.backbone(self.embed_inputs(tokens), state, **how)
        return self.apply_head(h, tokens), state

    def embed_inputs(self, x: Tensor) -> Tensor:
        check_tokens(x, self.config.vocab_size)
        return self.embed(x)

    def apply_head(self, h: Tensor, x: Tensor) -> Tensor:
        return linear(h, self.out_weight)

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        tokens, targets = batch["tokens"], batch["targets"]
        check_tokens(targets, self.config.vocab_size, ignore=IGNORE)
        h, _ = self.backbone(self.embed_inputs(tokens), output_state=False)
        return linear_cross_entropy(h, self.out_weight, None, targets, IGNORE)

    @torch.no_grad()
    def predictions(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the most likely token and the target, [n] each, of all positions with a target, row by row."""
        tokens, targets = batch["tokens"], batch["targets"]
        check_tokens(targets, self.config.vocab_size, ignore=IGNORE)
        h, _ = self.backbone(self.embed_inputs(tokens), output_state=False)
        scored = targets != IGNORE
        blocks = h[scored].split(max(1, SCORES // self.config.vocab_size))  # as in the loss: never all logits in memory
        return torch.cat([linear(block, self.out_weight).argmax(-1) for block in blocks]), targets[scored]

    @property
    def out_weight(self) -> Tensor:  # [N,E]
        """Weight of the head."""
        return self.embed.weight if self.head is None else self.head.weight


def check_tokens(tokens: Tensor, vocab_size: int, ignore: int | None = None) -> None:
    """Raise ValueError for the first token that is not an integer from 0 to vocab_size - 1, or `ignore`."""
    if torch.compiler.is_compiling() or tokens.is_meta:
        return
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"tokens have dtype {tokens.dtype}; accepted: int64 token ids; use tokens.long()")
    if tokens.numel() == 0:
        return
    low, high = torch.aminmax(tokens)
    if high < vocab_size and (low >= 0 or (ignore is not None and low == ignore)):
        return
    wrong = (tokens < 0) | (tokens >= vocab_size)
    if ignore is not None:
        wrong &= tokens != ignore
    if not wrong.any():
        return
    where = wrong.nonzero()[0].tolist()
    raise ValueError(
        f"token {int(tokens[tuple(where)])} at {where} is outside the vocabulary of {vocab_size}; accepted: 0 to "
        f"{vocab_size - 1}; use the tokenizer the model was trained with"
    )
