"""Sessions: tokens and states in the store; every operation is one write, so a crash leaves it done or not begun.

    record = sessions.create(owner, tokens)
    with sessions.using(id, owner) as record:          a lease; ApiError 404 or 409
        sessions.rollback(record, 30)

Only the state after the last tokens is stored. An earlier one comes from the prefix states, or by reading the tokens
again the way they were read, which gives the same bits. All methods belong to the worker thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import chain
from secrets import token_hex
from time import time
from typing import Any

from torch import Tensor

from ..generate import Completion, Passages, PrefixStates
from ..generate.prefixes import KEY_BYTES, cut
from ..models import LanguageModel, ModelState
from .errors import ApiError, not_found
from .limits import Limits
from .record import Part, Record, fresh_name, pack_tokens, part_name, passages, truncate, view
from .state_bytes import pack_state, unpack_state
from .store import Store

RETRY = 60  # seconds after which a client that has too many sessions may try again
FAR = 1e11  # seconds since 1970, after every session
PAGE = 200  # sessions examined for their age at once


class Sessions:
    """The sessions of a model in a store."""

    def __init__(self, store: Store, model: LanguageModel, name: str, limits: Limits, prefixes: PrefixStates) -> None:
        self.store, self.model, self.name, self.limits, self.prefixes = store, model, name, limits, prefixes
        self.busy: set[str] = set()
        config = model.config
        head_width = config.head_dim or config.d_model // config.n_heads
        self._cache_bytes = 2 * 4 * config.n_layers * (config.n_kv_heads or config.n_heads) * head_width
        self._examined = ""

    # ---- finding

    def load(self, id: str, owner: str, kind: str = "session") -> Record:
        """Return a session of this owner as it is now, also while a request uses it."""
        data = self.store.get(f"session/{id}") if id.isascii() and len(id) < 100 else None
        record = None if data is None else Record.unpack(data)
        if record is None or record.owner != owner or record.kind != kind:
            raise not_found(kind, id)
        fresh = self._fresh(record)
        if fresh:
            record.size, record.last = record.size + len(fresh), fresh[-1]
        return record

    @contextmanager
    def using(self, id: str, owner: str, kind: str = "session") -> Iterator[Record]:
        """Lease a session for the block."""
        record = self.open(id, owner, kind)
        try:
            yield record
        finally:
            self.close(id)

    def open(self, id: str, owner: str, kind: str = "session") -> Record:
        """Lease a session until `close`; tokens that a crash left behind become part of it."""
        self.load(id, owner, kind)  # 404 before 409
        if id in self.busy or not self.store.acquire(id):
            raise ApiError(409, f"session {id} is in use by another request; retry when that has ended", code="busy")
        self.busy.add(id)
        try:
            data = self.store.get(f"session/{id}")
            assert data is not None
            record = Record.unpack(data)
            fresh = self._fresh(record)
            if fresh:
                self.extend(record, fresh, sampled=True)
            return record
        except BaseException:
            self.close(id)
            raise

    def close(self, id: str) -> None:
        """End the lease; if the store does not answer, the lease ends by itself."""
        self.busy.discard(id)
        with suppress(Exception):
            self.store.release(id)

    def newest(self, owner: str, limit: int, after: str) -> tuple[list[Record], bool]:
        """Return sessions that were created last, or those before `after`, and whether there are more."""
        start = self._owned(self.load(after, owner)) if after else ""
        names = [name for name, _ in self.store.scan(f"owner/{owner}/", after=start, limit=limit + 1)]
        values = [self.store.get(f"session/{name.rpartition('/')[2]}") for name in names[:limit]]
        return [Record.unpack(data) for data in values if data], len(names) > limit

    def parts(self, record: Record) -> list[Part]:
        """Return all known tokens."""
        parts = [Part.unpack(name, data) for name, data in self.store.scan(f"part/{record.id}/")]
        fresh = self._fresh(record)
        if fresh:
            parts.append(Part(parts[-1].end if parts else record.first, fresh, True))
        return parts

    def _fresh(self, record: Record) -> list[int]:
        return [int.from_bytes(data, "little") for _, data in self.store.scan(f"fresh/{record.id}/")]

    def state(self, record: Record) -> tuple[ModelState | None, Tensor | None]:
        """Return the state after `at` tokens, None at the start, and the logits after it if they are known."""
        data = self.store.get(f"state/{record.id}")
        return (None, None) if data is None else unpack_state(data, self.model)

    def view(self, record: Record) -> dict[str, Any]:
        """Return a session as the API shows it."""
        return view(record, self.name, self.model.state_bytes(record.size), self._cache_bytes * record.size)

    # ---- changing

    def root(self, owner: str) -> bytes:
        """Return the key of the empty state of an owner, whose prefix states no other owner uses."""
        return blake2b(owner.encode(), digest_size=KEY_BYTES).digest()

    def create(
        self,
        owner: str,
        tokens: Sequence[int] = (),
        *,
        kind: str = "session",
        metadata: dict[str, str] | None = None,
        upload: tuple[ModelState, Tensor | None] | None = None,
    ) -> Record:
        """Create a session from tokens, or from an uploaded state and the tokens it has read, if they are known."""
        self.check_count(owner, kind)
        record = self._new(owner, kind, metadata)
        data = None
        if upload is not None:
            data, record.base_key = pack_state(*upload), token_hex(KEY_BYTES // 2).encode()
            record.size = record.at = record.base = int(upload[0].position[0])
            record.first, record.key = (0 if tokens else record.base), record.base_key
        parts = {part_name(record.id, 0): Part(0, list(tokens), False).pack()} if tokens else {}
        if upload is None and tokens:
            record.size, record.last = len(tokens), tokens[-1]
        states = {} if data is None else {f"state/{record.id}": data, f"base/{record.id}": data}
        self.store.write({record.name: record.pack(), self._owned(record): b"", **parts, **states})
        return record

    def check_count(self, owner: str, kind: str, more: int = 1) -> None:
        """Raise ApiError 429 if an owner has too many sessions."""
        most = self.limits.sessions_per_key
        if kind == "session" and self.store.count(f"owner/{owner}/") + more > most:
            message = f"this key has {most:,} sessions, as many as it may; delete some"
            raise ApiError(429, message, code="too_many_sessions", retry=RETRY)

    def _new(self, owner: str, kind: str, metadata: dict[str, str] | None) -> Record:
        now, id = time(), ("sess_" if kind == "session" else "resp_") + token_hex(12)
        return Record(id, owner, kind, now, now, self.root(owner), metadata=metadata or {})

    def _owned(self, record: Record) -> str:
        if record.kind == "session":  # the newest first
            return f"owner/{record.owner}/{FAR - record.created:020.6f}/{record.id}"
        return f"responses/{record.owner}/{record.created:020.6f}/{record.id}"  # the oldest first

    def extend(self, record: Record, tokens: Sequence[int], *, sampled: bool) -> None:
        """Add tokens at the end, as a separate part."""
        part = Part(record.size, list(tokens), sampled)
        gone = [fresh_name(record.id, part.start + i) for i in range(len(tokens))] if sampled else []
        record.size, record.last, record.used, record.stop = part.end, part.tokens[-1], time(), ""
        self.store.write({part_name(record.id, part.start): part.pack(), record.name: record.pack()}, gone)

    def save(self, record: Record) -> None:
        self.store.write({record.name: record.pack()})

    def unread(self, record: Record) -> Passages:
        """Return what has to be read before the session can continue."""
        if record.last < 0:
            return Passages((), None)
        if record.at == record.size - 1:
            return Passages((), record.last)
        return Passages(passages(self.parts(record), record.at, record.size), record.last)

    def finished(self, record: Record, start: int, done: Completion) -> tuple[dict[str, bytes], list[str]]:
        """Return what to put and what to delete when a request has ended."""
        put: dict[str, bytes] = {}
        tokens, state, key = done.tokens, done.state, done.key
        record.stop = done.stop if isinstance(done.stop, str) else ""
        if tokens:
            put[part_name(record.id, start)] = Part(start, list(tokens), True).pack()
            record.size, record.last = start + len(tokens), tokens[-1]
        if state is not None:
            record.at, record.key = int(state.position[0]), key or record.key
            put[f"state/{record.id}"] = pack_state(state)
        record.used = time()
        put[record.name] = record.pack()
        return put, [fresh_name(record.id, start + i) for i in range(len(tokens))]

    def rollback(self, record: Record, size: int, parts: Sequence[Part] | None = None) -> None:
        """Keep the first `size` tokens."""
        before = self.parts(record) if parts is None else parts
        put, gone = self._cut(record, before, size)
        kept = {part.start for part in truncate(before, size)}
        gone += [part_name(record.id, part.start) for part in before if part.start not in kept]
        self.store.write(put, gone)

    def _cut(self, record: Record, parts: Sequence[Part], size: int) -> tuple[dict[str, bytes], list[str]]:
        """Cut the record to `size` tokens; return what to put and what to delete of states and the last part."""
        if not record.first <= size <= record.size:
            accepted = f"{record.first} to {record.size}, the positions that this session knows"
            raise ApiError(400, f"the position is {size}; accepted: {accepted}", param="to")
        put: dict[str, bytes] = {}
        gone: list[str] = []
        cut_parts = truncate(parts, size)
        known = list(chain.from_iterable(part.tokens for part in cut_parts))
        if size < record.base:  # the uploaded state is of no use any more
            record.base, record.base_key = 0, b""
            gone.append(f"base/{record.id}")
        if size == record.base:
            record.last = -1  # all of it is in the state, with the logits if there were any
        elif known:
            record.last = known[-1]
        target = size if record.last < 0 else size - 1
        if record.at > target:
            root = record.base_key or self.root(record.owner)
            pieces = cut(passages(cut_parts, record.base, size), self.limits.chunk, root) if known else []
            covered = self.prefixes.longest(pieces)
            record.at = record.base + sum(len(piece.tokens) for piece in pieces[:covered])
            record.key = pieces[covered - 1].key if covered else root
            state = self.prefixes.get(record.key) if covered else None
            data = (
                pack_state(state) if state is not None else self.store.get(f"base/{record.id}") if record.base else None
            )
            if data is None:
                gone.append(f"state/{record.id}")
            else:
                put[f"state/{record.id}"] = data
        record.size, record.used, record.stop = size, time(), ""
        put[record.name] = record.pack()
        if cut_parts:
            put[part_name(record.id, cut_parts[-1].start)] = cut_parts[-1].pack()
        return put, gone

    def fork(self, record: Record, size: int, count: int = 1, kind: str = "session") -> list[Record]:
        """Return copies of the first `size` tokens."""
        self.check_count(record.owner, kind, count)
        as_it_is = size == record.size and not self._fresh(record)
        stored = self.store.scan(f"part/{record.id}/")
        parts = [] if as_it_is else self.parts(record)
        data, base = self.store.get(f"state/{record.id}"), self.store.get(f"base/{record.id}")
        forks, put = [], dict[str, bytes]()
        for _ in range(count):
            new = self._new(record.owner, kind, None)
            for field in ("key", "size", "at", "last", "first", "stop", "base", "base_key"):
                setattr(new, field, getattr(record, field))
            new.parent = (record.id, size)
            copies = {f"state/{new.id}": data, f"base/{new.id}": base}
            if as_it_is:
                copies |= {f"part/{new.id}/{name.rpartition('/')[2]}": value for name, value in stored}
            else:
                copies |= {part_name(new.id, part.start): part.pack() for part in truncate(parts, size)}
                changed, gone = self._cut_copy(new, parts, size, base)
                copies |= changed
                copies |= dict.fromkeys(gone)
            copies |= {new.name: new.pack(), self._owned(new): b""}
            put |= {name: value for name, value in copies.items() if value is not None}
            forks.append(new)
        self.store.write(put)
        return forks

    def _cut_copy(
        self, new: Record, parts: Sequence[Part], size: int, base: bytes | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Cut a copy that is not in the store yet."""
        put, gone = self._cut(new, parts, size)
        if f"state/{new.id}" in gone and new.base and base is not None:  # the base of the copy is not stored yet
            gone.remove(f"state/{new.id}")
            put[f"state/{new.id}"] = base
        return put, gone

    def delete(self, record: Record) -> None:
        """Delete everything of a session."""
        names = [record.name, f"state/{record.id}", f"base/{record.id}", self._owned(record)]
        for prefix in (f"part/{record.id}/", f"fresh/{record.id}/", f"json/{record.id}"):
            names += [name for name, _ in self.store.scan(prefix)]
        self.store.write({}, names)

    def forget_responses(self, owner: str) -> None:
        """Delete the oldest stored responses of an owner beyond the limit."""
        prefix = f"responses/{owner}/"
        surplus = self.store.count(prefix) - self.limits.responses_per_key
        for name, _ in self.store.scan(prefix, limit=surplus) if surplus > 0 else ():
            data = self.store.get(f"session/{name.rpartition('/')[2]}")
            record = None if data is None else Record.unpack(data)
            if record is not None and record.id not in self.busy:
                self.delete(record)

    # ---- upkeep

    def expire(self) -> int:
        """Examine a page of sessions; delete those that were not used for too long, and return their number."""
        page = self.store.scan("session/", after=self._examined, limit=PAGE)
        self._examined = page[-1][0] if len(page) == PAGE else ""
        oldest, deleted = time() - self.limits.idle, 0
        for _, data in page:
            record = Record.unpack(data)
            if record.used < oldest and record.id not in self.busy and self.store.acquire(record.id):
                self.delete(record)
                self.store.release(record.id)
                deleted += 1
        return deleted

    def journal(self, record: Record, position: int, token: int) -> tuple[str, bytes]:
        """Return the entry of a sampled token."""
        return fresh_name(record.id, position), pack_tokens([token])
