"""Secrets at rest: Fernet with rotating keys. The clear text is never logged and never returned."""

from __future__ import annotations

import functools

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings


@functools.lru_cache
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(text: str) -> bytes:
    return _fernet(settings.ENCRYPTION_KEYS).encrypt(text.encode())


def decrypt(token: bytes | memoryview) -> str:
    return _fernet(settings.ENCRYPTION_KEYS).decrypt(bytes(token)).decode()


def reencrypt(token: bytes | memoryview) -> bytes:
    """The same secret under the first of the keys; `InvalidToken` when none of them opens it."""
    return _fernet(settings.ENCRYPTION_KEYS).rotate(bytes(token))
