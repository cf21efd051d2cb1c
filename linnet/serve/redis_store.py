"""RedisStore: a store that several servers share, so that a session begun on one continues on another.

Values are strings of Redis, and one sorted set with equal scores holds all names in order. A session in use is leased:
a server that is killed loses its leases after LEASE seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from .store import LEASE, Store

SPACE = "linnet:"  # before every name in Redis
NAMES = SPACE + "names"
OURS = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call({}) else return 0 end"


class RedisStore(Store):
    """The store in a Redis server."""

    def __init__(self, address: str) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.name = urlsplit(address)._replace(netloc=urlsplit(address).netloc.rpartition("@")[2]).geturl()
        once_more = Retry(NoBackoff(), 1)  # on a new connection; waiting would stop all streams
        self._redis: Any = redis.Redis.from_url(address, socket_timeout=10, socket_connect_timeout=2, retry=once_more)
        self._me = token_hex(8).encode()
        try:
            self._redis.ping()
        except redis.RedisError as error:
            raise ValueError(f"--store is {self.name}, which does not answer ({error}); start Redis there") from None
        self._renew = self._redis.register_script(OURS.format("'expire', KEYS[1], ARGV[2]"))
        self._release = self._redis.register_script(OURS.format("'del', KEYS[1]"))

    def get(self, name: str) -> bytes | None:
        value: bytes | None = self._redis.get(SPACE + name)
        return value

    def scan(self, prefix: str, *, after: str = "", limit: int = -1) -> list[tuple[str, bytes]]:
        least, most = _range(prefix)
        if after >= prefix:
            least = b"(" + after.encode()
        names = self._redis.zrangebylex(NAMES, least, most, start=0, num=limit)
        values = self._redis.mget([SPACE.encode() + name for name in names]) if names else []
        pairs = zip(names, values, strict=True)
        return [(name.decode(), value) for name, value in pairs if value is not None]  # None: deleted in between

    def count(self, prefix: str) -> int:
        return int(self._redis.zlexcount(NAMES, *_range(prefix)))

    def write(self, put: Mapping[str, bytes], delete: Iterable[str] = ()) -> None:
        with self._redis.pipeline(transaction=True) as pipe:
            gone = list(delete)
            if gone:
                pipe.delete(*(SPACE + name for name in gone)).zrem(NAMES, *gone)
            if put:
                pipe.mset({SPACE + name: value for name, value in put.items()}).zadd(NAMES, dict.fromkeys(put, 0))
            pipe.execute()

    def setdefault(self, name: str, value: bytes) -> bytes:
        self._redis.set(SPACE + name, value, nx=True)
        self._redis.zadd(NAMES, {name: 0})
        kept: bytes = self._redis.get(SPACE + name)
        return kept

    def acquire(self, name: str) -> bool:
        return bool(self._redis.set(f"{SPACE}lease/{name}", self._me, nx=True, ex=LEASE))

    def renew(self, names: Iterable[str]) -> None:
        for name in names:
            self._renew(keys=[f"{SPACE}lease/{name}"], args=[self._me, LEASE])

    def release(self, name: str) -> None:
        self._release(keys=[f"{SPACE}lease/{name}"], args=[self._me])

    def close(self) -> None:
        self._redis.close()


def _range(prefix: str) -> tuple[bytes, bytes]:
    return b"[" + prefix.encode(), b"(" + prefix.encode() + b"\xff"
