"""Sealed states: the server returns the state of a conversation, keeps nothing, and trusts what comes back unaltered.

    "lnst1." + base64url(HMAC-SHA256 [32 bytes] + header length [4] + header JSON + state)

The header names model, tokenizer and owner of the state, so that a seal fits only where it was made. The content is
authenticated, not encrypted: it is the client's own conversation.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import NamedTuple

import msgspec

from .errors import ApiError

PREFIX = "lnst1."


class Sealed(NamedTuple):
    """What a sealed state says."""

    size: int  # tokens of the conversation
    last: int  # the token that is not in the state yet
    key: bytes
    state: bytes


class Sealer:
    """Seal and open states of one model with the secret of the server."""

    def __init__(self, secret: bytes, model: str, tokenizer: str) -> None:
        self._secret, self._model, self._tokenizer = secret, model, tokenizer

    def seal(self, owner: str, sealed: Sealed) -> str:
        """Return the text for the client."""
        header = msgspec.json.encode([self._model, self._tokenizer, owner, sealed.size, sealed.last, sealed.key.hex()])
        content = len(header).to_bytes(4, "little") + header + sealed.state
        return PREFIX + base64.urlsafe_b64encode(self._mac(content) + content).decode()

    def open(self, owner: str, text: str) -> Sealed:
        """Return what the seal protects; raise ApiError 400 for anything else than a seal of this server and owner."""
        try:
            data = base64.b64decode(text.removeprefix(PREFIX), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        mac, content = data[:32], data[32:]
        if not text.startswith(PREFIX) or not hmac.compare_digest(mac, self._mac(content)):
            raise ApiError(400, "the sealed state is altered, or another server made it; start again", param="state")
        size = int.from_bytes(content[:4], "little")
        model, tokenizer, mine, tokens, last, key = msgspec.json.decode(content[4 : 4 + size])
        if (model, tokenizer, mine) != (self._model, self._tokenizer, owner):
            raise ApiError(400, "the sealed state belongs to another model or key; use it with that one", param="state")
        return Sealed(tokens, last, bytes.fromhex(key), content[4 + size :])

    def _mac(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, content, "sha256")
