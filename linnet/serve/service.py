"""Service: what the routes share: the model, its tokenizer, the worker, and requests made from parsed fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import Any

from ..data import Tokenizer
from ..errors import ArgumentError, whole
from ..generate import Completion, Passage, Passages, Request, Sampling
from ..generate.detokenizer import decode_continuation, longest_token
from ..generate.requests import token_ids
from .chat import JinjaTemplate, PlainTemplate
from .errors import ApiError
from .keys import Keys
from .limits import Limits
from .metrics import Metrics
from .schemas import Choice
from .seal import Sealed, Sealer
from .state_bytes import pack_state, unpack_state
from .worker import Worker

STOPS = 16  # stop strings of one request
TOP = 100  # alternatives reported for a token


@dataclass
class Service:
    """One served model."""

    name: str
    created: int
    worker: Worker
    tokenizer: Tokenizer
    template: PlainTemplate | JinjaTemplate
    keys: Keys
    limits: Limits
    metrics: Metrics
    sealer: Sealer
    log_prompts: bool = False

    def check_model(self, name: str | None) -> None:
        """Raise ApiError 404 for another model than the one that is served."""
        if name is not None and name != self.name:
            message = f"there is no model {name[:80]!r}; accepted: {self.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    # ---- tokens

    def encode(self, name: str, text: str, *, begins: bool) -> list[int]:
        """Return the tokens of a text; at the start of a sequence with the tokenizer's prefix."""
        try:
            tokens = [*(self.tokenizer.prefix if begins else ()), *self.tokenizer.encode(text)]
        except ValueError as error:
            raise ApiError(400, f"{name}: {error}", param=name) from None
        return self.checked(name, tokens)

    def checked(self, name: str, tokens: Sequence[Any]) -> list[int]:
        """Return token ids; raise ApiError for one that the model does not have, or for too many."""
        if len(tokens) > self.limits.prompt:
            message = f"{name} has {len(tokens):,} tokens; accepted: up to {self.limits.prompt:,}; append it in parts"
            raise ApiError(400, message, param=name, code="context_length_exceeded")
        return token_ids(name, tokens, self.tokenizer.vocab_size)

    def given(self, text: str | None, tokens: list[int] | None, *, begins: bool) -> list[int]:
        """Return the tokens of `text` or `tokens`, whichever was sent; none if neither was."""
        if text is not None and tokens is not None:
            raise ApiError(400, "text and tokens are both given; send one of them", param="tokens")
        if text is not None:
            return self.encode("text", text, begins=begins)
        return self.checked("tokens", tokens or [])

    def token_text(self, token: int) -> str:
        """Return a token as text; one that is part of a character as OpenAI writes it, bytes:\\xe2."""
        table = self.tokenizer.token_bytes
        if table is None:
            return decode_continuation(self.tokenizer, [token])
        try:
            return table[token].decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in table[token])

    def token_bytes(self, token: int) -> list[int]:
        """Return the bytes of a token."""
        table = self.tokenizer.token_bytes
        return list(table[token] if table is not None else decode_continuation(self.tokenizer, [token]).encode())

    # ---- requests

    def sampling(self, body: Choice | Any, seed: int) -> Sampling:
        """Return how the fields of a body choose tokens."""
        numbers = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
        given: dict[str, Any] = {name: getattr(body, name, None) for name in (*numbers, "top_k")}
        given = {name: value for name, value in given.items() if value is not None}
        for name in ("presence_penalty", "frequency_penalty"):
            _within(name, given.get(name, 0), -2, 2)
        bias = getattr(body, "logit_bias", None) or {}
        for token, value in bias.items():
            if not re.fullmatch(r"\d{1,9}", token):
                raise ArgumentError("logit_bias", token, "names that are token ids")
            _within("logit_bias", value, -100, 100)
        return Sampling(**given, logit_bias=tuple((int(token), value) for token, value in bias.items()), seed=seed)

    def seed(self, seed: int | None) -> int:
        """Return the seed of a request: any 64-bit integer, or a random one."""
        if seed is None:
            return randbits(48)
        return whole("seed", seed, -(2**63), 2**64 - 1) % 2**64

    def request(
        self,
        body: Choice | Any,
        prompt: Passages,
        max_tokens: int,
        *,
        seed: int,
        logprobs: int | None = None,
        stop: Sequence[str] = (),
        least: int = 1,
        **how: Any,
    ) -> Request:
        """Return a request for the scheduler; its numbers are checked against the limits."""
        whole("max_tokens", max_tokens, least, self.limits.tokens)
        if logprobs is not None:
            whole("logprobs", logprobs, 0, min(TOP, self.tokenizer.vocab_size))
        given = getattr(body, "stop", None) or ()
        stops = [*((given,) if isinstance(given, str) else given), *stop]
        if len(stops) > STOPS:
            raise ArgumentError("stop", len(stops), f"up to {STOPS} strings")
        stops = [text for text in stops if not text or self._may_occur(text, max_tokens)]
        return Request(
            prompt=prompt, max_tokens=max_tokens, sampling=self.sampling(body, seed), stop=stops,
            stop_tokens=self.tokenizer.ends, logprobs=logprobs, **how,
        )  # fmt: skip

    def _may_occur(self, text: str, max_tokens: int) -> bool:
        """Return whether so many tokens can hold a stop string; others never stop anything."""
        longest = longest_token(self.tokenizer)
        if longest is None:
            return len(self.tokenizer.encode(text)) <= max_tokens
        return len(text.encode("utf-8", "replace")) <= max_tokens * longest

    # ---- stateless

    def opened(self, owner: str, sealed: str, more: int) -> tuple[list[int], dict[str, Any]]:
        """Return the token a sealed state ("" for the start) continues with before `more` new ones, and the fields of
        the request; draws are counted as in a session."""
        if not sealed:
            return [], {"root": self.worker.sessions.root(owner), "first_draw": more}
        state = self.sealer.open(owner, sealed)
        unpacked, _ = unpack_state(state.state, self.worker.model)
        return [state.last], {"state": unpacked, "root": state.key, "first_draw": state.size + more}

    def sealed(self, owner: str, done: Completion) -> str | None:
        """Return the sealed state after a completion; None if it was not read completely."""
        if done.state is None or done.key is None:
            return None
        last = (done.tokens or done.prompt_tokens)[-1]
        size = int(done.state.position[0]) + 1
        return self.sealer.seal(owner, Sealed(size, last, done.key, pack_state(done.state)))


def passages_of(texts: Sequence[list[int]]) -> Passages:
    """Return tokens, a list for each message, as a prompt whose last token is stepped."""
    parts = [tokens for tokens in texts if tokens]
    flat = [token for tokens in parts for token in tokens]
    passages, at = [], 0
    for i, tokens in enumerate(parts):  # as the parts of a session: a passage ends before the last token of its message
        end = at + len(tokens) - (i == 0)
        passages.append(Passage(flat[at:end]))
        at = end
    return Passages(tuple(passage for passage in passages if passage.tokens), flat[-1])


def usage(done: Sequence[Completion], prompts: Sequence[Completion]) -> dict[str, Any]:
    """Return the counts of OpenAI; `prompts`: a completion for each different prompt."""
    prompt, sampled = sum(len(x.prompt_tokens) for x in prompts), sum(len(x.tokens) for x in done)
    cached = sum(x.cached_tokens for x in prompts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def session_usage(start: int, done: Completion) -> dict[str, Any]:
    """Return the counts for a session that had `start` tokens before the first sampled one."""
    cached = start - len(done.prompt_tokens) + done.cached_tokens
    counts = {"prompt_tokens": start, "completion_tokens": len(done.tokens), "total_tokens": start + len(done.tokens)}
    return counts | {"prompt_tokens_details": {"cached_tokens": cached}}


def finish_reason(done: Completion) -> str:
    """Return why a completion ended, in the words of the API."""
    return {"interrupted": "cancelled"}.get(done.finish, done.finish)


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ArgumentError(name, value, f"a number from {least} to {most}")
