"""The application: routes, keys, errors and the log of requests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from . import api_basic, api_completions, api_responses, api_sessions
from .errors import ApiError, api_error
from .http import refusal
from .openapi import document
from .playground import routes as page_routes
from .service import Service

log = logging.getLogger("linnet.serve")
Handler = Callable[[Service, HttpRequest, str], Awaitable[Response]]
GONE = 499  # the status in the log of a request whose client went away

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/v1/models", api_basic.models),
    ("GET", "/v1/models/{name:path}", api_basic.model),
    ("POST", "/v1/completions", api_completions.completions),
    ("POST", "/v1/chat/completions", api_completions.chat),
    ("POST", "/v1/responses", api_responses.create),
    ("POST", "/v1/responses/compact", api_responses.compact),
    ("GET", "/v1/responses/{id}", api_responses.get),
    ("DELETE", "/v1/responses/{id}", api_responses.delete),
    ("POST", "/v1/sessions", api_sessions.create),
    ("GET", "/v1/sessions", api_sessions.listing),
    ("GET", "/v1/sessions/{id}", api_sessions.inspect),
    ("DELETE", "/v1/sessions/{id}", api_sessions.delete),
    ("GET", "/v1/sessions/{id}/tokens", api_sessions.tokens),
    ("GET", "/v1/sessions/{id}/state", api_sessions.download),
    ("POST", "/v1/sessions/{id}/append", api_sessions.append),
    ("POST", "/v1/sessions/{id}/generate", api_sessions.generate),
    ("POST", "/v1/sessions/{id}/rollback", api_sessions.rollback),
    ("POST", "/v1/sessions/{id}/fork", api_sessions.fork),
    ("POST", "/v1/sessions/{id}/edit", api_sessions.edit),
    ("POST", "/tokenize", api_basic.tokenize),
    ("POST", "/detokenize", api_basic.detokenize),
    ("GET", "/metrics", api_basic.metrics),
)


def build_app(service: Service) -> Starlette:
    """Return the ASGI application of a service; its worker runs from start-up to shutdown."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        import asyncio

        service.worker.start(asyncio.get_running_loop())
        yield
        await service.worker.stop(service.limits.stop_seconds)

    routes = [Route(path, _guarded(service, path, handler), methods=[method]) for method, path, handler in ROUTES]
    routes += [
        Route("/health", _open(service, api_basic.health), methods=["GET"]),
        Route("/ready", _open(service, api_basic.ready), methods=["GET"]),
        Route("/openapi.json", _open(service, _document), methods=["GET"]),
    ]
    routes += page_routes()
    handlers: dict[Any, Any] = {HTTPException: _http_error}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


def _guarded(service: Service, path: str, handler: Handler) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def endpoint(request: HttpRequest) -> Response:
        began, status = monotonic(), 500
        try:
            owner = service.keys.owner(request.headers.get("authorization"))
            response = await handler(service, request, owner)
        except ClientDisconnect:
            response = Response(status_code=GONE)
        except Exception as error:
            refused = api_error(error)
            if refused.code in ("internal_error", "store_error"):
                log.exception("%s %s failed", request.method, path)
            response = refusal(refused)
        status = response.status_code
        service.metrics.requests.labels(path, str(status)).inc()
        note = {"method": request.method, "route": path, "status": status, "ms": round(1000 * (monotonic() - began), 1)}
        if service.log_prompts and hasattr(request.state, "body"):
            note["body"] = request.state.body.decode("utf-8", "replace")
        log.info(msgspec.json.encode(note).decode())
        return response

    return endpoint


def _open(
    service: Service, handler: Callable[[Service, HttpRequest], Awaitable[Response]]
) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def endpoint(request: HttpRequest) -> Response:
        return await handler(service, request)

    return endpoint


async def _document(service: Service, request: HttpRequest) -> Response:
    return Response(msgspec.json.encode(document(ROUTES)), media_type="application/json")


async def _http_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refused = ApiError(405, f"{request.method} is not possible here; accepted: {allowed}")
        response = refusal(refused)
        response.headers["Allow"] = allowed
        return response
    return refusal(ApiError(error.status_code, "there is no such path; see /openapi.json", code="unknown_url"))
