"""Store: names and bytes on disk, the journal of the server. A write of several names happens completely or not at all.

    store = SQLiteStore("sessions.db")          or open_store("redis://127.0.0.1:6379/0"), shared by several servers
    store.write({"a/1": b"...", "a/2": b"..."}, delete=["b/1"])
    store.scan("a/")                            [("a/1", b"..."), ...] in order of the names

What was written survives `kill -9` of the process (SQLite in WAL mode: the operating system has it); after a power
failure the last writes may be missing, and the file is intact.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path

LEASE = 10  # seconds after which a lease of a dead server ends
LAST = "\U0010ffff"  # sorts after every character of a name


class Store(ABC):
    """A sorted map from names to bytes. One thread at a time may use it."""

    name: str

    @abstractmethod
    def get(self, name: str) -> bytes | None: ...

    @abstractmethod
    def scan(self, prefix: str, *, after: str = "", limit: int = -1) -> list[tuple[str, bytes]]:
        """Return names that start with `prefix` and follow `after`, with their values, in order."""

    @abstractmethod
    def count(self, prefix: str) -> int: ...

    @abstractmethod
    def write(self, put: Mapping[str, bytes], delete: Iterable[str] = ()) -> None:
        """Delete and put names, all or nothing."""

    @abstractmethod
    def setdefault(self, name: str, value: bytes) -> bytes:
        """Put a value unless there is one; return the value."""

    def acquire(self, name: str) -> bool:
        """Take a lease for LEASE seconds, unless another server has it."""
        return True

    def renew(self, names: Iterable[str]) -> None:  # noqa: B027 - a store of one server needs no leases
        """Extend leases of this server."""

    def release(self, name: str) -> None:  # noqa: B027
        """End a lease of this server."""

    @abstractmethod
    def close(self) -> None: ...


class SQLiteStore(Store):
    """One file, locked by the server that uses it; ":memory:" keeps everything in memory."""

    def __init__(self, path: str) -> None:
        self.name = f"sqlite:{path}"
        if path != ":memory:" and not Path(path).absolute().parent.is_dir():
            raise ValueError(f"--store is {self.name}, but there is no folder {Path(path).parent}; create it first")
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute("CREATE TABLE IF NOT EXISTS entries (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            used = "locked" in str(error)
            why = "another server uses it" if used else str(error)
            raise ValueError(f"{self.name} cannot be opened ({why}); choose another --store") from None

    def get(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM entries WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def scan(self, prefix: str, *, after: str = "", limit: int = -1) -> list[tuple[str, bytes]]:
        query = "SELECT name, value FROM entries WHERE name >= ? AND name < ? AND name > ? ORDER BY name LIMIT ?"
        return self._db.execute(query, (prefix, prefix + LAST, after, limit)).fetchall()

    def count(self, prefix: str) -> int:
        query = "SELECT count(*) FROM entries WHERE name >= ? AND name < ?"
        return int(self._db.execute(query, (prefix, prefix + LAST)).fetchone()[0])

    def write(self, put: Mapping[str, bytes], delete: Iterable[str] = ()) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany("DELETE FROM entries WHERE name = ?", [(name,) for name in delete])
            self._db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", put.items())
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def setdefault(self, name: str, value: bytes) -> bytes:
        self._db.execute("INSERT OR IGNORE INTO entries VALUES (?, ?)", (name, value))
        kept = self.get(name)
        assert kept is not None
        return kept

    def close(self) -> None:
        self._db.close()


def open_store(address: str) -> Store:
    """Open "sqlite:PATH", "redis://..." or "memory"."""
    kind, _, rest = address.partition(":")
    if address == "memory":
        return SQLiteStore(":memory:")
    if kind == "sqlite" and rest:
        return SQLiteStore(rest)
    if kind in ("redis", "rediss", "unix"):
        from .redis_store import RedisStore

        return RedisStore(address)
    raise ValueError(f"--store is {address!r}; accepted: sqlite:PATH, redis://HOST:PORT/NUMBER, or memory")
