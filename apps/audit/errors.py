"""Errors of the audit log."""

from __future__ import annotations

from apps.core import errors


class InvalidCursor(errors.BadRequest):
    code, detail = "invalid_cursor", "`cursor` is not valid. Use the cursor of the previous page."
