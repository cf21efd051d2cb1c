"""Generation: a batch of completions that start together; each step samples a token for every unfinished row.

    with Generation(model, ["It was", "Call me"], tokenizer=tokenizer, max_tokens=50) as run:
        while run.live:
            for row, piece in run.step(): ...
    run.completions

It runs on a `Scheduler` (scheduler.py). Entering the context reads the prompts by the chunked form, each at its own
length; a row leaves the engine when it is done, and the others continue. On leaving the context early, unfinished
completions keep what they have so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..data import Tokenizer
from ..errors import StateError
from ..models import Model, ModelState
from .completion import Piece
from .engine import READ, Engine, engine_for
from .requests import Prompt, Request, check_model, check_states, list_prompts, row_state
from .sampling import Sampling
from .scheduler import Event, Scheduler


class Generation:
    """Options as for `generate`; `options` are fields of `Request`, the same for every prompt, all checked here.

    Threads: use one generation from one thread at a time. Several may run on one engine, each in its own thread.
    """

    def __init__(
        self,
        model: Model,
        prompts: Iterable[Prompt],
        *,
        tokenizer: Tokenizer | None = None,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        states: ModelState | None = None,
        engine: Engine | None = None,
        weights: str = "float32",
        **options: Any,
    ) -> None:
        language = check_model(model, tokenizer)
        listed = list_prompts(prompts)
        check_states(states, len(listed))
        options |= {"sampling": sampling or Sampling(), "stop": stop if isinstance(stop, str) else tuple(stop)}
        requests = [
            Request(prompt=prompt, state=row_state(states, i), row=i, name=f"prompt {i}", **options)
            for i, prompt in enumerate(listed)
        ]
        self.engine = engine_for(language, engine, weights=weights)
        self._scheduler = Scheduler(self.engine, tokenizer=tokenizer, max_rows=len(listed), max_queued=0, chunk=READ)
        self.completions = [self._scheduler.completion(self._scheduler.add(request)) for request in requests]
        self._started = False

    @property
    def live(self) -> bool:
        """True while a row is unfinished."""
        return self._scheduler.live > 0

    def __enter__(self) -> Generation:
        """Read the prompts; equal ones are read once, and the state is forked."""
        if self._started:
            raise StateError("this generation has already started; open another, or continue from its final states")
        self._started = True
        try:
            _pieces(self._scheduler.read_prompts())
        except BaseException:
            self._scheduler.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._scheduler.close()

    def step(self) -> list[tuple[int, Piece]]:
        """Sample a token for each unfinished row; return (index of the prompt, piece) of each."""
        if not self._started or not self.live:
            raise StateError("no row is running; call step inside `with Generation(...) as run`, while run.live")
        return _pieces(self._scheduler.step())


def _pieces(events: Sequence[Event]) -> list[tuple[int, Piece]]:
    """Return the pieces of these events; raise the first error among them."""
    pieces = []
    for id, piece, _, error in events:
        if error is not None:
            raise error
        if piece is not None:
            pieces.append((id, piece))
    return pieces
