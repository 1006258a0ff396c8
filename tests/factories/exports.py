from __future__ import annotations

from datetime import UTC, datetime, timedelta

from apps.exports.models import BulkExport, Destination, ExportPart
from apps.tracing.models import Project

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def exported(project: Project, word: str) -> ExportPart:
    """A day of an export of the project, with the word wherever people write one."""
    destination = Destination(workspace_id=project.workspace_id, name=word, config={"prefix": word})
    destination.set_credentials({"access_key_id": word, "secret_access_key": word})
    destination.save(force_insert=True)
    export = BulkExport(
        workspace_id=project.workspace_id, project=project, destination=destination,
        start_time=DAY, end_time=DAY + timedelta(days=1), filter=f'eq(name, "{word}")',
    )  # fmt: skip
    export.save(force_insert=True)
    part = ExportPart(
        workspace_id=project.workspace_id, export=export, start_time=DAY,
        end_time=DAY + timedelta(days=1), files=[word],
    )  # fmt: skip
    part.save(force_insert=True)
    return part
