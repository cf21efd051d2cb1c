"""Metrics of a server in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..generate import Completion

if TYPE_CHECKING:
    from .worker import Worker

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one server; several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        how: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("linnet_requests", "Answers, by route and status", ["route", "status"], **how)
        self._prompt = Counter("linnet_prompt_tokens", "Tokens of prompts", **how)
        self._cached = Counter("linnet_prompt_tokens_cached", "Tokens of prompts that a prefix state replaced", **how)
        self._read = Gauge("linnet_prompt_tokens_read", "Tokens of prompts that were read since the start", **how)
        self._hits = Counter("linnet_prefix_hits", "Requests that began at a prefix state", **how)
        self._sampled = Counter("linnet_sampled_tokens", "Tokens sampled", **how)
        self._finish = Counter("linnet_completions", "Completions, by reason of their end", ["reason"], **how)
        self._expired = Counter("linnet_sessions_expired", "Sessions deleted after their idle time", **how)
        first, inter = "From the request to its first token", "Between two tokens of a request"
        self._first = Histogram("linnet_time_to_first_token_seconds", first, buckets=SECONDS, **how)
        self._inter = Histogram("linnet_inter_token_seconds", inter, buckets=SECONDS, **how)
        self._running = Gauge("linnet_running", "Requests that have a row or are being read", **how)
        self._waiting = Gauge("linnet_waiting", "Requests in the queue", **how)
        self._sessions = Gauge("linnet_sessions", "Sessions in the store", **how)
        self._state_bytes = Gauge("linnet_state_bytes", "Bytes of states in memory, at most", **how)
        self._prefixes = Gauge("linnet_prefix_states", "Prefix states kept", **how)
        self._prefix_bytes = Gauge("linnet_prefix_state_bytes", "Bytes of prefix states", **how)

    def token(self, seconds: float, *, first: bool) -> None:
        """Count a sampled token and the time since the one before it, or since the request."""
        self._sampled.inc()
        (self._first if first else self._inter).observe(seconds)

    def ended(self, done: Completion) -> None:
        """Count the end of a completion."""
        self._prompt.inc(len(done.prompt_tokens))
        self._cached.inc(done.cached_tokens)
        if done.cached_tokens:
            self._hits.inc()
        self._finish.labels(done.finish).inc()

    def expired(self, count: int) -> None:
        """Count sessions that were deleted."""
        if count:
            self._expired.inc(count)

    def text(self, worker: Worker) -> bytes:
        """Return all metrics; in the worker thread."""
        scheduler, prefixes = worker.scheduler, worker.prefixes
        self._running.set(scheduler.live - scheduler.waiting)
        self._waiting.set(scheduler.waiting)
        self._read.set(scheduler.read_tokens)
        self._sessions.set(worker.store.count("session/"))
        self._prefixes.set(len(prefixes))
        one = worker.model.state_bytes(max(worker.limits.context, 1))
        self._state_bytes.set(prefixes.nbytes + one * (scheduler.live - scheduler.waiting))
        self._prefix_bytes.set(prefixes.nbytes)
        return generate_latest(self.registry)
