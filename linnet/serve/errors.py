"""ApiError: a refusal with the status and the words of OpenAI's format."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..errors import ArgumentError, StateError
from ..generate import QueueFullError

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """An error for the client; `retry` is in seconds."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    def body(self) -> dict[str, Any]:
        """Return the JSON of the error."""
        type = TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": type, "param": self.param, "code": self.code}}


def api_error(error: Exception) -> ApiError:
    """Return any exception as an ApiError; one that is not the client's mistake has no details."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ArgumentError):
        return ApiError(400, str(error), param=error.name)
    if isinstance(error, QueueFullError):
        return ApiError(429, "the queue is full; retry in a second", code="queue_full", retry=1)
    if isinstance(error, StateError):
        return ApiError(400, str(error), param="state")
    if isinstance(error, ValueError):
        return ApiError(400, str(error))
    if isinstance(error, sqlite3.Error) or type(error).__module__.partition(".")[0] == "redis":
        return ApiError(503, "the store of sessions does not answer; retry later", code="store_error", retry=5)
    return ApiError(500, "the server failed to answer this request; its log has the reason", code="internal_error")


def not_found(what: str, id: str) -> ApiError:
    """Return the 404 for an id that does not exist, or not for this key."""
    return ApiError(404, f"there is no {what} {id[:80]!r}; list the ones you have, or create one", code="not_found")
