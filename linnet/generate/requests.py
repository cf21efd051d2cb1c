"""What a call for text asks for, checked as a whole before a single token is read.

    prompts = token_prompts(model, ["It was", [73, 116]], tokenizer)      -> lists of token numbers
    check_room(model, prompts, states, max_tokens)                        learned positions have an end

One prompt that cannot be is named by its index, and then nothing is generated for any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from ..data import Tokenizer
from ..errors import StateError
from ..models import LanguageModel, Model, ModelState
from .pieces import longest_token

Prompt: TypeAlias = "str | Sequence[int] | Tensor"


def check_model(model: Model, tokenizer: Tokenizer | None) -> LanguageModel:
    """The model, if it writes text and the tokenizer is of its size."""
    if not isinstance(model, LanguageModel):
        raise ValueError(f"a {type(model).__name__} does not write text; accepted: a language model (task 'language')")
    if tokenizer is not None and tokenizer.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {model.config.vocab_size}; use the tokenizer "
            "that the model was trained with, the tokenizer.json of its run"
        )
    return model


def token_prompts(
    model: LanguageModel, prompts: Iterable[Prompt], tokenizer: Tokenizer | None, *, begins: bool = True
) -> list[list[int]]:
    """Each prompt as token numbers, at least one, all in the vocabulary; a text that begins gets its prefix."""
    if isinstance(prompts, (str, Tensor)):
        raise ValueError(f"prompts is one {type(prompts).__name__}; accepted: a list of prompts; use [prompt]")
    found = [_tokens(i, prompt, tokenizer, model.config.vocab_size, begins) for i, prompt in enumerate(prompts)]
    if not found:
        raise ValueError("prompts is empty; accepted: a list of 1 or more prompts")
    return found


def check_states(states: ModelState | None, rows: int) -> None:
    """StateError unless there is a state for each prompt, or one for all."""
    if states is not None and len(states.position) not in (1, rows):
        raise StateError(f"states has {len(states.position)} rows for {rows} prompts; accepted: one for each, or one")


def row_state(states: ModelState | None, row: int) -> ModelState | None:
    """The state that a prompt goes on from."""
    return states if states is None or len(states.position) == 1 else states.select([row])


def check_room(
    model: LanguageModel, prompts: Sequence[Sequence[int]], states: ModelState | None, max_tokens: int
) -> None:
    """ValueError unless max_tokens is 1 or more and, with learned positions, every token has one."""
    check_whole("max_tokens", max_tokens, 1)
    if model.config.positions != "learned":
        return
    for i, prompt in enumerate(prompts):
        state = row_state(states, i)
        begun = len(prompt) + (0 if state is None else int(state.position[0]))
        left = model.config.max_length - begun + 1  # the last token sampled is not read
        if left < max_tokens:
            way_out = f"ask for {left} at most" if left > 0 else "use a shorter prompt"
            raise ValueError(
                f"max_tokens is {max_tokens}, but after prompt {i} ({begun} tokens with its state) there is room for "
                f"{max(left, 0)} in the {model.config.max_length} learned positions of this model; {way_out}"
            )


def stop_strings(stop: str | Iterable[str], tokenizer: Tokenizer | None, max_tokens: int) -> tuple[str, ...]:
    """Stop strings that the output can hold."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if strings and tokenizer is None:
        raise ValueError(f"stop is {strings!r}, but there is no tokenizer to make text; give one, or use stop_tokens")
    longest = longest_token(tokenizer) if strings and tokenizer is not None else None
    for text in strings:
        if not isinstance(text, str) or not text:
            raise ValueError(
                f"stop has {text!r}; accepted: strings of 1 or more characters; leave it out to never stop"
            )
        if longest is None and tokenizer is not None:
            size, most, unit = len(tokenizer.encode(text)), max_tokens, "tokens"
        else:
            size, most, unit = len(text.encode()), max_tokens * (longest or 0), "bytes"
        if size > most:
            raise ValueError(
                f"the stop string {_short(text)} has {size} {unit}, but {max_tokens} tokens hold {most} at most, so it "
                "could never be found; give a shorter one or a larger max_tokens"
            )
    return strings


def check_tokens(name: str, tokens: Iterable[Any], vocab_size: int) -> list[int]:
    """Whole numbers of the vocabulary, or a sentence with the first that is not one."""
    found = list(tokens)
    for at, token in enumerate(found):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise ValueError(f"{name} has {token!r} at {at}; accepted: token numbers from 0 to {vocab_size - 1}")
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{name}: token {int(token)} at {at} is outside the vocabulary; accepted: 0 to {vocab_size - 1}; use "
                "the tokenizer the model was trained with"
            )
    return [int(token) for token in found]


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """ValueError unless value is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upper = "or more" if most is None else f"to {most}"
        raise ValueError(f"{name} is {value!r}; accepted: a whole number, {least} {upper}")


def _tokens(i: int, prompt: Prompt, tokenizer: Tokenizer | None, vocab_size: int, begins: bool) -> list[int]:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise ValueError(f"prompt {i} is a str, but there is no tokenizer; give one, or give token numbers")
        prompt = [*(tokenizer.prefix if begins else ()), *tokenizer.encode(prompt)]
    elif isinstance(prompt, Tensor):
        if prompt.ndim != 1 or prompt.is_floating_point():
            raise ValueError(f"prompt {i} is {prompt.dtype} {list(prompt.shape)}; accepted: whole numbers [T]")
        prompt = prompt.tolist()
    elif not isinstance(prompt, Sequence):
        raise ValueError(f"prompt {i} is {prompt!r}; accepted: a text, or token numbers as a list or a tensor [T]")
    if len(prompt) == 0:
        raise ValueError(f"prompt {i} has no tokens; give at least one token, also to go on from a state")
    return check_tokens(f"prompt {i}", prompt, vocab_size)


def _short(text: str, most: int = 40) -> str:
    return repr(text) if len(text) <= most else f"{text[:most]!r}..."
