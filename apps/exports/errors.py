"""What can go wrong with an export."""

from __future__ import annotations

from apps.core import errors


class DestinationRefused(errors.BadRequest):
    code, detail = "destination_refused", "A test object could not be written there."


class ExportOver(errors.Conflict):
    code, detail = "export_over", "The export has ended already."


class NotWritten(Exception):
    """The file could not be put there; the text is for the destination's owner."""
