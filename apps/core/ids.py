"""Identifiers: UUID version 7, which sort by creation time."""

from __future__ import annotations

from uuid import UUID

from uuid_utils.compat import uuid7 as _uuid7


def uuid7() -> UUID:
    """Return a new id, greater than all previous ids of this process."""
    return _uuid7()
