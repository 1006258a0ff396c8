"""What can go wrong with the audit log, with stable codes."""

from __future__ import annotations

from apps.core import errors


class InvalidCursor(errors.BadRequest):
    code, detail = "invalid_cursor", "The cursor is not one that this server gave out."
