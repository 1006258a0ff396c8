"""Generation, display and hashing of key secrets."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "slip_"
PERSONAL_PREFIX = "slip_pt_"
_VISIBLE_CHARACTERS = 6


def new_secret(prefix: str = PREFIX) -> str:
    return prefix + secrets.token_urlsafe(32)


def visible_prefix(secret: str) -> str:
    """Return the visible prefix, which distinguishes keys and reveals too little to guess one."""
    prefix = PERSONAL_PREFIX if secret.startswith(PERSONAL_PREFIX) else PREFIX
    return secret[: len(prefix) + _VISIBLE_CHARACTERS]


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
