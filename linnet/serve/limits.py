"""Limits: what one server does at most. The bound of its memory follows from them and the size of a state."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a server; the command has an option for each (cli/serve.py)."""

    rows: int = 32  # requests that run at once
    queued: int = 256  # requests that wait for a row
    queued_per_key: int = 128
    chunk: int = 128  # tokens of prompts read between two steps
    sessions_per_key: int = 10_000
    responses_per_key: int = 1_000  # stored by /v1/responses; the oldest are deleted
    body: int = 8 * MIB  # bytes of a request, uploads of states included
    prompt: int = 131_072  # tokens of one request
    context: int = 0  # tokens of a session, 0: no limit; models with a growing cache need one
    tokens: int = 4096  # sampled by one request
    choices: int = 16  # `n`
    idle: int = 30 * 24 * 3600  # seconds after which an unused session is deleted
    prefix_bytes: int = 256 * MIB  # of prefix states
    stop_seconds: float = 10.0  # for running requests to finish when the server stops
