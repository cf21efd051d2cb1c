"""Inputs: map tokens or numbers to the model width, and lengths to a mask.

    x = Inputs(config)(values)         values [B,T,C] or tokens [B,T] -> [B,T,E]; without T for one step
    mask = mask_of(lengths, B, T)      lengths [B] -> [B,T], True = real; None if no row is padded

B batch, T time, C channels, E model width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import ModelConfig
from .language import check_tokens


class Inputs(nn.Module):
    """An embedding of tokens, or a linear map of numbers if the configuration has `input_dim` channels."""

    def __init__(self, config: ModelConfig, *, tokens: int | None = None) -> None:
        """`tokens`: size of the vocabulary, or None for a task that reads numbers only."""
        super().__init__()
        self.tokens, self.channels = tokens, config.input_dim
        self.embed = self.project = None
        if self.channels or tokens is None:
            self.project = nn.Linear(channels_of(config), config.d_model, bias=config.bias)
        else:
            self.embed = nn.Embedding(tokens, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map numbers [B,T,C] or [B,C], or tokens [B,T] or [B], to [...,E]."""
        if self.embed is not None:
            check_tokens(x, self.embed.num_embeddings)
            return self.embed(x)
        assert self.project is not None
        return self.project(checked_numbers(x, self.channels).to(self.project.weight.dtype))


def channels_of(config: ModelConfig) -> int:
    """Return input_dim; raise ValueError if it is 0, for a task that reads numbers."""
    if config.input_dim < 1:
        raise ValueError(
            f"input_dim is {config.input_dim}, but a {config.task!r} model reads numbers; accepted: 1 or more, the "
            "number of channels"
        )
    return config.input_dim


def checked_numbers(x: Tensor, channels: int) -> Tensor:
    """Return x; raise ValueError unless it is floating point and its last axis has `channels` entries."""
    if x.ndim < 2 or x.shape[-1] != channels or not x.is_floating_point():
        wanted = f"floating point [B,T,{channels}], or [B,{channels}] for one step"
        raise ValueError(f"the input is {x.dtype} {list(x.shape)}; accepted: {wanted}; input_dim is {channels}")
    return x


def mask_of(lengths: Tensor | None, rows: int, steps: int) -> Tensor | None:
    """Return a mask [B,T], True for the first `lengths` steps of each row; None if all steps are real."""
    if lengths is None:
        return None
    if lengths.shape != (rows,) or lengths.is_floating_point():
        got = f"{lengths.dtype} {list(lengths.shape)}"
        raise ValueError(f"lengths are {got}; accepted: integers [{rows}], one for each row of the batch")
    wrong = ((lengths < 1) | (lengths > steps)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"row {row} has length {int(lengths[row])}; accepted: 1 to {steps}, the steps of the batch")
    if bool((lengths == steps).all()):
        return None
    return torch.arange(steps, device=lengths.device) < lengths[:, None]
