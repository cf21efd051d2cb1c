"""/v1/responses on top of sessions: each stored response is a session, and a follow-up is a fork of it.

Only the newest `responses_per_key` are kept, so the store is bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..generate import Passages
from . import runs
from .api_sessions import check_metadata
from .chat import Turn, text_of, turns_of
from .errors import ApiError, api_error, not_found
from .http import answer, named_event, read_json, stream, while_connected
from .record import Record
from .run import Ended, Order, Run, Token
from .schemas import Message, Responses
from .service import Service

ITEM = {"type", "role", "content", "id", "status", "phase"}  # fields of a message in `input`


async def create(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/responses."""
    body = await read_json(request, Responses, service.limits.body)
    service.check_model(body.model)
    check_metadata(body.metadata)
    turns = _turns(body)
    sessions, worker = service.worker.sessions, service.worker
    most = service.limits.tokens if body.max_output_tokens is None else body.max_output_tokens
    seed = service.seed(body.seed)
    asked = service.request(body, Passages((), None), most, seed=seed, stop=service.template.stop)

    def begin() -> Record:
        if body.previous_response_id is None:
            return sessions.create(owner, kind="response")
        before = sessions.load(body.previous_response_id, owner, "response")
        (new,) = sessions.fork(before, before.size, kind="response")
        return new

    record = await worker.call(begin)
    tokens = []
    after = record.stop if record.size else None
    for i, text in enumerate(service.template.render(turns, after=after)):
        tokens += service.encode("input", text, begins=not i and after is None)
    order = Order(owner, asked, record.id, "response", append=tokens)
    shape = _Shape(service, body, record, most)
    try:
        (run,) = await runs.start(worker, [order])
    except BaseException:
        await worker.call(sessions.delete, record)
        raise
    if body.stream:
        return stream(_events(service, shape, run), shape.failed, [run])

    async def work() -> dict[str, Any]:
        (ended,) = await runs.finish([run])
        return await _keep(service, shape, ended)

    return answer(await while_connected(request, work()))


async def get(service: Service, request: HttpRequest, owner: str) -> Response:
    """GET /v1/responses/ID."""
    id, worker = str(request.path_params["id"]), service.worker

    def read() -> bytes:
        worker.sessions.load(id, owner, "response")
        data = worker.store.get(f"json/{id}")
        if data is None:  # it has not ended, or its client went away
            raise not_found("response", id)
        return data

    return Response(await worker.call(read), media_type="application/json")


async def delete(service: Service, request: HttpRequest, owner: str) -> Response:
    """DELETE /v1/responses/ID."""
    id, sessions = str(request.path_params["id"]), service.worker.sessions

    def remove() -> None:
        with sessions.using(id, owner, "response") as record:
            sessions.delete(record)

    await service.worker.call(remove)
    return answer({"id": id, "object": "response", "deleted": True})


async def compact(service: Service, request: HttpRequest, owner: str) -> Response:
    """POST /v1/responses/compact: not offered."""
    raise ApiError(404, "there is nothing to compact: the state of a conversation never grows", code="unknown_url")


def _turns(body: Responses) -> list[Turn]:
    """Return instructions and input as turns."""
    if body.input is None:
        raise ApiError(400, "the field 'input' is missing", param="input", code="missing_field")
    given: list[Any] = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    messages = [Message(role="system", content=body.instructions)] if body.instructions else []
    for i, item in enumerate(given):
        where = f"input[{i}]"
        if (
            not isinstance(item, dict)
            or item.get("type", "message") != "message"
            or not isinstance(item.get("role"), str)
        ):
            kind = item.get("type") if isinstance(item, dict) else type(item).__name__
            raise ApiError(400, f"{where} is a {str(kind)[:40]!r}; accepted: messages", param=where, code="unsupported")
        unknown = sorted(item.keys() - ITEM)
        if unknown:
            raise ApiError(400, f"unknown field '{where}.{unknown[0][:40]}'", param=where, code="unknown_field")
        content = item.get("content")
        if not isinstance(content, str | list):
            raise ApiError(400, f"{where}.content is not text; send a string or a list of text parts", param=where)
        messages.append(Message(role=item["role"], content=text_of(f"{where}.content", content)))
    return turns_of(messages)


class _Shape:
    """The JSON of a response."""

    def __init__(self, service: Service, body: Responses, record: Record, most: int) -> None:
        self.service, self.body, self.record, self.most = service, body, record, most
        self.item_id, self.number, self.text = f"msg_{token_hex(12)}", -1, ""

    def response(self, status: str, ended: Ended | None = None) -> dict[str, Any]:
        """Return the response with this status, complete if it has ended."""
        body, record = self.body, self.record
        document: dict[str, Any] = {
            "id": record.id, "object": "response", "created_at": int(record.created), "status": status,
            "background": False, "completed_at": None, "error": None, "incomplete_details": None,
            "instructions": body.instructions, "max_output_tokens": body.max_output_tokens, "max_tool_calls": None,
            "model": self.service.name, "output": [], "parallel_tool_calls": False,
            "previous_response_id": body.previous_response_id, "prompt_cache_key": body.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None}, "safety_identifier": body.safety_identifier,
            "service_tier": "default", "store": body.store is not False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": {"type": "text"}}, "tool_choice": "none", "tools": [], "top_logprobs": 0,
            "top_p": 1.0 if body.top_p is None else body.top_p, "truncation": "disabled", "usage": None,
            "user": body.user, "metadata": body.metadata or {}, "frequency_penalty": 0.0, "presence_penalty": 0.0,
        }  # fmt: skip
        if ended is None:
            return document
        done = ended.completion
        document["completed_at"] = int(record.used)
        document["output"] = [self.message("completed", (done.text or "").removeprefix(" "))]
        cached = ended.start - len(done.prompt_tokens) + done.cached_tokens
        document["usage"] = {
            "input_tokens": ended.start, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": len(done.tokens), "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": ended.start + len(done.tokens),
        }  # fmt: skip
        if done.finish == "length":
            document |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return document

    def message(self, status: str, text: str | None = None) -> dict[str, Any]:
        content = [] if text is None else [self.part(text)]
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def event(self, name: str, **fields: Any) -> bytes:
        """Return one event of the stream."""
        self.number += 1
        return named_event(f"response.{name}", {"type": f"response.{name}", "sequence_number": self.number} | fields)

    def failed(self, error: ApiError) -> bytes:
        problem = error.body()["error"]
        document = self.response("failed") | {"error": {"code": "server_error", "message": problem["message"]}}
        return self.event("failed", response=document)


async def _events(service: Service, shape: _Shape, run: Run) -> AsyncIterator[bytes]:
    yield shape.event("created", response=shape.response("in_progress"))
    yield shape.event("in_progress", response=shape.response("in_progress"))
    where: dict[str, Any] = {"output_index": 0, "item_id": shape.item_id, "content_index": 0}
    yield shape.event("output_item.added", output_index=0, item=shape.message("in_progress"))
    yield shape.event("content_part.added", **where, part=shape.part(""))
    text = ""
    async for item in run:
        if isinstance(item, Token):
            delta = item.text if text else item.text.removeprefix(" ")
            text += delta
            if delta:
                yield shape.event("output_text.delta", **where, delta=delta, logprobs=[])
            continue
        document = await _keep(service, shape, item)
        yield shape.event("output_text.done", **where, text=text, logprobs=[])
        yield shape.event("content_part.done", **where, part=shape.part(text))
        yield shape.event("output_item.done", output_index=0, item=shape.message("completed", text))
        yield shape.event(document["status"], response=document)


async def _keep(service: Service, shape: _Shape, ended: Ended) -> dict[str, Any]:
    """Store a response that has ended, or delete its session if it is not to be kept; return it."""
    document, record, worker = shape.response("completed", ended), shape.record, service.worker

    def keep() -> None:
        if shape.body.store is False:
            worker.sessions.delete(record)
            return
        worker.store.write({f"json/{record.id}": msgspec.json.encode(document)})
        worker.sessions.forget_responses(record.owner)

    try:
        await worker.call(keep)
    except Exception as error:
        raise api_error(error) from None
    return document
