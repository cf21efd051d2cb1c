"""Beam search: the continuations with the highest score among the `beams` best at each step.

    score = sum of log p(token | earlier tokens) / length ** length_penalty     length in tokens, with the stop token

At each step every running beam is extended by every token, and the `beams` largest sums stay; a beam that ends in a
stop token is finished (Sutskever et al. 2014, arXiv:1409.3215, section 3.2). The search ends when no running beam can
still reach the requested scores: sums only decrease, so the best score of a beam is bounded.
N vocabulary, R running beams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data import Tokenizer
from ..errors import ArgumentError, is_number, whole
from ..models import Model, ModelState
from .completion import Completion
from .detokenizer import decode_continuation
from .engine import READ, Engine, engine_for
from .requests import Prompt, check_model, check_room, check_states, prompt_tokens, token_ids
from .sampling import best, log_softmax

PENALTY = 10  # beyond it, length ** penalty soon overflows


@dataclass(frozen=True)
class _Beam:
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    total: float = 0.0

    def then(self, token: int, logprob: float) -> _Beam:
        return _Beam((*self.tokens, token), (*self.logprobs, logprob), self.total + logprob)


def beam_search(
    model: Model,
    prompt: Prompt,
    *,
    beams: int = 4,
    max_tokens: int = 256,
    tokenizer: Tokenizer | None = None,
    stop_tokens: Sequence[int] = (),
    length_penalty: float = 1.0,
    returned: int = 1,
    states: ModelState | None = None,
    engine: Engine | None = None,
    weights: str = "float32",
) -> list[Completion]:
    """Return the `returned` best continuations, best first, with `score` and `logprobs`; other options as `generate`.

    `length_penalty` 0 compares sums, which favours short ones; 1 compares means per token; above 1 favours long ones.
    """
    language = check_model(model, tokenizer)
    tokens = prompt_tokens("prompt 0", prompt, tokenizer, language.config.vocab_size, begins=states is None)
    check_states(states, 1)
    check_room(language, "prompt 0", len(tokens), states, max_tokens)
    whole("beams", beams, 1)
    whole("returned", returned, 1, beams)
    stops = frozenset(token_ids("stop_tokens", stop_tokens, model.config.vocab_size))
    if not is_number(length_penalty) or not -PENALTY <= length_penalty <= PENALTY:
        raise ArgumentError("length_penalty", length_penalty, f"{-PENALTY} to {PENALTY}", "1 compares means")
    search = _Search(engine_for(language, engine, weights=weights), beams, max_tokens, length_penalty, returned)
    try:
        completions = search.run(torch.tensor(tokens, device=next(model.parameters()).device), states, stops)
    finally:
        search.engine.remove(search.rows)
    for done in completions:
        done.prompt_tokens = tokens
        if tokenizer is not None:
            done.text = decode_continuation(tokenizer, done.tokens[: -1 if done.finish == "stop" else None])
    return completions


class _Search:
    """The running beams, each with a row of the engine that has read all its tokens, and the best finished ones."""

    def __init__(self, engine: Engine, beams: int, max_tokens: int, penalty: float, returned: int) -> None:
        self.engine, self.beams, self.max_tokens = engine, beams, max_tokens
        self.penalty, self.returned = penalty, returned
        self.rows: list[int] = []
        self.running = [_Beam()]
        self.done: list[Completion] = []  # best first

    def run(self, prompt: Tensor, states: ModelState | None, stops: frozenset[int]) -> list[Completion]:
        self.rows = self.engine.add(states)
        for part in prompt.split(READ):
            logits = self.engine.read(part, self.rows[0])[None]  # [1,N]
        for length in range(1, self.max_tokens + 1):
            parents = self._extend(logits, stops, last=length == self.max_tokens)
            if not self.running or not self._can_win(length):
                break
            self._follow(parents)
            tokens = torch.tensor([beam.tokens[-1] for beam in self.running], device=prompt.device)
            logits = self.engine.step(tokens, self.rows)  # [R,N]
        return self.done

    def _extend(self, logits: Tensor, stops: frozenset[int], *, last: bool) -> list[int]:
        """Extend the beams by one token; return, for each that continues, the index of the beam it extends."""
        scores = log_softmax(logits)  # [R,N]
        sums = np.array([[beam.total] for beam in self.running]) + scores
        parents, running = [], []
        for at in best(sums.reshape(-1), self.beams).tolist():
            parent, token = divmod(at, scores.shape[1])
            if sums[parent, token] == -np.inf:
                continue
            beam = self.running[parent].then(token, float(scores[parent, token]))
            if last or token in stops:
                self._finish(beam, parent, token in stops)
            else:
                parents.append(parent)
                running.append(beam)
        self.running = running
        return parents

    def _finish(self, beam: _Beam, parent: int, stopped: bool) -> None:
        score = self._score(beam.total, len(beam.tokens))
        if len(self.done) == self.returned and score <= self._worst():
            return
        finish, stop = ("stop", beam.tokens[-1]) if stopped else ("length", None)
        done = Completion(prompt_tokens=[], tokens=list(beam.tokens), finish=finish, stop=stop, score=score)
        done.logprobs = list(beam.logprobs)
        done.state = self.engine.state([self.rows[parent]])
        self.done = sorted([*self.done, done], key=lambda d: -(d.score or 0.0))[: self.returned]  # stable

    def _can_win(self, length: int) -> bool:
        """Return whether a running beam of this length could still be among the best."""
        if len(self.done) < self.returned:
            return True
        longest = self.max_tokens if self.penalty > 0 else length + 1
        return any(self._score(beam.total, longest) > self._worst() for beam in self.running)

    def _follow(self, parents: list[int]) -> None:
        """Give each beam that continues a row of the engine with the state of its parent."""
        if parents != list(range(len(self.rows))):
            state = self.engine.state(self.rows).select(parents)
            self.engine.remove(self.rows)
            self.rows = []
            self.rows = self.engine.add(state)

    def _score(self, total: float, length: int) -> float:
        return total / length**self.penalty

    def _worst(self) -> float:
        return self.done[-1].score or 0.0
