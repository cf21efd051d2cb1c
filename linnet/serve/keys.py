"""API keys: a file with one SHA-256 per line, compared in constant time; the key itself is never stored.

linnet-secret-1            -> a line "sha256:HEX name", as `linnet serve --hash-key` prints
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from .errors import ApiError

LINE = re.compile(r"sha256:([0-9a-f]{64})(?:\s+(\S.*))?")
NO_KEY = "local"  # the owner of everything on a server without keys


def hash_key(key: str) -> str:
    """Return the line of a key file for this key."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


class Keys:
    """The keys of a server; `digests` maps the hash of each to its owner."""

    def __init__(self, digests: Mapping[str, str] | None) -> None:
        self._digests = None if digests is None else {digest.encode(): owner for digest, owner in digests.items()}

    @property
    def required(self) -> bool:
        return self._digests is not None

    @classmethod
    def load(cls, path: Path) -> Keys:
        """Read a key file; raise ValueError for the first line that is not understood."""
        digests: dict[str, str] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = LINE.fullmatch(line.strip())
            if match is None:
                accepted = "'sha256:' and 64 hex digits, then a name; write one with `linnet serve --hash-key`"
                raise ValueError(f"{path}, line {number} is not a key; accepted: {accepted}")
            digests[match[1]] = match[1][:16]
        if not digests:
            raise ValueError(f"{path} has no keys; write one with `linnet serve --hash-key`, or use --no-auth")
        return cls(digests)

    def owner(self, authorization: str | None) -> str:
        """Return the owner of the key in an Authorization header; raise ApiError 401 without a valid one."""
        if self._digests is None:
            return NO_KEY
        scheme, _, key = (authorization or "").partition(" ")
        given = sha256(key.strip().encode("utf-8", "surrogateescape")).hexdigest().encode()
        owner = ""
        for digest, name in self._digests.items():  # all of them, whichever fits
            if compare_digest(digest, given):
                owner = name
        if scheme.lower() != "bearer" or not owner:
            raise ApiError(
                401, "the API key is missing or unknown; send 'Authorization: Bearer KEY'", code="invalid_api_key"
            )
        return owner
