"""Opaque page cursors: the position of the last run of a page.

Pages by start have its partition time and id; sorted pages add the sort order and the value.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from datetime import UTC, datetime, timedelta
from uuid import UUID

from apps.core.errors import InvalidCursor
from apps.trace_store.types import RunSort

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAYOUT = struct.Struct(">q16s")


def encode_cursor(partition_time: datetime, run_id: UUID) -> str:
    microseconds = (partition_time - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(_LAYOUT.pack(microseconds, run_id.bytes)).decode()


def decode_cursor(cursor: str) -> tuple[datetime, UUID]:
    """Decode a cursor. Raises `InvalidCursor` if `encode_cursor` did not produce it."""
    try:
        microseconds, run_id = _LAYOUT.unpack(
            base64.b64decode(cursor, altchars=b"-_", validate=True)
        )
        return _EPOCH + timedelta(microseconds=microseconds), UUID(bytes=run_id)
    except (binascii.Error, struct.error, ValueError, OverflowError):
        raise InvalidCursor from None


def encode_sort_cursor(sort: RunSort, *parts: str) -> str:
    """Encode the order and the parts of a position: the value and a cursor by start."""
    text = json.dumps([sort.field, sort.descending, *parts])
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_sort_cursor(cursor: str, sort: RunSort) -> list[str]:
    """Return the parts of a cursor. Raises `InvalidCursor`, also for a cursor of another order."""
    try:
        parts = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        raise InvalidCursor from None
    if not isinstance(parts, list) or parts[:2] != [sort.field, sort.descending]:
        raise InvalidCursor
    if len(parts) < 4 or not all(isinstance(part, str) for part in parts[2:]):
        raise InvalidCursor
    return parts[2:]
