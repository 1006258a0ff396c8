"""Errors of exports."""

from __future__ import annotations

from apps.core import errors


class DestinationRefused(errors.BadRequest):
    code, detail = "destination_refused", "A test file could not be written to the destination."


class ExportFinished(errors.Conflict):
    code, detail = "export_over", "The export has already finished."


class WriteFailed(Exception):
    """A file could not be written; the message is shown to the owner of the destination."""
