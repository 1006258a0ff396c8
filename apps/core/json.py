"""JSON with orjson, and replacement of the NUL escapes that PostgreSQL rejects."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self

import orjson

from apps.core.errors import Invalid

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
MAX_DEPTH = 200
"""Nesting levels of JSON that clients send."""
_MAX_SERIALIZED_DEPTH = 254
"""The limit of orjson; rows and responses add levels around those of a body."""
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1


_thread = threading.local()


class Fragment(bytes):
    """Encoded JSON, which `dumps` embeds unchanged."""


class LazyFragment(ABC):
    """Encoded JSON that is loaded when it is encoded, because many of them take much memory."""

    __slots__ = ()

    def __new__(cls, *_arguments: Any, **_values: Any) -> Self:
        _thread.has_made_lazy = True
        return super().__new__(cls)

    @abstractmethod
    def load(self) -> bytes:
        """Return the encoded JSON."""


def dumps(value: Any) -> bytes:
    """Encode the value as UTF-8 JSON; unknown types become their `str`.

    Raises `TypeError` if it is nested deeper than 254 levels.
    """
    try:
        return orjson.dumps(value, default=_default, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # jsonb returns 1e20 as an integer, but orjson's integers have 64 bits.
        try:
            wide = _with_wide_integers(value)
        except RecursionError:
            raise orjson.JSONEncodeError("Recursion limit reached") from None
        return orjson.dumps(wide, default=_default, option=_OPTIONS)


def has_made_lazy_fragments() -> bool:
    """Whether this thread made any since the last call: few values have to be searched for them."""
    has_made: bool = getattr(_thread, "has_made_lazy", False)
    _thread.has_made_lazy = False
    return has_made


def has_lazy_fragments(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_lazy_fragments, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_lazy_fragments, value))
    return isinstance(value, LazyFragment)


def iterate_encoded(value: Any) -> Iterator[bytes]:
    """Encode the value in pieces, of which each has at most one lazy fragment."""
    if not has_lazy_fragments(value):
        yield dumps(value)
    elif isinstance(value, dict):
        separator = b"{"
        for name, member in value.items():
            yield separator + dumps(str(name)) + b":"
            yield from iterate_encoded(member)
            separator = b","
        yield b"}"
    elif isinstance(value, list | tuple):
        separator = b"["
        for item in value:
            yield separator
            yield from iterate_encoded(item)
            separator = b","
        yield b"]"
    else:
        yield value.load()


def dumps_text(value: Any) -> str:
    return dumps(value).decode()


loads: Callable[[bytes | str], Any] = orjson.loads


_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_WIDE_INTEGER = b"0" * 19


def loads_exact(text: bytes | str) -> Any:
    """Decode JSON; integers beyond 64 bits, which orjson turns into floats, stay integers."""
    value = orjson.loads(text)
    encoded = text.encode() if isinstance(text, str) else text
    # The shortest such integer has 19 digits.
    if _WIDE_INTEGER not in encoded.translate(_DIGITS_AS_ZERO):
        return value
    try:
        return json.loads(encoded)
    except RecursionError:  # orjson accepts deeper nesting
        return value


class CacheSerializer:
    """Encodes the values of Django's cache; a value that JSON cannot hold raises `TypeError`."""

    def dumps(self, value: Any) -> bytes:
        return orjson.dumps(value)

    def loads(self, text: bytes) -> Any:
        return loads(text)


def loads_small(text: bytes, max_bytes: int = 1_048_576) -> Any:
    """Decode JSON of agent code; raises `ValueError` above the size.

    Decoded JSON takes up to twenty times the memory of its text.
    """
    if not isinstance(text, bytes):
        raise TypeError(f"expected bytes, not {type(text).__name__}")
    if len(text) > max_bytes:
        raise ValueError(f"The JSON has more than {max_bytes} bytes.")
    return loads(text)


def _default(value: Any) -> Any:
    if isinstance(value, Fragment):
        return orjson.Fragment(bytes(value))
    if isinstance(value, LazyFragment):
        return orjson.Fragment(value.load())
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


def _with_wide_integers(value: Any) -> Any:
    """Replace integers beyond 64 bits by fragments of their digits."""
    if isinstance(value, dict):
        return {
            _with_wide_integers_key(key): _with_wide_integers(member)
            for key, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_wide_integers(member) for member in value]
    if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
        return orjson.Fragment(str(value))
    return value


def _with_wide_integers_key(key: Any) -> Any:
    return str(key) if isinstance(key, int) and not isinstance(key, bool) else key


def is_too_deep(value: Any, text: bytes | None = None) -> bool:
    """Whether the value is nested deeper than `MAX_DEPTH`; its text saves most of the checks."""
    if text is not None and text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    for _ in range(_MAX_SERIALIZED_DEPTH - MAX_DEPTH):
        value = [value]
    try:
        dumps(value)
    except TypeError:
        return True
    return False


def storable_value(value: Any) -> Any:
    """Return the value in a form that `jsonb` accepts.

    Raises `ValueError` if it is nested too deep or has a number beyond the range of doubles.
    """
    if is_too_deep(value):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return loads(storable(dumps(value)))


def storable(text: bytes) -> bytes:
    r"""Replace the escape `\u0000`, which jsonb rejects, by U+FFFD in JSON text.

    `\\u0000` (an escaped backslash before the letters) is unchanged.
    """
    if b"\\u0000" not in text:
        return text
    parts = text.split(b"\\u0000")
    pieces = [parts[0]]
    for part in parts[1:]:
        previous = pieces[-1]
        backslashes = len(previous) - len(previous.rstrip(b"\\"))
        pieces += [b"\\u0000" if backslashes % 2 else b"\\ufffd", part]
    return b"".join(pieces)


def read_json(raw: bytes) -> Any:
    """Parse JSON that can be stored: no U+0000, and not nested too deep to be serialized."""
    try:
        value = loads_exact(storable(raw))
    except ValueError:
        raise Invalid("Invalid JSON in request body") from None
    if is_too_deep(value, raw):
        raise Invalid(f"JSON nested deeper than {MAX_DEPTH} levels in request body")
    return value
