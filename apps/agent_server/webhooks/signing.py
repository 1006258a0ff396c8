"""Signatures that receivers check with any library of the Standard Webhooks specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"


def make_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def headers(keys: Iterable[str], webhook_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers that let a receiver know who sent the body, and that it is not a replay.

    The id is the same at every attempt. With several keys there is a signature for each.
    """
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{_signature(key, signed)}" for key in keys),
    }


def _signature(key: str, signed: bytes) -> str:
    raw = base64.b64decode(key.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(raw, signed, hashlib.sha256)).decode()
