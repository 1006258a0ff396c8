"""Payloads at rest: the JSON that was sent, as it is when small, else in a zstd frame.

JSON text never begins with the first byte of a zstd frame, so no flag is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import zstandard

from apps.core.json import Fragment

_MAGIC = b"\x28\xb5\x2f\xfd"
_WORTHWHILE = 400
_LEVEL = 1
_local = threading.local()


class Packed(bytes):
    """A value as it is stored."""


def pack_one(value: bytes) -> Packed:
    """One value as it is stored."""
    return Packed(_compressor().compress(value))


def pack_all(values: Sequence[bytes]) -> list[bytes]:
    """Each value as it is stored. One call for many: the interpreter's lock is let go only once."""
    packed = list(values)
    long = [
        at
        for at, value in enumerate(values)
        if len(value) > _WORTHWHILE and not isinstance(value, Packed)
    ]
    if long:
        frames = _compressor().multi_compress_to_buffer([values[at] for at in long])
        for place, at in enumerate(long):
            packed[at] = frames[place].tobytes()
    return packed


def unpack(stored: bytes) -> Fragment:
    """The JSON that was sent, of a value as `apart.fetched` gives it."""
    value = bytes(stored)
    if value.startswith(_MAGIC):
        value = zstandard.decompress(value)
    return Fragment(value)


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor
