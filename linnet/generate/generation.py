"""Generation: a batch of completions under way, one token for every row that is not done at each step.

    with Generation(model, ["It was", "Call me"], tokenizer=tokenizer, max_tokens=50) as run:
        while run.live:
            for row, piece in run.step(): ...
    run.completions

Prompts are read by the chunked form on entering, each at its own length; a row leaves the engine when it is done, and
the others go on. Left early, the rows that are not done keep what they have. N vocabulary, B live rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Tokenizer
from ..errors import StateError
from ..models import Model, ModelState
from .engine import Engine, engine_for
from .pieces import Pieces
from .requests import (
    Prompt,
    check_model,
    check_room,
    check_states,
    check_tokens,
    check_whole,
    row_state,
    stop_strings,
    token_prompts,
)
from .sampling import Array, Draws, Sampling, best, choose, log_softmax

READ = 4096  # tokens of a prompt that are read at once: memory is bounded however long it is
Alternatives = list[tuple[int, float]]  # tokens with their log-probabilities, the most likely first


@dataclass(kw_only=True)
class Completion:
    """What was generated after one prompt.

    `tokens` are all that were sampled, with a stop token or those of a stop string; `text` ends before the stop.
    `state` has read the prompt and all of `tokens` but the last: to go on, begin the next prompt with tokens[-1].
    """

    prompt_tokens: list[int]
    tokens: list[int] = field(default_factory=list)
    text: str | None = None  # None without a tokenizer
    finish: str = ""  # "length", "stop", or "interrupted" by the caller
    stop: str | int | None = None  # the stop string or stop token that was found
    logprobs: list[float] | None = None  # of each token, by the model itself: before temperature and filters
    top: list[Alternatives] | None = None  # the most likely tokens at each place
    state: ModelState | None = None
    score: float | None = None  # of a beam
    row: int = 0  # number of the prompt in the call
    seed: int = 0


class Piece(NamedTuple):
    """One token as it comes; `text` may be "" while a character or a stop string may be under way."""

    text: str
    token: int
    logprob: float | None = None
    completion: Completion | None = None  # with the last piece


class Generation:
    """Options as those of `generate`. Everything is checked here, before the engine is touched."""

    def __init__(
        self,
        model: Model,
        prompts: Iterable[Prompt],
        *,
        tokenizer: Tokenizer | None = None,
        max_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        logprobs: int | None = None,
        states: ModelState | None = None,
        engine: Engine | None = None,
        weights: str = "float32",
    ) -> None:
        language = check_model(model, tokenizer)
        found = token_prompts(language, prompts, tokenizer, begins=states is None)
        check_states(states, len(found))
        check_room(language, found, states, max_tokens)
        strings = stop_strings(stop, tokenizer, max_tokens)
        vocab_size = model.config.vocab_size
        if logprobs is not None:
            check_whole("logprobs", logprobs, 0, vocab_size)
        self.sampling, self.max_tokens, self.logprobs, self.states = (
            sampling or Sampling(),
            max_tokens,
            logprobs,
            states,
        )
        self.stop_tokens = frozenset(check_tokens("stop_tokens", stop_tokens, vocab_size))
        self.engine = engine_for(language, engine, weights=weights)
        self.completions = [Completion(prompt_tokens=prompt, row=i) for i, prompt in enumerate(found)]
        pieces = [None if tokenizer is None else Pieces(tokenizer, strings) for _ in found]
        self._rows = [_Row(done, p, self, vocab_size) for done, p in zip(self.completions, pieces, strict=True)]
        self._logits: Tensor | None = None  # [B,N] after the prompts
        self._device = next(model.parameters()).device

    @property
    def live(self) -> bool:
        """Whether some row is not done."""
        return bool(self._rows)

    def __enter__(self) -> Generation:
        """Read the prompts; one that is there several times is read once, and its state forked."""
        if not self._rows or self._rows[0].place >= 0:
            raise StateError("this generation has begun already; open another, or go on from the states it ended in")
        first: dict[Any, int] = {}
        answers: list[Tensor] = []
        shared = self.states is None or len(self.states.position) == 1
        try:
            for i, row in enumerate(self._rows):
                at = first.setdefault(tuple(row.done.prompt_tokens) if shared else i, i)
                if at < i:
                    (row.place,) = self.engine.fork(self._rows[at].place)
                    answers.append(answers[at])
                else:
                    (row.place,) = self.engine.join(row_state(self.states, i))
                    answers.append(self._read(row))
        except BaseException:
            self.engine.leave([row.place for row in self._rows if row.place >= 0])
            self._rows = []
            raise
        self._logits = torch.stack(answers)
        return self

    def __exit__(self, *error: object) -> None:
        for row in self._rows:
            row.end("interrupted")
        self._leave(self._rows)

    def step(self) -> list[tuple[int, Piece]]:
        """Sample a token for each row that is not done -> (number of the prompt, piece) of each."""
        if not self._rows or self._rows[0].place < 0:
            raise StateError("no row is under way; step inside `with Generation(...) as run`, while run.live")
        rows, logits = self._rows, self._logits
        if logits is None:  # the tokens sampled last are read only now, so that a piece is handed on at once
            tokens = torch.from_numpy(np.array([row.done.tokens[-1] for row in rows])).to(self._device)
            logits = self.engine.step(tokens, [row.place for row in rows])
        self._logits = None
        seen = np.stack([row.seen for row in rows]) if self.sampling.repetition_penalty != 1.0 else None
        chosen = choose(logits, self.sampling, [row.draws for row in rows], seen)
        scores = [None] * len(rows) if self.logprobs is None else log_softmax(logits)
        taken = zip(rows, chosen, scores, strict=True)
        pieces = [(row.done.row, row.take(token, score)) for row, token, score in taken]
        self._leave([row for row in rows if row.done.finish])
        return pieces

    def _read(self, row: _Row) -> Tensor:
        for part in torch.tensor(row.done.prompt_tokens, device=self._device).split(READ):
            answer = self.engine.read(part, row.place)
        return answer

    def _leave(self, rows: list[_Row]) -> None:
        if rows:
            for row in rows:
                row.done.state = self.engine.state([row.place])
            self.engine.leave([row.place for row in rows])
            self._rows = [row for row in self._rows if row not in rows]


class _Row:
    """One completion under way."""

    def __init__(self, done: Completion, pieces: Pieces | None, run: Generation, vocab_size: int) -> None:
        self.done, self.pieces, self.run = done, pieces, run
        self.place = -1  # in the engine
        self.draws = Draws(run.sampling.seed, done.row)
        self.said: list[str] = []
        self.seen = np.zeros(vocab_size, dtype=bool)  # for the repetition penalty
        self.seen[done.prompt_tokens] = True
        done.seed = run.sampling.seed
        done.logprobs = None if run.logprobs is None else []
        done.top = [] if run.logprobs else None

    def take(self, token: int, scores: Array | None) -> Piece:
        """A token that was sampled, and the log-probabilities [N] of all where they are asked for."""
        done = self.done
        done.tokens.append(token)
        self.seen[token] = True
        logprob = None if scores is None else float(scores[token])
        if scores is not None and logprob is not None and done.logprobs is not None:
            done.logprobs.append(logprob)
            if done.top is not None:
                done.top.append([(int(i), float(scores[i])) for i in best(scores, self.run.logprobs or 0)])
        text = self._text(token)
        return Piece(text, token, logprob, done if done.finish else None)

    def end(self, finish: str, stop: str | int | None = None) -> str:
        """Done for this reason, unless there is a stop string; returns the text that was held back."""
        done = self.done
        rest = ""
        if self.pieces is not None:
            rest = self.pieces.end()
            done.text = "".join((*self.said, rest))
            if self.pieces.stopped is not None:
                finish, stop = "stop", self.pieces.stopped
        done.finish, done.stop = finish, stop
        return rest

    def _text(self, token: int) -> str:
        if token in self.run.stop_tokens:
            return self.end("stop", token)
        text = "" if self.pieces is None else self.pieces.push(token)
        self.said.append(text)
        stopped = self.pieces is not None and self.pieces.stopped is not None
        if stopped or len(self.done.tokens) == self.run.max_tokens:
            text += self.end("length")
        return text
