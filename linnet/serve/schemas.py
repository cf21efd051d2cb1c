"""Bodies of requests: every field that is accepted, with its type. An unknown field is refused by name.

Fields of OpenAI that change nothing here (`user`, `metadata`, `store` of chat ...) are accepted; fields that ask for
what this server does not have are listed in REFUSED and refused by name unless they have the value that asks for
nothing.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from ..json_file import parse_json
from .errors import ApiError

T = TypeVar("T")
Tokens = list[int]
Metadata = dict[str, str]
WHERE = re.compile(r" - at `\$\.?(.*?)`$")
NAMED = re.compile(r"(?:unknown|required) field `(.+?)`")
NO_TOOLS = "this server has no tools"

REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {  # field -> values that ask for nothing, why others are refused
    "tools": (([],), NO_TOOLS),
    "tool_choice": (("none", "auto"), NO_TOOLS),
    "functions": (([],), NO_TOOLS),
    "function_call": (("none", "auto"), NO_TOOLS),
    "response_format": (({"type": "text"},), "output cannot be constrained"),
    "text": (({"format": {"type": "text"}},), "output cannot be constrained"),
    "modalities": ((["text"],), "this server reads and writes text only"),
    "audio": ((), "this server reads and writes text only"),
    "prediction": ((), "predicted outputs are not supported"),
    "web_search_options": ((), "this server has no network access"),
    "suffix": (("",), "text cannot be inserted before a suffix"),
    "best_of": ((1,), "completions are not ranked; use n"),
    "background": ((False,), "responses cannot run in the background"),
    "include": (([],), "there is no further output to include"),
    "truncation": (("disabled", "auto"), "nothing is truncated: a conversation never grows"),
    "reasoning": (({},), "this model does not reason separately"),
    "prompt": ((), "there are no stored prompts"),
    "conversation": ((), "use previous_response_id, or /v1/sessions"),
}


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of bodies."""


class Choice(Body):
    """How tokens are chosen; the same fields on every route that generates."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class OpenAI(Choice):
    """Fields of completions and chat."""

    model: str | None = None
    n: int | None = None
    user: str | None = None
    stream_options: StreamOptions | None = None
    session: str | None = None  # continue this session with the prompt or the new messages
    state: str | None = None  # "" or a sealed state: the answer returns the next one


class Completions(OpenAI):
    """POST /v1/completions."""

    prompt: str | list[Any] | None = None
    max_tokens: int | None = None
    logprobs: int | None = None
    echo: bool | None = None
    suffix: Any = None
    best_of: Any = None


class Message(Body):
    """One message of a chat."""

    role: str
    content: str | list[Any] | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: Any = None
    audio: Any = None
    tool_calls: Any = None
    function_call: Any = None
    tool_call_id: str | None = None


class Chat(OpenAI, kw_only=True):
    """POST /v1/chat/completions."""

    model: str
    messages: list[Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    metadata: Any = None
    store: bool | None = None
    service_tier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None


class Responses(Body, kw_only=True):
    """POST /v1/responses."""

    model: str
    input: str | list[Any] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    user: str | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
    stream_options: Any = None
    tools: Any = None
    tool_choice: Any = None
    text: Any = None
    background: Any = None
    include: Any = None
    truncation: Any = None
    reasoning: Any = None
    prompt: Any = None
    conversation: Any = None


class Given(Body):
    """Text or tokens to read, one of them."""

    text: str | None = None
    tokens: Tokens | None = None


class Fork(Body):
    """Where a new session begins."""

    session: str
    at: int | None = None


class NewSession(Given):
    """POST /v1/sessions."""

    model: str | None = None
    fork: Fork | None = None
    metadata: Metadata | None = None


class Append(Given):
    """POST /v1/sessions/ID/append."""


class Generate(Choice):
    """POST /v1/sessions/ID/generate."""

    text: str | None = None
    tokens: Tokens | None = None
    max_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class Rollback(Body):
    """POST /v1/sessions/ID/rollback."""

    to: int | None = None
    tokens: int | None = None


class Forks(Body):
    """POST /v1/sessions/ID/fork."""

    at: int | None = None
    count: int = 1


class Edit(Given, kw_only=True):
    """POST /v1/sessions/ID/edit."""

    remove: int


class Tokenize(Body):
    """POST /tokenize."""

    text: str | None = None
    prompt: str | None = None  # as vLLM calls it
    content: str | None = None  # as llama.cpp calls it
    model: str | None = None
    add_special_tokens: bool | None = None


class Detokenize(Body):
    """POST /detokenize."""

    tokens: Tokens
    model: str | None = None


def parse(data: bytes, kind: type[T]) -> T:
    """Return the body of a request, or raise ApiError 400 for the first thing that is not accepted."""
    try:
        value = parse_json(data or b"{}", "the body", "send one JSON object in UTF-8")
    except ValueError as error:
        raise ApiError(400, str(error), code="invalid_json") from None
    try:
        body = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), kind) from None
    for field in msgspec.structs.fields(kind):  # type: ignore[arg-type]
        if field.type is Any and field.name in REFUSED:
            _check_refused(field.name, getattr(body, field.name))
    return body


def _check_refused(name: str, value: Any) -> None:
    accepted, why = REFUSED[name]
    if value is not None and value not in accepted:
        raise ApiError(400, f"{name} is not supported: {why}; leave {name} out", param=name, code="unsupported")


def _refusal(problem: str, kind: type) -> ApiError:
    where = WHERE.search(problem)
    path = where[1] if where else ""
    problem = problem[: where.start()] if where else problem
    named = NAMED.search(problem)
    if named is not None:
        path = f"{path}.{named[1]}".strip(".")
        if "unknown" in named[0]:
            inside = msgspec.structs.fields(kind) if "." not in path else ()
            names = ", ".join(field.name for field in inside if field.name not in REFUSED)
            accepted = f"; accepted: {names}" if names else ""
            return ApiError(400, f"unknown field {path!r}{accepted}", param=path, code="unknown_field")
        return ApiError(400, f"the field {path!r} is missing", param=path, code="missing_field")
    problem = problem[:1].lower() + problem[1:]
    return ApiError(400, f"{path or 'the body'} has another type: {problem}", param=path or None, code="wrong_type")
