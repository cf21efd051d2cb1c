"""EncoderDecoder: encode a source bidirectionally, then decode the target token by token.

    source = model.encode(tokens, lengths)                tokens [B,S]  ->  Source: a state for each decoder layer
    logits, state = model.decode(tokens, source, state)   tokens [B,T]  ->  [B,T,N]
    logits, state = model.step(token, source, state)      token [B]     ->  [B,N]

Vaswani et al. 2017, arXiv:1706.03762, with linear cross attention (Katharopoulos et al. 2020): the source becomes one
sum, and the cost of a decoded token does not depend on its length. With mixer "softmax" it is kept as keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from ..layers import CAUSAL_ONLY, CONVOLUTIONS, CrossAttention
from ..ops.state import KVState, Rows, State
from .backbone import Backbone
from .base import Model
from .config import ModelConfig
from .inputs import mask_of
from .language import IGNORE, check_tokens
from .state import ModelState


class Source(NamedTuple):
    """An encoded source: one state for each layer of the decoder; a value, never modified."""

    layers: tuple[State | KVState, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held by the tensors of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, rows: Rows) -> Source:
        """Return the given batch rows, in that order, repeats allowed (beams)."""
        return Source(tuple(layer.select(rows) for layer in self.layers))


class EncoderDecoder(Model):
    """An encoder of `n_encoder_layers` (0: n_layers) over `source_vocab_size` tokens, and a decoder of `n_layers`.

    Cross attention uses the first mixer of the configuration that can attend to another sequence, else softmax.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        readers = [name for name in config.pattern if name not in (*CAUSAL_ONLY, "lsh", *CONVOLUTIONS)]
        self.embed_source = nn.Embedding(config.source_vocab_size or config.vocab_size, config.d_model)
        self.encoder = Backbone(config, n_layers=config.n_encoder_layers or config.n_layers, causal=False)
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.backbone = Backbone(config, causal=True, cross=(*readers, "softmax")[0])  # the decoder
        self.head = None if config.tie_embeddings else nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.initialize()

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks of the encoder, then those of the decoder."""
        return nn.ModuleList([*self.encoder.blocks, *self.backbone.blocks])

    def forward(
        self, source: Tensor, tokens: Tensor, *, source_lengths: Tensor | None = None, output_state: bool = True
    ) -> tuple[Tensor, ModelState | None]:
        """Encode source [B,S] and decode tokens [B,T]: logits [B,T,N] of the token after each, and the state."""
        return self.decode(tokens, self.encode(source, source_lengths), output_state=output_state)

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Source:
        """Encode source [B,S]; lengths [B]: real tokens of each row."""
        check_tokens(source, self.embed_source.num_embeddings)
        mask = mask_of(lengths, *source.shape)
        memory, _ = self.encoder(self.embed_source(source), mask=mask, output_state=False)
        return Source(tuple(reader.source_state(memory, mask) for reader in self._readers()))

    def decode(
        self, tokens: Tensor, source: Source, state: ModelState | None = None, *, output_state: bool = True
    ) -> tuple[Tensor, ModelState | None]:
        """Return logits [B,T,N] for target tokens [B,T], and the state."""
        check_tokens(tokens, self.config.vocab_size)
        h, state = self.backbone(self.embed(tokens), state, source=source.layers, output_state=output_state)
        return linear(h, self.out_weight), state

    def step(self, token: Tensor, source: Source, state: ModelState | None = None) -> tuple[Tensor, ModelState]:
        """Return logits [B,N] for the next target token [B] of every row, and the state."""
        check_tokens(token, self.config.vocab_size)
        h, state = self.backbone.step(self.embed(token), state, source=source.layers)
        return linear(h, self.out_weight), state

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of `targets` (-100: not scored) given `source`, `source_lengths` and `tokens`."""
        return self._score(self._logits(batch), batch["targets"])

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the loss and "accuracy": targets that are the most probable token given the true earlier ones."""
        logits, targets = self._logits(batch), batch["targets"]
        total, n = self._score(logits, targets)
        return {"loss": (total, n), "accuracy": ((logits.argmax(-1) == targets).sum(), n)}

    @property
    def out_weight(self) -> Tensor:  # [N,E]
        """Weight of the head."""
        return self.embed.weight if self.head is None else self.head.weight

    def _logits(self, batch: Mapping[str, Tensor]) -> Tensor:
        how = {"source_lengths": batch.get("source_lengths"), "output_state": False}
        logits, _ = self(batch["source"], batch["tokens"], **how)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _score(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        check_tokens(targets, self.config.vocab_size, ignore=IGNORE)
        total = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return total, (targets != IGNORE).sum()

    def _readers(self) -> list[CrossAttention]:
        return [reader for block in self.backbone.blocks if isinstance(reader := block.cross, CrossAttention)]
