"""Reading: a prompt that the scheduler reads piece by piece, for all requests that have it.

    reading = Reading(row, chunk)
    reading.skip(engine, prefixes)              start from a kept state, if there is one
    reading.read(engine, prefixes)              one piece, or a part of a sampled one; reading.ended after the last

N vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .engine import Engine
from .prefixes import STEPS, PrefixStates, PromptPiece, cut
from .row import Row
from .sampling import log_softmax

TURN = STEPS // 4  # tokens of a sampled piece that are stepped before other prompts have their turn
SHARE = 4  # a piece of a prompt, however short, counts as chunk / SHARE tokens, since a call has a fixed cost


class Reading:
    """`rows` are the requests, `place` their row of the engine, `logits` [N] the output after the last piece."""

    def __init__(self, row: Row, chunk: int) -> None:
        self.rows = [row]
        self.job, self.logits = row.job, row.job.logits
        self.pieces = cut(row.job.passages, chunk, row.job.root or b"")
        self.place = -1
        self.chunk = chunk
        self._state = row.job.state
        self._at = 0  # pieces read
        self._within = 0  # tokens of a sampled piece that were stepped

    @property
    def ended(self) -> bool:
        """True when all pieces have been read."""
        return self._at == len(self.pieces)

    @property
    def cost(self) -> int:
        """Tokens that the next piece counts as."""
        piece = self.pieces[self._at]
        return self.chunk if piece.sampled else max(len(piece.tokens), self.chunk // SHARE)

    def fits(self, row: Row) -> bool:
        """Return whether another request has the same prompt."""
        mine, other = self.job, row.job
        same = mine.state is other.state and mine.root == other.root and mine.last == other.last
        same &= mine.prompt_logprobs is None and other.prompt_logprobs is None
        return same and mine.logits is other.logits and mine.passages == other.passages

    def skip(self, engine: Engine, prefixes: PrefixStates | None) -> int:
        """Continue from the state kept after the most pieces; return the number of tokens skipped by all requests."""
        job, at = self.job, self._at
        usable = job.root is not None and job.last is not None and job.prompt_logprobs is None
        if prefixes is not None and usable and not self._within:
            self._at += prefixes.longest(self.pieces[at:])
        skipped = sum(len(piece.tokens) for piece in self.pieces[at : self._at])
        if skipped and prefixes is not None:
            state = prefixes.get(self.pieces[self._at - 1].key)
            assert state is not None
            if self.place < 0:
                self._state = state
            else:
                engine.restore([self.place], state)
            for row in self.rows:
                row.done.cached_tokens += skipped
        if self.place < 0:
            (self.place,) = engine.add(self._state)
        return skipped * len(self.rows)

    def read(self, engine: Engine, prefixes: PrefixStates | None) -> int:
        """Read the next piece, or a part of it; return the number of tokens of a piece that is complete now."""
        piece, device = self.pieces[self._at], next(engine.model.parameters()).device
        if piece.sampled:
            self._step(engine, piece, device)
        else:
            self._read_chunk(engine, torch.tensor(piece.tokens, device=device))
        if self._within:
            return 0
        self._at += 1
        if prefixes is not None and self.job.root is not None:
            prefixes.keep(piece.key, engine.state([self.place]))
        return len(piece.tokens)

    def _read_chunk(self, engine: Engine, tokens: Tensor) -> None:
        if self.job.prompt_logprobs is None:
            self.logits = engine.read(tokens, self.place)
            return
        logits = engine.read_all(tokens, self.place)  # [T,N]
        (row,) = self.rows
        known = len(row.done.prompt_logprobs or ()) + 1
        following = row.job.prompt[known : known + len(tokens)]
        row.take_prompt(following, log_softmax(logits)[: len(following)])
        self.logits = logits[-1]

    def _step(self, engine: Engine, piece: PromptPiece, device: torch.device) -> None:
        """Step a few tokens of a piece as they were stepped when they were sampled."""
        end = min(self._within + TURN, len(piece.tokens))
        for token in piece.tokens[self._within : end]:
            (self.logits,) = engine.step(torch.tensor([token], device=device), [self.place])
        self._within = end if end < len(piece.tokens) else 0
