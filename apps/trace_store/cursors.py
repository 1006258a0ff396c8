"""Opaque page cursors: partition time and id of the last run of a page."""

from __future__ import annotations

import base64
import binascii
import struct
from datetime import UTC, datetime, timedelta
from uuid import UUID

from apps.trace_store.errors import InvalidCursor

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
