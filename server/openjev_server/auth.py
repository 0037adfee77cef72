"""API keys: parsed into hashes once, compared in constant time ever after."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["ApiKey", "bearer_token", "is_accepted", "key_of", "parse_api_keys"]

NAME = re.compile(r"[A-Za-z0-9_.@-]+")
KEY = re.compile(r"[\x21-\x7e]+")
HASH = re.compile(r"[0-9a-fA-F]{64}")
HASH_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One accepted key, kept as its SHA-256."""

    name: str
    digest: bytes = field(repr=False)


def parse_api_keys(text: str) -> tuple[ApiKey, ...]:
    """Reads comma separated `name=key`, `name=sha256:<64 hex digits>` and bare keys.

    What a shell makes of `name=$UNSET` and of `$UNSET,$UNSET` is refused: it would let in everybody who guesses the
    name, or everybody. So a key that ends in `=` (base64) needs a name in front.

    Raises:
        ValueError: an entry is malformed, or all are empty; the message names its place, never its content.
    """
    entries = [entry.strip() for entry in text.split(",")]
    keys = tuple(_parse_entry(entry, place) for place, entry in enumerate(entries, start=1) if entry)
    if not keys and text.strip():
        raise ValueError("API keys: every entry is empty")
    return keys


def _parse_entry(entry: str, place: int) -> ApiKey:
    head, equals, tail = entry.partition("=")
    if equals and not tail.strip("="):
        raise ValueError(f"API key {place}: empty key after '=' (write a key that ends in '=' as name=key)")
    if equals and not head:
        raise ValueError(f"API key {place}: empty name before '='")
    named = bool(equals and NAME.fullmatch(head))
    name, secret = (head, tail) if named else (f"key-{place}", entry)
    if secret.startswith(HASH_PREFIX):
        digits = secret.removeprefix(HASH_PREFIX)
        if not HASH.fullmatch(digits):
            raise ValueError(f"API key {place}: sha256: must be followed by 64 hex digits")
        return ApiKey(name, bytes.fromhex(digits))
    if not KEY.fullmatch(secret):
        raise ValueError(f"API key {place}: a key is printable ASCII without spaces")
    return ApiKey(name, hashlib.sha256(secret.encode()).digest())


def bearer_token(authorization: str | None) -> str | None:
    """The credentials of an `Authorization: Bearer` header, or None when there are none."""
    scheme, _, credentials = (authorization or "").partition(" ")
    return credentials.strip() or None if scheme.lower() == "bearer" else None


def is_accepted(token: str, keys: Sequence[ApiKey]) -> bool:
    """Whether the token is one of the keys; takes the same time whichever, and however close."""
    return key_of(token, keys) is not None


def key_of(token: str, keys: Sequence[ApiKey]) -> ApiKey | None:
    """The key that the token is, if it is one; takes the same time whichever, and however close."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    matches = [hmac.compare_digest(digest, key.digest) for key in keys]
    return keys[matches.index(True)] if any(matches) else None
