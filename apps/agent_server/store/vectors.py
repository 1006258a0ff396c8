"""Vectors on their way from a graph host to PostgreSQL."""

from __future__ import annotations

import array
import sys

from apps.agent_server.store.statements import Vector


def unpack_vector(path: str, packed: bytes) -> Vector:
    """A vector as graph hosts pack it: 32-bit floats, the least byte first."""
    numbers = array.array("f", packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return Vector(path, len(numbers), f"[{','.join(map(str, numbers))}]")
