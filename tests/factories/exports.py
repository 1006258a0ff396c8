from __future__ import annotations

from datetime import UTC, datetime, timedelta

from apps.exports.models import BulkExport, Destination, ExportPart
from apps.tracing.models import Project

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def create_export_part(project: Project, mark: str) -> ExportPart:
    """Create a destination, an export and a part of it; all texts that users enter are `mark`."""
    destination = Destination(
        workspace_id=project.workspace_id, name=mark, config={"bucket_name": mark, "prefix": mark}
    )
    destination.set_credentials({"access_key_id": mark, "secret_access_key": mark})
    destination.save(force_insert=True)
    export = BulkExport(
        workspace_id=project.workspace_id, project=project, destination=destination,
        start_time=DAY, end_time=DAY + timedelta(days=1), filter=f'eq(name, "{mark}")',
    )  # fmt: skip
    export.save(force_insert=True)
    part = ExportPart(
        workspace_id=project.workspace_id, export=export, start_time=DAY,
        end_time=DAY + timedelta(days=1), files=[mark],
    )  # fmt: skip
    part.save(force_insert=True)
    return part
