"""Forecaster and Classifier: a forecast at every step, or a class for a sequence, from numbers or tokens.

    forecast, state = Forecaster(config)(values, state)     values [B,T,C]  ->  [B,T,h,O]: h steps ahead, O channels
    logits, state = Classifier(config)(inputs, state)       [B,T,C] or tokens [B,T]  ->  [B,N], N classes

Both have `step`, whose cost and memory do not grow with the stream if the mixer is linear. A causal classifier uses the
last real step, so it can classify after every step; a bidirectional one uses the mean of all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .backbone import Backbone
from .base import StreamModel, last_real
from .config import ModelConfig
from .inputs import Inputs, mask_of
from .language import check_tokens
from .state import ModelState


class Forecaster(StreamModel):
    """Forecasts `horizon` steps of `output_dim` channels (0: same as the input); the loss is the squared error.

    With `output_channels`, the model learns the change from the current value of these inputs: a new model starts near
    persistence, and a drift of the stream's level does not leave the range of the training data.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.shape = (config.horizon, config.output_dim or config.input_dim)
        self.inputs = Inputs(config)
        self.backbone = Backbone(config)
        self.head = nn.Linear(config.d_model, self.shape[0] * self.shape[1], bias=config.bias)
        self.initialize()

    def forward(
        self, values: Tensor, state: ModelState | None = None, *, output_state: bool = True
    ) -> tuple[Tensor, ModelState | None]:
        h, state = self.backbone(self.embed_inputs(values), state, output_state=output_state and self.config.causal)
        return self.apply_head(h, values), state

    def embed_inputs(self, x: Tensor) -> Tensor:
        return self.inputs(x)

    def apply_head(self, h: Tensor, x: Tensor) -> Tensor:  # [...,E], [...,C] -> [...,h,O]
        return self.forecast(self.head(h), x)

    def forecast(self, out: Tensor, now: Tensor) -> Tensor:
        """Map the output of the head [...,h O] and the current values [...,C] to [...,h,O]."""
        change = out.unflatten(-1, self.shape)
        channels = list(self.config.output_channels)
        return change + now[..., channels].to(change.dtype).unsqueeze(-2) if channels else change

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the sum of squared errors (nats of a Gaussian of variance 1/2, up to a constant) and their number."""
        error = self._error(batch)
        return error.square().sum(), torch.tensor(error.numel(), device=error.device)

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the loss, also as "mse", and "mae"."""
        error = self._error(batch)
        n = torch.tensor(error.numel(), device=error.device)
        squares = (error.square().sum(), n)
        return {"loss": squares, "mse": squares, "mae": (error.abs().sum(), n)}

    def _error(self, batch: Mapping[str, Tensor]) -> Tensor:
        forecast, _ = self(batch["values"], output_state=False)
        targets = batch["targets"]
        if targets.shape != forecast.shape:
            got, want = list(targets.shape), list(forecast.shape)
            raise ValueError(f"targets have shape {got}; accepted: {want}, [B,T,horizon,output_dim] of the model")
        return (forecast if forecast.dtype == torch.float64 else forecast.float()) - targets


class Classifier(StreamModel):
    """Predicts one of `vocab_size` classes from `input_dim` numbers per step, or from `source_vocab_size` tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.inputs = Inputs(config, tokens=config.source_vocab_size or config.vocab_size)
        self.backbone = Backbone(config)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=config.bias)
        self.initialize()

    def forward(
        self,
        inputs: Tensor,
        state: ModelState | None = None,
        *,
        lengths: Tensor | None = None,
        output_state: bool = True,
    ) -> tuple[Tensor, ModelState | None]:
        """Return logits [B,N], one row per sequence, and the state if causal; lengths [B]: real steps of each row."""
        x, mask = self.embed_inputs(inputs), mask_of(lengths, *inputs.shape[:2])
        h, state = self.backbone(x, state, mask=mask, output_state=output_state and self.config.causal)
        return self.apply_head(self.pool(h, mask), inputs), state

    def embed_inputs(self, x: Tensor) -> Tensor:
        return self.inputs(x)

    def apply_head(self, h: Tensor, x: Tensor) -> Tensor:
        return self.head(h)

    def loss(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return self._score(self._logits(batch), batch["labels"])

    @torch.no_grad()
    def metrics(self, batch: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the loss and "accuracy"."""
        logits, labels = self._logits(batch), batch["labels"]
        total, n = self._score(logits, labels)
        return {"loss": (total, n), "accuracy": ((logits.argmax(-1) == labels).sum(), n)}

    def _logits(self, batch: Mapping[str, Tensor]) -> Tensor:
        inputs = batch["values"] if self.config.input_dim else batch["tokens"]
        logits, _ = self(inputs, lengths=batch.get("lengths"), output_state=False)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _score(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_tokens(labels, self.config.vocab_size)
        return cross_entropy(logits, labels, reduction="sum"), torch.tensor(len(labels), device=labels.device)

    def pool(self, h: Tensor, mask: Tensor | None) -> Tensor:  # [B,T,E] -> [B,E]
        """Return the last real step if causal, else the mean of all real steps; padding may be anywhere."""
        if self.config.causal:
            return last_real(h, mask)
        if mask is None:
            return h.mean(1)
        return h.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)
