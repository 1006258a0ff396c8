"""The runs of items, read with their payloads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from apps.annotation.models import QueueItem
from apps.trace_store import Payload, RunDetail, RunQuery, run_store


def load_runs(
    workspace_id: UUID, items: Sequence[QueueItem], payloads: Collection[Payload]
) -> dict[UUID, RunDetail]:
    """Return the runs of the items by item; a run that is being deleted is absent."""
    if not items:
        return {}
    query = RunQuery(
        run_ids=[item.run_id for item in items],
        project_ids=list({item.project_id for item in items}),
    )
    page = run_store.query(workspace_id, query, limit=len(items) * 2, payloads=payloads)
    runs = {(run.row.project_id, run.row.id): run for run in page.runs}
    return {item.pk: runs[key] for item in items if (key := (item.project_id, item.run_id)) in runs}
