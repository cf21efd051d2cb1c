"""score: the negative log-likelihood of a text or an image by stepping an engine through it (teacher forcing).

    nats = - sum_t log P(target_t | inputs_0 .. inputs_t)          bits = nats / ln 2

Up to rounding it equals `model.loss`, which reads everything in parallel; the difference of the two is the cost of
quantised weights. B rows, T steps, N values of a token or pixel, P width of an output.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from ..models.image import ImageModel
from ..models.language import IGNORE, LanguageModel, check_tokens
from .engine import Engine

OnProgress = Callable[[int, int], None]  # steps taken so far, steps in all


def score(
    engine: Engine, tokens: Tensor, targets: Tensor | None = None, *, on_progress: OnProgress | None = None
) -> tuple[float, int]:
    """Return (sum of nats, number of targets); the rows are added to the engine and removed at the end.

    A language model takes tokens [B,T] and targets [B,T], the token after each, or -100 for none. An image model takes
    tokens [B,T] only, its values: the first follows the start token, and all are scored.
    """
    inputs, wanted = _checked(engine, tokens, targets)
    scored = wanted != IGNORE  # [B,T]
    steps = int(scored.any(0).nonzero().max()) + 1 if scored.any() else 0  # the rest is padding
    nats = torch.zeros((), dtype=torch.float64)
    rows = engine.add(rows=len(inputs)) if steps else []
    try:
        for t in range(steps):
            output = engine.step(inputs[:, t].contiguous(), rows)  # [B,P]
            here = scored[:, t]
            nats -= _log_prob(engine, output[here], wanted[here, t]).double().sum().cpu()
            if on_progress is not None:
                on_progress(t + 1, steps)
    finally:
        if rows:
            engine.remove(rows)
    return float(nats), int(scored.sum())


@torch.inference_mode()
def _log_prob(engine: Engine, output: Tensor, values: Tensor) -> Tensor:
    """Return log P(values) from the output: [B,P], [B] -> [B], float32 or wider."""
    if isinstance(engine.model, ImageModel):
        return engine.model.log_prob(output, values)
    wide = output if output.dtype == torch.float64 else output.float()
    return log_softmax(wide, dim=-1).gather(-1, values[:, None])[:, 0]


def _checked(engine: Engine, tokens: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the inputs and the targets, [B,T] each."""
    model = engine.model
    if not isinstance(model, (LanguageModel, ImageModel)):
        raise ValueError(f"a {type(model).__name__} has no tokens to score; accepted: a language or an image model")
    if tokens.ndim != 2 or not tokens.numel():
        raise ValueError(f"tokens have shape {list(tokens.shape)}; accepted: [B,T], B and T of 1 or more")
    check_tokens(tokens, model.config.vocab_size)
    if isinstance(model, ImageModel):
        if targets is not None:
            raise ValueError("targets are given for an image model, whose values are its targets; leave them out")
        first = tokens.new_full((len(tokens), 1), model.start)
        return torch.cat([first, tokens[:, :-1]], dim=1), tokens
    if targets is None or targets.shape != tokens.shape:
        got = "missing" if targets is None else f"of shape {list(targets.shape)}"
        raise ValueError(f"targets are {got}; accepted: {list(tokens.shape)}, the token after each, or {IGNORE}")
    check_tokens(targets, model.config.vocab_size, ignore=IGNORE)
    return tokens, targets
