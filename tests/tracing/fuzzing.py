"""What clients never send and the world does: the pieces that fuzzing puts together."""

from __future__ import annotations

import gzip
import os
import zlib
from typing import Any

import zstandard
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

USUAL = 4
EXAMPLES = int(os.environ.get("EXAMPLES", USUAL))
"""`make fuzz EXAMPLES=100` asks 25 times as often as `make test`."""


def often(times: int) -> settings:
    """Settings for so many examples, more of them under `make fuzz`."""
    return settings(
        max_examples=max(1, times * EXAMPLES // USUAL),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


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

# What is wrong with a run, so that it is refused and named.
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
    {"session_id": "nobody"},
    {"session_name": "n" * 10_000},
    {"parent_run_id": 7},
]

WHOLE = ["identity", "gzip", "deflate", "zstd", "zstd of several frames", "gzip of several members"]


def packed(body: bytes, how: str) -> tuple[bytes, str]:
    """The body packed in that way, and its Content-Encoding."""
    middle = len(body) // 2
    match how:
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
"""What is done to a body: how, how far into it, to how many bytes, and with which others."""


def damaged(body: bytes, damages: list[tuple[str, float, int, bytes]]) -> bytes:
    """The bytes cut, with others in them, some of them twice or missing."""
    found = bytearray(body)
    for how, where, count, others in damages:
        at = int(where * len(found))
        match how:
            case "cut":
                del found[at:]
            case "flip":
                found[at : at + 1] = others[:1]
            case "drop":
                del found[at : at + count]
            case "twice":
                found[at:at] = found[at : at + count]
            case "insert":
                found[at:at] = others
    return bytes(found)
