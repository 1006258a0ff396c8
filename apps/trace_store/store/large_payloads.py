"""Payloads too large for a row: in object storage, with their path in the row.

JSON never begins with the byte that marks such a path, nor does a zstd frame.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from uuid import UUID

from django.conf import settings

from apps.core import objects
from apps.trace_store.store.packing import Packed, pack_one
from apps.trace_store.store.types import Payload

log = logging.getLogger(__name__)
_MARK = b"\x01"
_LONGEST_PATH = 300


def set_apart(
    workspace_id: UUID, run_id: UUID, payloads: Mapping[Payload, bytes]
) -> dict[Payload, bytes]:
    """The payloads as the row is to hold them; large ones are durable elsewhere on return.

    `Unavailable` when object storage does not take one: nothing of the run is stored then.
    """
    return {name: _placed(workspace_id, run_id, value) for name, value in payloads.items()}


def _placed(workspace_id: UUID, run_id: UUID, value: bytes) -> bytes:
    if isinstance(value, Packed) or len(value) <= settings.LARGE_PAYLOAD_BYTES:
        return value
    packed = pack_one(value)
    if len(packed) <= settings.LARGE_PAYLOAD_BYTES:
        return packed
    path = f"payloads/{workspace_id}/{run_id}/{hashlib.sha256(value).hexdigest()}"
    objects.put(path, packed)
    return Packed(_MARK + path.encode())


def fetched(stored: bytes) -> bytes:
    """What the row stands for: the value itself, or the object that its path names."""
    if not stored.startswith(_MARK):
        return stored
    path = stored[1:].decode()
    try:
        return objects.get(path)
    except FileNotFoundError:
        log.exception("a payload is not in object storage any more: %s", path)
        return b"null"


def paths_in(table: str) -> str:
    """SQL: an array of the paths that a row of payloads holds; `table` is its alias."""
    # The length is known without reading the value from where long ones lie.
    cases = (
        f"CASE WHEN octet_length({table}.{name}) BETWEEN 2 AND {_LONGEST_PATH}"
        f" AND get_byte({table}.{name}, 0) = {_MARK[0]}"
        f" THEN convert_from(substr({table}.{name}, 2), 'UTF8') END"
        for name in Payload
    )
    return f"array_remove(ARRAY[{', '.join(cases)}], NULL)"
