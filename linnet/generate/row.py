"""Row: one running request. It turns sampled tokens into text and log-probabilities until a stop or the last token.

    row = Row(job, tokenizer, vocab_size)
    piece = row.take(token, scores)                        row.done.finish is set once it has ended
    text = row.end("interrupted")                          end it early; returns the text held back

A row does not know engines and batches: the scheduler (scheduler.py) gives it a place and tokens. N vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..data import Tokenizer
from .completion import Completion, Piece
from .detokenizer import Detokenizer
from .requests import Job
from .sampling import Array, Draws, best


class Row:
    """The progress of one request; `done` is its completion so far."""

    def __init__(self, job: Job, tokenizer: Tokenizer | None, vocab_size: int) -> None:
        self.job = job
        self.id = -1  # set by the scheduler
        self.place = -1  # row of the engine, once the prompt has been read
        self.last = -1  # the token to step next
        self.key = job.root  # of the state at the last place where one may be kept, and the tokens stepped since
        self.since: list[int] = []
        how, top = job.sampling, job.logprobs
        self.done = Completion(prompt_tokens=job.prompt, row=job.row, seed=how.seed)
        self.done.logprobs = None if top is None else []
        self.done.top = [] if top else None
        self.draws = Draws(how.seed, job.row, job.first_draw)
        self.settings = replace(how, seed=0)  # rows that share them are sampled in one call
        self.counts: Array | None = None  # [N], for the frequency and presence penalties
        if how.frequency_penalty or how.presence_penalty:
            self.counts = np.zeros(vocab_size, dtype=np.float32)
        self.seen: Array | None = None  # [N] bool, for the repetition penalty
        if how.repetition_penalty != 1.0:
            self.seen = np.zeros(vocab_size, dtype=bool)
            self.seen[job.prompt] = True
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer, job.stop)
        self._texts: list[str] = []
        if job.prompt_logprobs is not None:
            self.done.prompt_logprobs, self.done.prompt_top = [], []

    def take(self, token: int, scores: Array | None) -> Piece:
        """Add a sampled token; `scores` [N] are the log-probabilities of all tokens, if requested."""
        done = self.done
        done.tokens.append(token)
        self.last = token
        if self.seen is not None:
            self.seen[token] = True
        if self.counts is not None:
            self.counts[token] += 1
        logprob = None
        if scores is not None and done.logprobs is not None:
            logprob = float(scores[token])
            done.logprobs.append(logprob)
            if done.top is not None:
                done.top.append([(int(i), float(scores[i])) for i in best(scores, self.job.logprobs or 0)])
        text = self._text(token)
        return Piece(text, token, logprob, done if done.finish else None)

    def take_prompt(self, tokens: Sequence[int], scores: Array) -> None:
        """Add the log-probabilities of tokens of the prompt [T] from those of all tokens [T,N]."""
        logprobs, top = self.done.prompt_logprobs, self.done.prompt_top
        assert logprobs is not None
        assert top is not None
        count = self.job.prompt_logprobs or 0
        for token, row in zip(tokens, scores, strict=True):
            logprobs.append(float(row[token]))
            top.append([(int(i), float(row[i])) for i in best(row, count)] if count else [])

    def end(self, finish: str, stop: str | int | None = None) -> str:
        """End for this reason, unless the rest contains a stop string; return the text held back."""
        done = self.done
        rest = ""
        if self._detokenizer is not None:
            rest = self._detokenizer.end()
            done.text = "".join((*self._texts, rest))
            if self._detokenizer.stopped is not None:
                finish, stop = "stop", self._detokenizer.stopped
        done.finish, done.stop = finish, stop
        return rest

    def _text(self, token: int) -> str:
        if token in self.job.stop_tokens:
            return self.end("stop", token)
        text = "" if self._detokenizer is None else self._detokenizer.push(token)
        self._texts.append(text)
        stopped = self._detokenizer is not None and self._detokenizer.stopped is not None
        if stopped or len(self.done.tokens) == self.job.max_tokens:
            text += self.end("length")
        return text
