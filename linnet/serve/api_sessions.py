"""/v1/sessions: create, append, generate, roll back, fork, edit, inspect, download and upload (docs/guide/serve.md)."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import torch
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..errors import ArgumentError, StateError, whole
from ..generate import Passages, QueueFullError
from ..generate.detokenizer import Detokenizer
from ..models.state import load_saved
from . import runs
from .errors import ApiError
from .http import answer, named_event, read_body, read_json, stream, while_connected
from .record import Record
from .run import Ended, Order, Run, Token
from .schemas import Append, Edit, Forks, Generate, NewSession, Rollback
from .service import Service, finish_reason, session_usage

OCTETS = "application/octet-stream"
DEFAULT_TOKENS = 256
PAGE, LISTED = 10_000, 1_000  # tokens and sessions of one answer
METADATA = 16, 64, 512  # entries, characters of a name, of a value
CONTEXT = 16  # tokens before the first one shown that may belong to its first character
READ_ONLY = Passages((), None)


async def create(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/sessions."""
    if request.headers.get("content-type", "").startswith(OCTETS):
        data = await read_body(request, service.limits.body)
        return answer(await service.worker.call(_upload, service, owner, data), 201)
    body = await read_json(request, NewSession, service.limits.body)
    service.check_model(body.model)
    metadata = check_metadata(body.metadata)
    sessions = service.worker.sessions
    if body.fork is not None:
        if body.text is not None or body.tokens is not None:
            raise ApiError(400, "fork takes no text and no tokens; append them to the fork", param="fork")
        (new,) = await service.worker.call(_fork, service, body.fork.session, owner, body.fork.at, 1, metadata)
        return answer(new, 201)
    tokens = service.given(body.text, body.tokens, begins=True)
    record = await service.worker.call(sessions.create, owner, tokens, metadata=metadata)
    if len(tokens) < 2:
        return answer(sessions.view(record), 201)
    try:
        return answer(await while_connected(request, _settle(service, record.id, owner)), 201)
    except (ApiError, QueueFullError):  # the client will not learn of the session
        await service.worker.call(sessions.delete, record)
        raise


async def listing(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/sessions."""
    limit, after = _number(request, "limit", 100, 1, LISTED), request.query_params.get("after", "")
    sessions = service.worker.sessions
    records, more = await service.worker.call(sessions.newest, owner, limit, after)
    return answer({"object": "list", "data": [sessions.view(record) for record in records], "has_more": more})


async def inspect(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/sessions/ID."""
    sessions = service.worker.sessions
    return answer(sessions.view(await service.worker.call(sessions.load, _id(request), owner)))


async def tokens(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/sessions/ID/tokens."""
    sessions = service.worker.sessions

    def read() -> tuple[Record, list[Any]]:
        record = sessions.load(_id(request), owner)
        return record, sessions.parts(record)

    record, parts = await service.worker.call(read)
    start = _number(request, "start", record.first, record.first, record.size)
    end = min(_number(request, "end", record.size, 0, 2**40), record.size, start + PAGE)
    known = [(token, part.sampled) for part in parts for token in part.tokens]
    detokenizer, before = Detokenizer(service.tokenizer), max(start - CONTEXT, record.first)
    shown = []
    for position in range(before, end):
        token, sampled = known[position - record.first]
        text = detokenizer.push(token)
        if position >= start:
            shown.append({"position": position, "token": token, "text": text, "sampled": sampled})
    return answer({"object": "list", "start": start, "end": max(start, end), "total": record.size, "data": shown})


async def append(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/sessions/ID/append."""
    body = await read_json(request, Append, service.limits.body)
    id = _id(request)
    record = await service.worker.call(service.worker.sessions.load, id, owner)
    given = service.given(body.text, body.tokens, begins=not record.size)
    if not given:
        raise ApiError(400, "nothing is given to append; send text or tokens, one token or more", param="text")
    return answer(await while_connected(request, _settle(service, id, owner, given)))


async def generate(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/sessions/ID/generate."""
    body = await read_json(request, Generate, service.limits.body)
    id = _id(request)
    record = await service.worker.call(service.worker.sessions.load, id, owner)
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs true; send both", param="top_logprobs")
    seed, most = service.seed(body.seed), DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    asked = service.request(body, READ_ONLY, most, seed=seed, logprobs=logprobs)
    given = service.given(body.text, body.tokens, begins=not record.size)
    order = Order(owner, asked, id, append=given)
    shape = _Shape(service, seed)
    if body.stream:
        (run,) = await runs.start(service.worker, [order])
        return stream(_events(shape, run), lambda error: named_event("error", error.body()), [run])

    async def work() -> dict[str, Any]:
        entries, ended = [], None
        async for _, item in runs.items(await runs.start(service.worker, [order])):
            if isinstance(item, Token):
                entries.append(shape.token(item))
            else:
                ended = item
        assert ended is not None
        return shape.done(ended) | {"tokens": entries}

    return answer(await while_connected(request, work()))


async def rollback(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/sessions/ID/rollback."""
    body = await read_json(request, Rollback, service.limits.body)
    if (body.to is None) == (body.tokens is None):
        raise ApiError(400, "send to, the position to return to, or tokens, the number to remove", param="to")

    def change() -> dict[str, Any]:
        sessions = service.worker.sessions
        with sessions.using(_id(request), owner) as record:
            sessions.rollback(record, _end(record, body.to, body.tokens))
            return sessions.view(record)

    return answer(await service.worker.call(change))


async def fork(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/sessions/ID/fork."""
    body = await read_json(request, Forks, service.limits.body)
    whole("count", body.count, 1, 1000)
    forks = await service.worker.call(_fork, service, _id(request), owner, body.at, body.count, {})
    return answer({"object": "list", "data": forks}, 201)


async def edit(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/sessions/ID/edit."""
    body = await read_json(request, Edit, service.limits.body)
    id, sessions = _id(request), service.worker.sessions
    record = await service.worker.call(sessions.load, id, owner)
    whole("remove", body.remove, 0, record.size - record.first)
    given = service.given(body.text, body.tokens, begins=body.remove == record.size)

    def change() -> None:
        with sessions.using(id, owner) as record:
            sessions.rollback(record, _end(record, None, body.remove))
            if given:
                sessions.extend(record, given, sampled=False)

    await service.worker.call(change)
    return answer(await while_connected(request, _settle(service, id, owner)))


async def download(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/sessions/ID/state."""
    id, sessions, worker = _id(request), service.worker.sessions, service.worker
    await while_connected(request, _settle(service, id, owner))

    def save() -> bytes:
        with sessions.using(id, owner) as record:
            state, logits = worker.final_state(record)
            known = [token for part in sessions.parts(record) for token in part.tokens]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "session.state"
            history = None if record.first else [known]
            answer = None if logits is None else logits[None]
            state.save(path, model=worker.model, tokenizer=service.tokenizer, tokens=history, answer=answer)
            return path.read_bytes()

    data = await worker.call(save)
    named = {"Content-Disposition": f'attachment; filename="{id}.state"'}
    return Response(data, headers=named, media_type=OCTETS)


async def delete(service: Service, request: HttpRequest, owner: str) -> Response:
    """DELETE /v1/sessions/ID."""
    id = _id(request)

    def remove() -> None:
        with service.worker.sessions.using(id, owner) as record:
            service.worker.sessions.delete(record)

    await service.worker.call(remove)
    return answer({"id": id, "object": "session.deleted", "deleted": True})


def check_metadata(metadata: dict[str, str] | None) -> dict[str, str]:
    """Return metadata within the limits of OpenAI."""
    most, name, value = METADATA
    metadata = metadata or {}
    if len(metadata) > most or any(len(x) > name or len(y) > value for x, y in metadata.items()):
        accepted = f"up to {most} strings, names of {name} characters, values of {value}"
        raise ArgumentError("metadata", f"{len(metadata)} entries", accepted)
    return metadata


async def _settle(service: Service, id: str, owner: str, tokens: list[int] | None = None) -> dict[str, Any]:
    """Read what a session has not read yet, after appending tokens; return the session."""
    asked = service.request(None, READ_ONLY, 0, seed=0, least=0)
    order = Order(owner, asked, id, append=tokens or ())
    (ended,) = await runs.finish(await runs.start(service.worker, [order]))
    assert ended.session is not None
    return ended.session


def _upload(service: Service, owner: str, data: bytes) -> dict[str, Any]:
    """Create a session from a state file, which is not trusted; in the worker thread."""
    worker = service.worker
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upload"
        path.write_bytes(data)
        try:
            state, history, logits = load_saved(path, model=worker.model, tokenizer=service.tokenizer)
            worker.engine.check_state(state)
            if len(state.position) != 1:
                raise StateError(f"the state has {len(state.position)} rows; accepted: one")
            if logits is not None and logits.shape[1] != service.tokenizer.vocab_size:
                raise StateError(f"answer has {logits.shape[1]} numbers; accepted: one for each token")
        except StateError as error:
            message = str(error).replace(str(path), "the state file")
            raise ApiError(400, message, param="state", code="invalid_state") from None
    first = None if logits is None else logits[0].float()
    record = worker.sessions.create(owner, history[0] if history else [], upload=(state.to(dtype=torch.float32), first))
    return worker.sessions.view(record)


def _fork(
    service: Service, id: str, owner: str, at: int | None, count: int, metadata: dict[str, str]
) -> list[dict[str, Any]]:
    sessions = service.worker.sessions
    record = sessions.load(id, owner)
    forks = sessions.fork(record, record.size if at is None else at, count)
    for new in forks:
        if metadata:
            new.metadata = metadata
            sessions.save(new)
    return [sessions.view(new) for new in forks]


async def _events(shape: _Shape, run: Run) -> AsyncIterator[bytes]:
    started = {"session": run.order.session, "start": run.start, "seed": shape.seed, "tokens": run.start}
    yield named_event("start", started)
    async for item in run:
        if isinstance(item, Token):
            yield named_event("token", shape.token(item))
        else:
            yield named_event("done", shape.done(item))


class _Shape:
    """The JSON of a generation."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service, self.seed = service, seed

    def token(self, item: Token) -> dict[str, Any]:
        top = None
        if item.top is not None:
            write = self.service.token_text
            top = [{"token": token, "text": write(token), "logprob": score} for token, score in item.top]
        return {
            "position": item.position, "token": item.token, "text": item.text, "logprob": item.logprob, "top": top,
        }  # fmt: skip

    def done(self, ended: Ended) -> dict[str, Any]:
        done = ended.completion
        counts = session_usage(ended.start, done)
        return {
            "object": "session.generation", "start": ended.start, "text": done.text or "",
            "finish_reason": finish_reason(done), "seed": self.seed, "tokens": None, "usage": counts,
            "session": ended.session,
        }  # fmt: skip


def _id(request: HttpRequest) -> str:
    return str(request.path_params["id"])


def _end(record: Record, to: int | None, remove: int | None) -> int:
    if to is not None:
        return to
    whole("tokens", remove, 0, record.size - record.first)
    return record.size - (remove or 0)


def _number(request: HttpRequest, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    value: Any = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
    return whole(name, value, least, most)
