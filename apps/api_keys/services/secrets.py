"""The text of a key."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "slip_"
PERSONAL_PREFIX = "slip_pt_"
_SHOWN = 6


def new_secret(prefix: str = PREFIX) -> str:
    return prefix + secrets.token_urlsafe(32)


def shown(secret: str) -> str:
    """The beginning, which may be seen: enough to tell keys apart, too little to guess one."""
    prefix = PERSONAL_PREFIX if secret.startswith(PERSONAL_PREFIX) else PREFIX
    return secret[: len(prefix) + _SHOWN]


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
