"""POST /v1/completions and /v1/chat/completions: plain, on a session (`session`), or with a sealed state (`state`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from time import time
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..errors import ArgumentError, whole
from ..generate import Passages
from . import runs
from .chat import turns_of
from .errors import ApiError
from .http import answer, data_event, read_json, stream, while_connected
from .schemas import Chat, Completions, OpenAI
from .service import Service, finish_reason, passages_of, session_usage, usage
from .worker import Ended, Order, Run, Token

SHORT = 16  # tokens of a completion without max_tokens, as OpenAI has it
PROMPTS = 128  # of one request


@dataclass
class Plan:
    """A request that has been checked: what to run, and how to show it."""

    id: str
    owner: str
    body: OpenAI
    orders: list[Order]
    seed: int
    choices: int  # of each prompt
    prompts: list[list[int]] = field(default_factory=list)  # echoed
    echo: bool = False

    @property
    def usage_in_stream(self) -> bool:
        options = self.body.stream_options
        return bool(options and options.include_usage)


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
    return await _run(service, request, plan, _Text(service, plan))


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
    return await _run(service, request, plan, _Chat(service, plan))


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


async def _run(service: Service, request: HttpRequest, plan: Plan, shape: _Text) -> Response:
    if plan.body.stream:
        started = await runs.start(service.worker, plan.orders)
        return stream(_events(plan, shape, started), lambda error: data_event(error.body()), started)

    async def work() -> list[Ended]:
        return await runs.finish(await runs.start(service.worker, plan.orders))

    return answer(shape.whole(await while_connected(request, work())))


async def _events(plan: Plan, shape: _Text, started: Sequence[Run]) -> AsyncIterator[bytes]:
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


class _Text:
    """The shape of /v1/completions."""

    object = chunk = "text_completion"

    def __init__(self, service: Service, plan: Plan) -> None:
        self.service, self.plan = service, plan
        self.created = int(time())

    def head(self, chunk: bool = True) -> dict[str, Any]:
        plan = self.plan
        head = {"id": plan.id, "object": self.chunk if chunk else self.object, "created": self.created}
        head |= {"model": self.service.name, "system_fingerprint": f"seed-{plan.seed}"}
        if chunk and plan.usage_in_stream:
            head["usage"] = None
        return head

    def usage(self, ended: Sequence[Ended]) -> dict[str, Any]:
        if ended[0].session is not None:
            return session_usage(ended[0].start, ended[0].completion)
        done = [item.completion for item in ended]
        return usage(done, done[:: self.plan.choices])

    def whole(self, ended: Sequence[Ended]) -> dict[str, Any]:
        """Return the answer without a stream."""
        choices = [self.choice(i, item) for i, item in enumerate(ended)]
        return self.head(False) | {"choices": choices, "usage": self.usage(ended)} | self.extra(ended[0])

    def extra(self, item: Ended) -> dict[str, Any]:
        """Return what linnet adds: the session, or the sealed state."""
        if item.session is not None:
            return {"session": item.session["id"]}
        if self.plan.body.state is not None:
            return {"state": self.service.sealed(self.plan.owner, item.completion)}
        return {}

    def choice(self, i: int, item: Ended) -> dict[str, Any]:
        done = item.completion
        echoed = self._echoed(i)
        text = echoed + (done.text or "")
        logprobs = None
        if done.logprobs is not None:
            logprobs = self._logprobs(i, item)
        return {"index": i, "text": text, "logprobs": logprobs, "finish_reason": finish_reason(done)}

    def _echoed(self, i: int) -> str:
        plan = self.plan
        return self.service.tokenizer.decode(plan.prompts[i // plan.choices]) if plan.echo else ""

    def _logprobs(self, i: int, item: Ended) -> dict[str, Any]:
        done, write = item.completion, self.service.token_text
        tokens, scores, tops = list(done.tokens), list(done.logprobs or ()), list(done.top or [[]] * len(done.tokens))
        if self.plan.echo:
            tokens = [*self.plan.prompts[i // self.plan.choices], *tokens]
            scores = [None, *(done.prompt_logprobs or ()), *scores]  # type: ignore[list-item]
            tops = [[], *(done.prompt_top or ()), *tops]
        texts = [write(token) for token in tokens]
        return self._columns(texts, scores, tops, 0 if self.plan.echo else len(self._prompt_text(i)))

    def _prompt_text(self, i: int) -> str:
        return self.service.tokenizer.decode(self.plan.prompts[i // self.plan.choices])

    def _columns(self, texts: Sequence[str], scores: Sequence[Any], tops: Sequence[Any], at: int) -> dict[str, Any]:
        offsets = []
        for text in texts:
            offsets.append(at)
            at += len(text)
        write = self.service.token_text
        best = [{write(token): score for token, score in top} if top else None for top in tops]
        return {"tokens": list(texts), "token_logprobs": list(scores), "top_logprobs": best, "text_offset": offsets}

    def first(self, i: int) -> list[dict[str, Any]]:
        """Return what comes before the first token of a choice."""
        echoed = self._echoed(i)
        return [self._chunk(i, echoed, None, None)] if echoed else []

    def piece(self, i: int, item: Token) -> dict[str, Any]:
        logprobs = None
        if item.logprob is not None:
            text = self.service.token_text(item.token)
            logprobs = self._columns([text], [item.logprob], [item.top], 0)
        return self._chunk(i, item.text, logprobs, None)

    def last(self, i: int, item: Ended) -> dict[str, Any]:
        return self._chunk(i, "", None, finish_reason(item.completion)) | self.extra(item)

    def _chunk(self, i: int, text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
        choice = {"index": i, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return self.head() | {"choices": [choice]}


class _Chat(_Text):
    """The shape of /v1/chat/completions."""

    object, chunk = "chat.completion", "chat.completion.chunk"

    def __init__(self, service: Service, plan: Plan) -> None:
        super().__init__(service, plan)
        self._begun: set[int] = set()  # choices that have some text

    def choice(self, i: int, item: Ended) -> dict[str, Any]:
        done = item.completion
        message: dict[str, Any] = {"role": "assistant", "content": (done.text or "").removeprefix(" "), "refusal": None}
        message["annotations"] = []
        logprobs = None
        if done.logprobs is not None:
            tops = done.top or [[]] * len(done.tokens)
            entries = zip(done.tokens, done.logprobs, tops, strict=True)
            logprobs = {"content": [self._entry(token, score, top) for token, score, top in entries], "refusal": None}
        return {"index": i, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(done)}

    def first(self, i: int) -> list[dict[str, Any]]:
        return [self._delta(i, {"role": "assistant", "content": ""}, None, None)]

    def piece(self, i: int, item: Token) -> dict[str, Any]:
        logprobs = None
        if item.logprob is not None:
            logprobs = {"content": [self._entry(item.token, item.logprob, item.top or [])], "refusal": None}
        text = item.text if i in self._begun else item.text.removeprefix(" ")
        if item.text:
            self._begun.add(i)
        return self._delta(i, {"content": text}, logprobs, None)

    def last(self, i: int, item: Ended) -> dict[str, Any]:
        return self._delta(i, {}, None, finish_reason(item.completion)) | self.extra(item)

    def _delta(self, i: int, delta: dict[str, Any], logprobs: Any, finish: str | None) -> dict[str, Any]:
        choice = {"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self.head() | {"choices": [choice]}

    def _entry(self, token: int, score: float, top: Sequence[tuple[int, float]]) -> dict[str, Any]:
        best = [self._one(other, value) for other, value in top]
        return self._one(token, score) | {"top_logprobs": best}

    def _one(self, token: int, score: float) -> dict[str, Any]:
        service = self.service
        return {"token": service.token_text(token), "logprob": score, "bytes": service.token_bytes(token)}
