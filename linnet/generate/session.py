"""Session: one stream of tokens for interactive use: feed, sample, roll back, edit, fork and save.

    with Session(model, tokenizer=tokenizer, keep=32) as session:
        logits = session.feed("Once upon a time")           [N], of the next token
        token = session.sample(Sampling(temperature=0.8))   chosen and read
        session.rollback(1)                                 undone
        branches = session.fork(100)                        without reading the tokens again

A session keeps the last `keep` states, one per `every` tokens, so that up to `keep * every` tokens can be rolled back
for the memory of `keep` states. With `every` 1, the default, a rollback is exact to the last bit; above 1, the tokens
since the last kept state are read again, and rounding may differ. N vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Tokenizer
from ..errors import StateError, is_whole, whole
from ..models import LanguageModel, ModelState
from ..models.language import check_tokens
from ..models.state import load_saved
from ..ops.state import PathLike
from .engine import READ, Engine, engine_for
from .sampling import Draws, Sampling, choose


class Mark(NamedTuple):
    """A point to roll back to."""

    at: int  # tokens read
    state: ModelState
    logits: Tensor | None  # [N]; None before the first token


class Session:
    """One row of an engine, which several sessions may share; `close` removes it. `state`: one row to start from.

    Threads: use one session from one thread at a time. Several sessions may run on one engine, each in its own thread.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        tokenizer: Tokenizer | None = None,
        engine: Engine | None = None,
        keep: int = 0,
        every: int = 1,
        weights: str = "float32",
        state: ModelState | None = None,
    ) -> None:
        _check(model, tokenizer, state)
        for name, value, least in (("keep", keep, 0), ("every", every, 1)):
            whole(name, value, least)
        self.model, self.tokenizer, self.keep, self.every = model, tokenizer, keep, every
        self.engine = engine_for(model, engine, weights=weights)
        self._before = 0 if state is None else int(state.position[0])  # tokens read before the known ones
        self._tokens: list[int] = []
        self._logits: Tensor | None = None
        self._kept: deque[Mark] = deque(maxlen=keep)  # oldest first
        self._row: int | None = self.engine.add(state)[0]

    @property
    def tokens(self) -> list[int]:
        """All tokens read so far; without a known history, those since the state that the session started from."""
        return list(self._tokens)

    @property
    def text(self) -> str:
        """The tokens as text."""
        return self._require_tokenizer("the text of the tokens").decode(self._tokens)

    @property
    def logits(self) -> Tensor | None:  # [N]
        """Logits of the next token; None before the first."""
        return self._logits

    @property
    def state(self) -> ModelState:
        """The state after the last token, as a value."""
        return self.engine.state([self._live()])

    def feed(self, given: str | Sequence[int] | Tensor) -> Tensor:  # [N]
        """Read text or tokens, one or more; return the logits of the next token. An error changes nothing."""
        return self._advance(self._to_ids(given, len(self._tokens)))

    def sample(self, sampling: Sampling | None = None) -> int:
        """Choose the next token, read it and return it.

        The draw is a function of the seed and the number of tokens read: the same after a rollback, and in every fork
        that uses the same seed.
        """
        how = Sampling() if sampling is None else sampling
        if self._logits is None:
            raise StateError("there are no logits to sample from: no token was read yet; feed one or more first")
        seen = None
        if how.repetition_penalty != 1:
            seen = np.zeros((1, len(self._logits)), dtype=bool)
            seen[0, self._tokens] = True
        (token,) = choose(self._logits[None], how, [Draws(how.seed, self._before + len(self._tokens))], seen)
        self._advance(torch.tensor([token]))
        return token

    def rollback(self, n: int) -> None:
        """Undo the last n tokens."""
        reach = len(self._tokens) - self._kept[0].at if self._kept else 0
        if not is_whole(n, 0, reach):
            kept = f"keep is {self.keep}, every is {self.every}"
            raise StateError(f"cannot roll back {n!r} tokens; accepted here: 0 to {reach} ({kept}); use a larger keep")
        goal = len(self._tokens) - n
        if n == 0:
            return
        while self._kept[-1].at > goal:
            self._kept.pop()
        mark = self._kept.pop()
        again = self._tokens[mark.at : goal]
        self._go_back(mark)
        if again:
            self._advance(torch.tensor(again))

    def replace(self, n: int, given: str | Sequence[int] | Tensor) -> Tensor:  # [N]
        """Replace the last n tokens by these; return the logits. An error changes nothing."""
        ids = self._to_ids(given, len(self._tokens) - n)
        mark, kept, tokens = self._mark(), self._kept.copy(), self.tokens
        try:
            self.rollback(n)
            return self._advance(ids)
        except BaseException:  # an interrupt as well
            self._go_back(mark)
            self._kept, self._tokens = kept, tokens
            raise

    def fork(self, copies: int = 1) -> list[Session]:
        """Return new sessions on the same engine with the same tokens, independent from now on."""
        forks = []
        for row in self.engine.fork(self._live(), copies):
            new = copy(self)
            new._row, new._tokens, new._kept = row, list(self._tokens), self._kept.copy()
            forks.append(new)
        return forks

    def save(self, path: PathLike) -> None:
        """Write state, tokens and logits to one state file, from which `Session.load` continues."""
        self.state.save(
            path,
            model=self.model,
            tokenizer=self.tokenizer,
            tokens=None if self._before else [self._tokens],
            answer=None if self._logits is None else self._logits[None],
        )

    @classmethod
    def load(cls, path: PathLike, model: LanguageModel, tokenizer: Tokenizer | None = None, **how: Any) -> Session:
        """Load a session, with keywords as in `Session`; StateError if it is that of another model or tokenizer.

        The file does not hold earlier states, so only tokens read after loading can be rolled back.
        """
        state, tokens, answer = load_saved(path, model=model, tokenizer=tokenizer)
        if answer is not None and answer.shape[1] != model.config.vocab_size:
            got, want = list(answer.shape), [1, model.config.vocab_size]
            raise StateError(
                f"{path}: answer is {got}; accepted: {want}, a logit for each token; save the session again"
            )
        session = cls(model, tokenizer=tokenizer, state=state, **how)
        if tokens is not None:
            session._tokens, session._before = tokens[0], 0
        session._logits = None if answer is None else answer[0]
        return session

    def close(self) -> None:
        """Remove the row from the engine; forks continue."""
        if self._row is not None:
            self.engine.remove([self._row])
        self._row = None
        self._kept.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _live(self) -> int:
        if self._row is None:
            raise StateError("this session is closed; open another, or fork it before closing")
        return self._row

    def _to_ids(self, given: str | Sequence[int] | Tensor, at: int) -> Tensor:  # [T]
        """Return checked tokens to read after `at` others; text at the start gets the tokenizer's prefix."""
        if isinstance(given, str):
            tokenizer = self._require_tokenizer("text")
            given = [*(() if at or self._before else tokenizer.prefix), *tokenizer.encode(given)]
        tokens = torch.as_tensor(given)
        if tokens.ndim != 1 or len(tokens) == 0:
            raise ValueError(f"the tokens to read have shape {list(tokens.shape)}; accepted: 1 or more, [T], or a text")
        check_tokens(tokens, self.model.config.vocab_size)
        return tokens

    def _require_tokenizer(self, what: str) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError(f"{what} needs a tokenizer; open the session with tokenizer=..., or use tokens")
        return self.tokenizer

    def _advance(self, tokens: Tensor) -> Tensor:  # [T] -> [N]
        row, start = self._live(), len(self._tokens)
        cuts = self._cuts(start, start + len(tokens))
        kept, before = self._kept.copy(), self._mark() if len(cuts) > 2 else None
        try:
            for i, j in pairwise(cuts):
                piece = tokens[i - start : j - start]
                if self.keep and i % self.every == 0 and i >= cuts[-1] - self.keep * self.every:
                    self._kept.append(self._mark())
                one = len(piece) == 1
                self._logits = self.engine.step(piece, [row])[0] if one else self.engine.read(piece, row)
                self._tokens += piece.tolist()
        except BaseException:  # an interrupt as well
            if before is not None:
                self._go_back(before)
            self._kept = kept
            raise
        assert self._logits is not None
        return self._logits

    def _cuts(self, start: int, end: int) -> list[int]:
        """Return where to split the tokens from `start` to `end`: at chunks, and where a state is kept."""
        cuts = {start, end, *range(start, end, READ)}
        if self.keep:
            first = max(start, end - self.keep * self.every)
            cuts.update(range(-(-first // self.every) * self.every, end, self.every))
        return sorted(cuts)

    def _mark(self) -> Mark:
        return Mark(len(self._tokens), self.state, self._logits)

    def _go_back(self, mark: Mark) -> None:
        self.engine.restore([self._live()], mark.state)
        del self._tokens[mark.at :]
        self._logits = mark.logits


def _check(model: LanguageModel, tokenizer: Tokenizer | None, state: ModelState | None) -> None:
    if not isinstance(model, LanguageModel):
        raise ValueError(f"a session cannot run a {type(model).__name__}; accepted: a language model")
    if tokenizer is not None and tokenizer.vocab_size != model.config.vocab_size:
        got, want = tokenizer.vocab_size, model.config.vocab_size
        raise ValueError(f"the tokenizer has {got} tokens, the model {want}; use the one the model was trained with")
    if state is not None and len(state.position) != 1:
        raise StateError(f"the state has {len(state.position)} rows; accepted: one; use state.select([row])")
