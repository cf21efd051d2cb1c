"""Request: a prompt and how to continue it, checked completely before any token is read.

    request = Request(prompt="It was", max_tokens=50, stop="\\n", sampling=Sampling(temperature=0.8))
    job = check_request(model, tokenizer, request)          plain values; ArgumentError for a bad field

Learned positions are limited, so `check_room` refuses a request that would not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from ..data import Tokenizer
from ..errors import ArgumentError, StateError, whole
from ..models import LanguageModel, Model, ModelState
from .detokenizer import longest_token
from .prefixes import Passage, Passages
from .sampling import Sampling

Prompt: TypeAlias = "str | Sequence[int] | Tensor | Passages"
FROM_STATE = "to continue from a state, start the prompt with the last sampled token"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt to continue.

    prompt       a text (with a tokenizer), token ids as a list or a tensor [T], or Passages; never empty
    max_tokens   maximum number of tokens to sample; 0, only for Passages, reads the prompt
    sampling     temperature, filters and seed
    stop         strings that end the completion, also across tokens; the text ends before them
    stop_tokens  tokens that end it
    logprobs     report the log-probability of each token, and of this many of the most likely ones (0: none)
    state        state to start from, one row; None: the start of a sequence
    row          number of the random stream: requests with one seed and different rows draw independently; the i-th
                 prompt of a `Generation` has row i
    first_draw   index of the first random number of that stream
    owner        requests of the owner with the fewest running ones get a free row first
    root         with prefix states: the key of `state`, so that kept states are used and states are kept
    logits       [N], to sample the first token from; for Passages without a last token
    prompt_logprobs   report the log-probability of each token of the prompt, and of so many of the most likely ones
    name         name of the prompt in error messages
    """

    prompt: Prompt
    max_tokens: int = 256
    sampling: Sampling = field(default_factory=Sampling)
    stop: str | Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    logprobs: int | None = None
    state: ModelState | None = None
    row: int = 0
    first_draw: int = 0
    owner: str = ""
    root: bytes | None = None
    logits: Tensor | None = None
    prompt_logprobs: int | None = None
    name: str = "prompt"


class Job(NamedTuple):
    """A checked request, as plain values."""

    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    stop_tokens: frozenset[int]
    logprobs: int | None
    state: ModelState | None
    row: int
    passages: tuple[Passage, ...]
    last: int | None = None  # a token of the prompt that is stepped with the batch
    first_draw: int = 0
    owner: str = ""
    root: bytes | None = None
    prompt_logprobs: int | None = None
    logits: Tensor | None = None


def check_request(model: LanguageModel, tokenizer: Tokenizer | None, request: Request) -> Job:
    """Return the request as plain values, or raise for the first field that is not accepted."""
    if not isinstance(request, Request):
        raise ArgumentError("request", request, "a linnet.generate.Request")
    if not isinstance(request.sampling, Sampling):
        raise ArgumentError("sampling", request.sampling, "a linnet.generate.Sampling")
    state, vocab_size = request.state, model.config.vocab_size
    prompt, passages, last = _passages(request, tokenizer, vocab_size)
    check_states(state, 1)
    least = 0 if isinstance(request.prompt, Passages) else 1
    check_room(model, request.name, len(prompt), state, request.max_tokens, least)
    stop = stop_strings(request.stop, tokenizer, request.max_tokens)
    if request.logprobs is not None:
        whole("logprobs", request.logprobs, 0, vocab_size)
    if request.prompt_logprobs is not None:
        whole("prompt_logprobs", request.prompt_logprobs, 0, vocab_size)
    token_ids("logit_bias", [token for token, _ in request.sampling.logit_bias], vocab_size)
    stop_tokens = frozenset(token_ids("stop_tokens", request.stop_tokens, vocab_size))
    row = whole("row", request.row, 0, 2**64 - 1)
    whole("first_draw", request.first_draw, 0, 2**64 - 1)
    return Job(
        prompt, request.max_tokens, request.sampling, stop, stop_tokens, request.logprobs, state, row, passages, last,
        request.first_draw, request.owner, request.root, request.prompt_logprobs,
        request.logits,
    )  # fmt: skip


def _passages(
    request: Request, tokenizer: Tokenizer | None, vocab_size: int
) -> tuple[list[int], tuple[Passage, ...], int | None]:
    """Return the tokens of the prompt, what is read of them, and the token that is stepped."""
    if not isinstance(request.prompt, Passages):
        begins = request.state is None
        prompt = prompt_tokens(request.name, request.prompt, tokenizer, vocab_size, begins=begins)
        return prompt, (Passage(prompt),), None
    passages, last = request.prompt
    read = [token for passage in passages for token in passage.tokens]
    if last is None and request.logits is None and request.max_tokens:
        raise ArgumentError(request.name, request.prompt, "Passages with a last token, or logits")
    prompt = token_ids(request.name, read if last is None else [*read, last], vocab_size)
    return prompt, tuple(passage for passage in passages if len(passage.tokens)), last


def check_model(model: Model, tokenizer: Tokenizer | None) -> LanguageModel:
    """Return the model; raise ValueError unless it is a language model and the tokenizer has its size."""
    if not isinstance(model, LanguageModel):
        raise ValueError(f"a {type(model).__name__} does not generate text; accepted: a language model")
    if tokenizer is not None and tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {model.config.vocab_size}; use the tokenizer "
            "that the model was trained with, the tokenizer.json of its run"
        )
    return model


def list_prompts(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return the prompts as a list, 1 or more; raise for a single prompt, since a str is iterable too."""
    if isinstance(prompts, (str, Tensor)):
        raise ValueError(f"prompts is one {type(prompts).__name__}; accepted: a list of prompts; use [prompt]")
    listed = list(prompts)
    if not listed:
        raise ArgumentError("prompts", listed, "a list of 1 or more prompts")
    return listed


def prompt_tokens(
    name: str, prompt: Prompt, tokenizer: Tokenizer | None, vocab_size: int, *, begins: bool = True
) -> list[int]:
    """Return a prompt as token ids, one or more; a text that starts a sequence gets the tokenizer's prefix."""
    given: Any = prompt
    if isinstance(prompt, str):
        if tokenizer is None:
            raise ValueError(f"{name} is a str, but there is no tokenizer; pass one, or token ids")
        given = [*(tokenizer.prefix if begins else ()), *tokenizer.encode(prompt)]
    elif isinstance(prompt, Tensor):
        if prompt.ndim != 1 or prompt.is_floating_point():
            raise ValueError(f"{name} is {prompt.dtype} {list(prompt.shape)}; accepted: integers [T]")
        given = prompt.tolist()
    elif not isinstance(prompt, Sequence):
        raise ArgumentError(name, prompt, "a text, or token ids as a list or a tensor [T]")
    if len(given) == 0:
        raise ArgumentError(name, given if isinstance(prompt, Tensor) else prompt, "one token or more", FROM_STATE)
    return token_ids(name, given, vocab_size)


def check_states(states: ModelState | None, rows: int) -> None:
    """Raise StateError unless there is a state for each prompt, or one for all."""
    if states is not None and not isinstance(states, ModelState):
        raise StateError(f"the state is a {type(states).__name__}; accepted: a ModelState")
    if states is not None and len(states.position) not in (1, rows):
        raise StateError(f"states has {len(states.position)} rows for {rows} prompts; accepted: one for each, or one")


def row_state(states: ModelState | None, row: int) -> ModelState | None:
    """Return the state that prompt number `row` starts from."""
    return states if states is None or len(states.position) == 1 else states.select([row])


def check_room(
    model: LanguageModel, name: str, size: int, state: ModelState | None, max_tokens: int, least: int = 1
) -> None:
    """Raise unless max_tokens is `least` or more and, with learned positions, there is one for every token."""
    whole("max_tokens", max_tokens, least)
    if model.config.positions != "learned":
        return
    used = size + (0 if state is None else int(state.position[0]))
    left = model.config.max_length - used + 1  # the last token sampled is not read
    if left < max_tokens:
        room = f"after {name} ({used} tokens with its state) in the {model.config.max_length} learned positions"
        accepted = f"1 to {left} {room}" if left > 0 else f"none {room}, which are used up"
        raise ArgumentError("max_tokens", max_tokens, accepted, "" if left > 0 else "use a shorter prompt")


def stop_strings(stop: str | Iterable[str], tokenizer: Tokenizer | None, max_tokens: int) -> tuple[str, ...]:
    """Return the stop strings; raise for one that is longer than the output can be."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if strings and tokenizer is None:
        raise ArgumentError("stop", strings, "none without a tokenizer", "pass a tokenizer, or use stop_tokens")
    longest = longest_token(tokenizer) if strings and tokenizer is not None else None
    for text in strings:
        if not isinstance(text, str) or not text:
            raise ArgumentError("stop", text, "strings of 1 or more characters", "leave it out to never stop")
        if longest is None and tokenizer is not None:
            size, most, unit = len(tokenizer.encode(text)), max_tokens, "tokens"
        else:
            size, most, unit = len(text.encode()), max_tokens * (longest or 0), "bytes"
        if size > most:
            accepted = f"strings of up to {most} {unit}, the most that {max_tokens} tokens hold"
            raise ArgumentError("stop", _short(text), accepted, "use a shorter one, or allow more tokens")
    return strings


def token_ids(name: str, tokens: Iterable[Any], vocab_size: int) -> list[int]:
    """Return the tokens as a list of integers; raise ArgumentError for the first that is not in the vocabulary."""
    listed = list(tokens)
    if all(type(token) is int for token in listed) and (not listed or min(listed) >= 0 > max(listed) - vocab_size):
        return listed
    for at, token in enumerate(listed):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise ArgumentError(f"{name}[{at}]", token, f"token ids from 0 to {vocab_size - 1}")
        if not 0 <= token < vocab_size:
            accepted, hint = f"0 to {vocab_size - 1}", "use the tokenizer the model was trained with"
            raise ArgumentError(f"{name}[{at}]", int(token), accepted, hint)
    return [int(token) for token in listed]


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
