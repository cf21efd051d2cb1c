"""Text from a language model: prompts are read by the chunked form, then every token costs the same.

    (done,) = generate(model, ["It was"], tokenizer=tokenizer, max_tokens=50, sampling=Sampling(temperature=0.8))
    for piece in stream(model, "It was", tokenizer=tokenizer): print(piece.text, end="", flush=True)

Prompts of different lengths share a batch without padding, and a row leaves when it is done. What a row draws depends
on the seed and its number in the call, not on its neighbours. `Generation` (generation.py) is what both are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..data import Tokenizer
from ..models import Model, ModelState
from .engine import Engine
from .generation import Completion, Generation, Piece
from .requests import Prompt
from .sampling import Sampling

OnText = Callable[[int, str], None]  # number of the prompt, text


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
    """Continue each prompt; one that cannot be is named by its index, and then nothing is generated.

    prompts      texts (with a tokenizer), or token numbers as lists or tensors [T]; of different lengths; never empty
    max_tokens   tokens to sample after each prompt, unless it stops before
    sampling     temperature, filters and seed; without it, draws from the model's own distribution with seed 0
    stop         strings that end a completion wherever tokens break; the text ends before them
    stop_tokens  tokens that end a completion
    logprobs     report the log-probability of each token, and this many of the most likely ones beside it (0: none)
    states       what to go on from: a row for each prompt, or one row for all. A state that a completion holds has not
                 read the last token sampled, so begin the prompt with it
    engine       one that runs already: its other rows go on untouched. Otherwise one is opened with `weights`
    on_text      called with (number of the prompt, text) as text comes, never half a character
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
    """Continue one prompt, a piece for each token as it comes; the last has the `completion`. `how` as for `generate`.

    A bad request is refused by the call itself. A consumer that stops early closes the stream, and the row leaves.
    """
    return _pieces(Generation(model, [prompt], **how))


def _pieces(run: Generation) -> Iterator[Piece]:
    with run:
        while run.live:
            for _, piece in run.step():
                yield piece
