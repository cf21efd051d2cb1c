"""Completion and Piece: the result of a request, complete and token by token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..models import ModelState

Alternatives = list[tuple[int, float]]  # tokens with their log-probabilities, the most likely first


@dataclass(kw_only=True)
class Completion:
    """The continuation of one prompt.

    `tokens` are all sampled tokens, including a stop token or those of a stop string; `text` ends before the stop.
    `state` has read the prompt and all of `tokens` but the last: to continue, start the next prompt with tokens[-1].
    """

    prompt_tokens: list[int]
    tokens: list[int] = field(default_factory=list)
    text: str | None = None  # None without a tokenizer
    finish: str = ""  # "length", "stop", "interrupted" by the caller, or "error"; "" while it runs
    stop: str | int | None = None  # the stop string or stop token that ended it
    logprobs: list[float] | None = None  # of each token, before temperature and filters
    top: list[Alternatives] | None = None  # the most likely tokens at each step
    state: ModelState | None = None  # None while it runs, and if it ended before the whole prompt was read
    score: float | None = None  # of a beam search
    prompt_logprobs: list[float] | None = None  # of each token of the prompt but the first, if requested
    prompt_top: list[Alternatives] | None = None
    cached_tokens: int = 0  # of the prompt, not read because a kept state had read them (prefixes.py)
    key: bytes | None = None  # of the state, for requests with a `root`
    row: int = 0  # number of the prompt in the call
    seed: int = 0


class Piece(NamedTuple):
    """One sampled token; `text` is "" while a character or a possible stop string is incomplete."""

    text: str
    token: int
    logprob: float | None = None
    completion: Completion | None = None  # with the last piece
