"""score: how many nats a text or an image costs an engine that is stepped through it, given what really came.

    nats = - sum_t log P(target_t | inputs_0 .. inputs_t)          bits = nats / ln 2

The same number as `model.loss`, which reads everything at once, but for rounding; so what weights of fewer bits cost is
the difference of the two. B rows, T steps, N values a token or pixel can take, P width of an answer.
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
    """(sum of nats, how many they are a sum of) of rows that join the engine, are stepped, and leave again.

    A language model has tokens [B,T] and targets [B,T], the token after each, or -100 where none is scored. An image
    model has tokens [B,T] only, its values: the first follows the start token, and each is scored.
    """
    inputs, wanted = _checked(engine, tokens, targets)
    scored = wanted != IGNORE  # [B,T]
    steps = int(scored.any(0).nonzero().max()) + 1 if scored.any() else 0  # the rest is padding
    nats = torch.zeros((), dtype=torch.float64)
    rows = engine.join(rows=len(inputs)) if steps else []
    try:
        for t in range(steps):
            answer = engine.step(inputs[:, t].contiguous(), rows)  # [B,P]
            here = scored[:, t]
            nats -= _log_prob(engine, answer[here], wanted[here, t]).double().sum().cpu()
            if on_progress is not None:
                on_progress(t + 1, steps)
    finally:
        if rows:
            engine.leave(rows)
    return float(nats), int(scored.sum())


@torch.inference_mode()
def _log_prob(engine: Engine, answer: Tensor, values: Tensor) -> Tensor:
    """[B,P], [B] -> [B]; float32 or wider."""
    if isinstance(engine.model, ImageModel):
        return engine.model.log_prob(answer, values)
    wide = answer if answer.dtype == torch.float64 else answer.float()
    return log_softmax(wide, dim=-1).gather(-1, values[:, None])[:, 0]


def _checked(engine: Engine, tokens: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
    """What is read and what is scored, [B,T] each."""
    model = engine.model
    if not isinstance(model, (LanguageModel, ImageModel)):
        raise ValueError(f"a {type(model).__name__} has no tokens to score; accepted: a language or an image model")
    if tokens.ndim != 2 or not tokens.numel():
        raise ValueError(f"tokens have shape {list(tokens.shape)}; accepted: [B,T], one row or more of one or more")
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
