"""Generate text: prompts are read by the chunked form, then every token costs the same.

    (done,) = generate(model, ["It was"], tokenizer=tokenizer, max_tokens=50, sampling=Sampling(temperature=0.8))
    for piece in stream(model, "It was", tokenizer=tokenizer): print(piece.text, end="", flush=True)

Prompts of different lengths share a batch without padding, and a row leaves when it is done. The draws of a row depend
on the seed and its index in the call, not on its neighbours. Both functions run a `Generation` (generation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..data import Tokenizer
from ..models import Model, ModelState
from .completion import Completion, Piece
from .engine import Engine
from .generation import Generation
from .requests import Prompt
from .sampling import Sampling

OnText = Callable[[int, str], None]  # index of the prompt, text


def generate(
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
    on_text: OnText | None = None,
) -> list[Completion]:
    """Continue each prompt and return a completion for each; nothing is generated if one of them is refused.

    prompts      texts (with a tokenizer), or token ids as lists or tensors [T]; of different lengths; never empty
    max_tokens   maximum number of tokens to sample after each prompt
    sampling     temperature, filters and seed; default: the model's own distribution with seed 0
    stop         strings that end a completion, also across tokens; the text ends before them
    stop_tokens  tokens that end a completion
    logprobs     report the log-probability of each token, and of this many of the most likely ones (0: none)
    states       state to continue from: a row for each prompt, or one row for all. The state of a completion has not
                 read the last sampled token, so start the prompt with it
    engine       an open engine of this model, whose other rows are not affected; default: a new one with `weights`
    on_text      called with (index of the prompt, text) for new text, which ends in a complete character
    """
    with Generation(
        model, prompts, tokenizer=tokenizer, max_tokens=max_tokens, sampling=sampling, stop=stop,
        stop_tokens=stop_tokens, logprobs=logprobs, states=states, engine=engine, weights=weights,
    ) as run:  # fmt: skip
        while run.live:
            for row, piece in run.step():
                if on_text is not None and piece.text:
                    on_text(row, piece.text)
    return run.completions


def stream(model: Model, prompt: Prompt, **how: Any) -> Iterator[Piece]:
    """Continue one prompt and yield a piece for each token; the last has the `completion`. `how` as for `generate`.

    The call itself refuses a bad request. Closing the iterator early removes the row from the engine.
    """
    return _pieces(Generation(model, [prompt], **how))


def _pieces(run: Generation) -> Iterator[Piece]:
    with run:
        while run.live:
            for _, piece in run.step():
                yield piece
