"""JSON by orjson, and the one place that strips what PostgreSQL refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
_LEAST, _MOST = -(2**63), 2**64 - 1


class Fragment(bytes):
    """Bytes that are JSON already: `dumps` writes them as they are."""


def dumps(value: Any) -> bytes:
    """The value as UTF-8 JSON; values JSON does not know become their text."""
    try:
        return orjson.dumps(value, default=_default, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # PostgreSQL's jsonb writes 1e20 as an integer, and orjson's integers have 64 bits.
        return orjson.dumps(_narrow(value), default=_default, option=_OPTIONS)


def dumps_text(value: Any) -> str:
    return dumps(value).decode()


loads: Callable[[bytes | str], Any] = orjson.loads


def _default(value: Any) -> Any:
    if isinstance(value, Fragment):
        return orjson.Fragment(bytes(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


def _narrow(value: Any) -> Any:
    """The value with its integers beyond 64 bits as the digits they are."""
    if isinstance(value, dict):
        return {_narrow_key(key): _narrow(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_narrow(member) for member in value]
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return orjson.Fragment(str(value))
    return value


def _narrow_key(key: Any) -> Any:
    return str(key) if isinstance(key, int) and not isinstance(key, bool) else key


def storable(text: bytes) -> bytes:
    r"""JSON text without the escape `\u0000`, which PostgreSQL's jsonb refuses.

    A NUL becomes U+FFFD. `\\u0000` (an escaped backslash before the letters) is left alone.
    """
    if b"\\u0000" not in text:
        return text
    parts = text.split(b"\\u0000")
    kept = [parts[0]]
    for part in parts[1:]:
        before = kept[-1]
        backslashes = len(before) - len(before.rstrip(b"\\"))
        kept += [b"\\u0000" if backslashes % 2 else b"\\ufffd", part]
    return b"".join(kept)
