"""Encryption of secrets at rest with Fernet and key rotation. Plaintext is never logged."""

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
    """Re-encrypt with the first key. Raises `InvalidToken` if no key decrypts the token."""
    return _fernet(settings.ENCRYPTION_KEYS).rotate(bytes(token))
