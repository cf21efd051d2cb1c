"""SpeechModel: a distribution over phones and the blank for every frame, trained with CTC.

    logits, state = model(features, lengths=lengths)      features [B,T,F]  ->  logits [B,T,V], symbol 0 is the blank
    model.decode(features, lengths, beam=8)               label sequences

SpeechModel is bidirectional unless `causal`, and then also steps frame by frame; BiLSTMModel is the baseline of
Katharopoulos et al. 2020, arXiv:2006.16236, section 4.3. B batch, T frames, F features, V symbols.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .backbone import Backbone
from .base import Model
from .config import ModelConfig
from .ctc import ctc_loss, error_rate, greedy_decode, prefix_beam_decode
from .inputs import Inputs, channels_of, checked_numbers, mask_of
from .language import check_tokens
from .state import ModelState


class CTCModel(Model):
    """Base class of the speech models: loss, decoding and phone error rate."""

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the CTC loss in nats and the number of target symbols."""
        return self._score(self.log_probs(batch["features"], batch["lengths"]), batch)

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the loss and "per": edits from the greedy labels to the targets, and the number of target symbols."""
        log_probs = self.log_probs(batch["features"], batch["lengths"])
        sizes = batch["target_lengths"].tolist()
        wanted = [row[:size] for row, size in zip(batch["targets"].tolist(), sizes, strict=True)]
        wrong = error_rate(greedy_decode(log_probs, batch["lengths"]), wanted)
        edits, symbols = (torch.tensor(n, device=log_probs.device) for n in wrong)
        return {"loss": self._score(log_probs, batch), "per": (edits, symbols)}

    @torch.no_grad()
    def decode(self, features: Tensor, lengths: Tensor, beam: int | None = None) -> list[list[int]]:
        """Return the labels of each row: greedy, or by prefix beam search with `beam` prefixes."""
        log_probs = self.log_probs(features, lengths)
        return greedy_decode(log_probs, lengths) if beam is None else prefix_beam_decode(log_probs, lengths, beam)

    def log_probs(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return log-probabilities: [B,T,F] -> [B,T,V], float32 or wider."""
        logits, _ = self(features, lengths=lengths, output_state=False)
        return log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)

    @staticmethod
    def _score(log_probs: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        check_tokens(batch["targets"], log_probs.shape[-1])
        total = ctc_loss(log_probs, batch["lengths"], batch["targets"], batch["target_lengths"])
        return total, batch["target_lengths"].sum().clamp(min=1)  # a batch of silence counts as one symbol


class SpeechModel(CTCModel):
    """A linear map of the features, the backbone and a linear head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.inputs = Inputs(config)
        self.backbone = Backbone(config)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=config.bias)
        self.initialize()

    def forward(
        self,
        features: Tensor,
        state: ModelState | None = None,
        *,
        lengths: Tensor | None = None,
        output_state: bool = True,
    ) -> tuple[Tensor, ModelState | None]:
        """Return logits [B,T,V], and the state if the model is causal; lengths [B]: real frames of each row."""
        x = self.inputs(features)
        mask = mask_of(lengths, *features.shape[:2])
        h, state = self.backbone(x, state, mask=mask, output_state=output_state and self.config.causal)
        return self.head(h), state

    def step(self, frame: Tensor, state: ModelState | None = None) -> tuple[Tensor, ModelState]:
        """Return the logits of the next frame of every row, [B,F] -> [B,V]; causal models only."""
        h, state = self.backbone.step(self.inputs(frame), state)
        return self.head(h), state


class BiLSTMLayer(nn.Module):
    """A forward and a backward LSTM over the real frames of each row: [B,T,.] -> [B,T,2E]."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        return pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]


class BiLSTMModel(CTCModel):
    """`n_layers` bidirectional LSTMs with `d_model` units per direction; the paper has 3 layers of 320."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        widths = [channels_of(config)] + [2 * config.d_model] * (config.n_layers - 1)
        self.layers = nn.ModuleList(BiLSTMLayer(width, config.d_model) for width in widths)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(2 * config.d_model, config.vocab_size, bias=config.bias)
        self.initialize()

    @property
    def blocks(self) -> nn.ModuleList:
        return self.layers

    def forward(
        self, features: Tensor, state: None = None, *, lengths: Tensor | None = None, output_state: bool = False
    ) -> tuple[Tensor, None]:
        """Return logits as SpeechModel.forward does; a bidirectional model has no state."""
        x = checked_numbers(features, self.config.input_dim).to(self.head.weight.dtype)
        B, T = features.shape[:2]
        mask_of(lengths, B, T)  # checks lengths
        lengths = torch.full((B,), T) if lengths is None else lengths
        for layer in self.layers:
            x = self.dropout(layer(x, lengths))
        return self.head(x), None

    def state_bytes(self, length: int, dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes of h and c, in both directions, of every layer."""
        return 4 * self.config.n_layers * self.config.d_model * dtype.itemsize
