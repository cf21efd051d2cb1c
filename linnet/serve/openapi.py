"""The OpenAPI document, made from the routes and the schemas of their bodies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from .. import __version__
from . import schemas

BODIES: dict[str, type] = {
    "/v1/completions": schemas.Completions,
    "/v1/chat/completions": schemas.Chat,
    "/v1/responses": schemas.Responses,
    "/v1/sessions": schemas.NewSession,
    "/v1/sessions/{id}/append": schemas.Append,
    "/v1/sessions/{id}/generate": schemas.Generate,
    "/v1/sessions/{id}/rollback": schemas.Rollback,
    "/v1/sessions/{id}/fork": schemas.Forks,
    "/v1/sessions/{id}/edit": schemas.Edit,
    "/tokenize": schemas.Tokenize,
    "/detokenize": schemas.Detokenize,
}
QUERY = {"/v1/sessions": ("limit", "after"), "/v1/sessions/{id}/tokens": ("start", "end")}
CREATED = {"/v1/sessions", "/v1/sessions/{id}/fork"}
PLAIN = {"/metrics": "text/plain", "/v1/sessions/{id}/state": "application/octet-stream"}
STATUSES = (400, 401, 404, 405, 409, 413, 429, 500, 503)
COMPONENTS = "#/components/schemas/{name}"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"}, "type": {"type": "string"},
                "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]},
            },
        }
    },
}  # fmt: skip


def document(routes: Iterable[tuple[str, str, Callable[..., Any]]]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes."""
    _, components = msgspec.json.schema_components(BODIES.values(), ref_template=COMPONENTS)
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler in routes:
        paths.setdefault(path.replace(":path", ""), {})[method.lower()] = _operation(method, path, handler)
    return {
        "openapi": "3.1.0",
        "info": {"title": "linnet serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(method: str, path: str, handler: Callable[..., Any]) -> dict[str, Any]:
    names = [part[1:-1].partition(":")[0] for part in path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    if method == "GET":
        for name in QUERY.get(path, ()):
            schema = {"type": "string"} if name == "after" else {"type": "integer", "minimum": 0}
            parameters.append({"name": name, "in": "query", "schema": schema})
    status = "201" if method == "POST" and path in CREATED else "200"
    content: dict[str, Any] = {PLAIN.get(path, "application/json"): {}}
    if method == "POST" and path.startswith("/v1/") and path.endswith(("completions", "responses", "generate")):
        content["text/event-stream"] = {}
    failed = {
        "description": "refused",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "operationId": method.lower() + re.sub(r"\W+", "_", path.replace(":path", "")).rstrip("_"),
        "summary": (inspect.getdoc(handler) or "").rstrip("."),
        "parameters": parameters,
        "responses": {status: {"description": "done", "content": content}} | {str(s): failed for s in STATUSES},
    }
    if method == "POST" and path in BODIES:
        body: dict[str, Any] = {"application/json": {"schema": {"$ref": COMPONENTS.format(name=BODIES[path].__name__)}}}
        if path == "/v1/sessions":
            body["application/octet-stream"] = {}
        operation["requestBody"] = {"required": True, "content": body}
    return operation
