"""POST /v1/completions and /v1/chat/completions: plain, on a session (`session`), or with a sealed state (`state`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..errors import ArgumentError, whole
from ..generate import Passages
from . import runs
from .chat import turns_of
from .errors import ApiError
from .http import answer, data_event, read_json, stream, while_connected
from .run import Ended, Order, Run, Token
from .schemas import Chat, Completions, OpenAI
from .service import Service, passages_of
from .shapes import ChatShape, Plan, TextShape

SHORT = 16  # tokens of a completion without max_tokens, as OpenAI has it
PROMPTS = 128  # of one request


async def completions(service: Service, request: HttpRequest, owner: str) -> Response:
    """Answer POST /v1/completions."""
    body = await read_json(request, Completions, service.limits.body)
    service.check_model(body.model)
    prompts = _prompts(service, body, begins=await _begins(service, body, owner))
    seed, count = service.seed(body.seed), _choices(service, body, len(prompts))
    if body.echo and (body.session is not None or body.state is not None):
        raise ApiError(400, "echo shows a whole prompt; leave it out with a session or a state", param="echo")
    most = SHORT if body.max_tokens is None else body.max_tokens
    how: dict[str, Any] = {"seed": seed, "logprobs": body.logprobs, "least": 0}
    orders = []
    for prompt in prompts:
        kept, extra = _continued(service, body, owner, len(prompt))
        tokens = [*kept, *prompt]
        if body.echo and body.logprobs is not None:
            extra["prompt_logprobs"] = body.logprobs
        passages = Passages((), None) if body.session is not None else passages_of([tokens])
        for i in range(count):
            asked = service.request(body, passages, most, row=i, **how, **extra)
            orders.append(Order(owner, asked, body.session, append=tokens if body.session is not None else ()))
    plan = Plan(f"cmpl-{token_hex(12)}", owner, body, orders, seed, count, prompts, bool(body.echo))
    return await _run(service, request, plan, TextShape(service, plan))


async def chat(service: Service, request: HttpRequest, owner: str) -> Response:
    """Answer POST /v1/chat/completions."""
    body = await read_json(request, Chat, service.limits.body)
    service.check_model(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs true; send both", param="top_logprobs")
    turns, after = turns_of(body.messages), None
    if body.session is not None:
        record = await service.worker.call(service.worker.sessions.load, body.session, owner)
        after = record.stop if record.size else None
    elif body.state:
        after = ""
    texts = service.template.render(turns, after=after)
    tokens = [service.encode("messages", text, begins=not i and after is None) for i, text in enumerate(texts)]
    flat = service.checked("messages", [token for part in tokens for token in part])
    kept, extra = _continued(service, body, owner, len(flat))
    prompt = Passages((), None) if body.session is not None else passages_of([kept, *tokens])
    seed, count = service.seed(body.seed), _choices(service, body, 1)
    most = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    most = service.limits.tokens if most is None else most
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    orders = []
    for i in range(count):
        asked = service.request(
            body, prompt, most, seed=seed, logprobs=logprobs, row=i,
            stop=service.template.stop, **extra,
        )  # fmt: skip
        orders.append(Order(owner, asked, body.session, append=flat if body.session is not None else ()))
    plan = Plan(f"chatcmpl-{token_hex(12)}", owner, body, orders, seed, count)
    return await _run(service, request, plan, ChatShape(service, plan))


async def _begins(service: Service, body: Completions, owner: str) -> bool:
    """Return whether the prompt is the beginning of a text."""
    if body.session is None or body.state is not None:
        return not body.state
    return not (await service.worker.call(service.worker.sessions.load, body.session, owner)).size


def _prompts(service: Service, body: Completions, *, begins: bool) -> list[list[int]]:
    """Return the prompts as tokens."""
    given: Any = body.prompt
    if given is None:
        given = ""
    if isinstance(given, str) or not given or isinstance(given[0], int):
        given = [given]
    if len(given) > PROMPTS:
        raise ArgumentError("prompt", len(given), f"up to {PROMPTS} prompts in one request")
    prompts = []
    for i, one in enumerate(given):
        name = f"prompt[{i}]" if len(given) > 1 else "prompt"
        if isinstance(one, str):
            tokens = service.encode(name, one, begins=begins)
        elif isinstance(one, list):
            tokens = service.checked(name, one)
        else:
            raise ApiError(400, f"{name} is a {type(one).__name__}; accepted: a string or token ids", param=name)
        prompts.append(tokens if tokens or not begins else [service.tokenizer.begin])
    return prompts


def _choices(service: Service, body: OpenAI, prompts: int) -> int:
    count = whole("n", 1 if body.n is None else body.n, 1, service.limits.choices)
    for name in ("session", "state"):
        if getattr(body, name) is not None and count * prompts > 1:
            message = f"{name} takes one prompt and n 1; fork the session to get {count * prompts} continuations"
            raise ApiError(400, message, param="n")
    if body.session is not None and body.state is not None:
        raise ApiError(400, "session and state are both given; send one of them", param="state")
    return count


def _continued(service: Service, body: OpenAI, owner: str, more: int) -> tuple[list[int], dict[str, Any]]:
    """Return the token to continue with before `more` new ones, and fields of the request."""
    if body.session is not None:
        return [], {}
    if body.state is None:
        return [], {"root": service.worker.sessions.root(owner)}
    return service.opened(owner, body.state, more)


async def _run(service: Service, request: HttpRequest, plan: Plan, shape: TextShape) -> Response:
    if plan.body.stream:
        started = await runs.start(service.worker, plan.orders)
        return stream(_events(plan, shape, started), lambda error: data_event(error.body()), started)

    async def work() -> list[Ended]:
        return await runs.finish(await runs.start(service.worker, plan.orders))

    return answer(shape.whole(await while_connected(request, work())))


async def _events(plan: Plan, shape: TextShape, started: Sequence[Run]) -> AsyncIterator[bytes]:
    for i in range(len(started)):
        for event in shape.first(i):
            yield data_event(event)
    ended: dict[int, Ended] = {}
    async for i, item in runs.items(started):
        if isinstance(item, Token):
            yield data_event(shape.piece(i, item))
        else:
            ended[i] = item
            yield data_event(shape.last(i, item))
    if plan.usage_in_stream:
        yield data_event(shape.head() | {"choices": [], "usage": shape.usage([ended[i] for i in range(len(started))])})
