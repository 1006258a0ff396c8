"""What can go wrong with an export."""

from __future__ import annotations

from apps.core import errors


class DestinationRefused(errors.BadRequest):
    code, detail = "destination_refused", "A test object could not be written there."


class ExportOver(errors.Conflict):
    code, detail = "export_over", "The export has ended already."
