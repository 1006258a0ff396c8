"""Strategies for malformed requests: JSON values, bad runs, compressed and damaged bodies."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import zstandard
from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20)
    | st.sampled_from([10**400, -(2**63) - 1, "9" * 400, "\x00", "\ud800", "1e400", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)

# Each makes a run invalid, so that the response names the run.
BAD_RUNS: list[dict[str, Any]] = [
    {"run_type": "nonsense"},
    {"run_type": 5},
    {"name": None},
    {"name": ["a"]},
    {"tags": "a"},
    {"start_time": "yesterday"},
    {"start_time": {"a": 1}},
    {"end_time": "24:99"},
    {"trace_id": "no id"},
    {"dotted_order": "20260101T000000000000Z"},
    {"dotted_order": "x.y.z"},
    {"session_id": "not-a-uuid"},
    {"session_name": "n" * 10_000},
    {"parent_run_id": 7},
]

ENCODINGS = [
    "identity",
    "gzip",
    "deflate",
    "zstd",
    "zstd of several frames",
    "gzip of several members",
]


def encode_body(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Return the body in that encoding, and its Content-Encoding header."""
    middle = len(body) // 2
    match encoding:
        case "gzip":
            return gzip.compress(body, mtime=0), "gzip"
        case "gzip of several members":
            halves = body[:middle], body[middle:]
            return b"".join(gzip.compress(half, mtime=0) for half in halves), "gzip"
        case "deflate":
            return zlib.compress(body), "deflate"
        case "zstd":
            return zstandard.compress(body), "zstd"
        case "zstd of several frames":
            pieces = body[:middle], b"", body[middle:]
            return b"".join(zstandard.compress(piece) for piece in pieces), "zstd"
    return body, ""


DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["cut", "flip", "drop", "twice", "insert"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 60),
        st.binary(min_size=1, max_size=20),
    ),
    min_size=1,
    max_size=3,
)
"""Damages to a body: kind, relative position, number of bytes, and bytes to insert."""


def damage(body: bytes, damages: list[tuple[str, float, int, bytes]]) -> bytes:
    """Apply the damages in order."""
    result = bytearray(body)
    for kind, position, count, inserted in damages:
        offset = int(position * len(result))
        match kind:
            case "cut":
                del result[offset:]
            case "flip":
                result[offset : offset + 1] = inserted[:1]
            case "drop":
                del result[offset : offset + count]
            case "twice":
                result[offset:offset] = result[offset : offset + count]
            case "insert":
                result[offset:offset] = inserted
    return bytes(result)
