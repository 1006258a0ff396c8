"""Identifiers: UUID version 7, so that they sort by the time they were made."""

from __future__ import annotations

from uuid import UUID

from uuid_utils.compat import uuid7 as _uuid7


def uuid7() -> UUID:
    """A new id, greater than every id this process made before."""
    return _uuid7()
