"""The runs that a page adds to a dataset, and the datasets to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.core import errors as core_errors
from apps.datasets.models import Dataset
from apps.trace_store import NO_PAYLOADS, RunQuery, RunRow, filters, run_store
from apps.tracing.services import get_project

MAX_RUNS = 200
MAX_DATASETS = 12


def load_runs(workspace_id: UUID, run_ids: Sequence[str]) -> list[RunRow]:
    """Return the runs with these ids in their order; raises `BadRequest` for a malformed id."""
    try:
        ids = list(dict.fromkeys(UUID(text) for text in run_ids[:MAX_RUNS]))
    except ValueError:
        raise core_errors.BadRequest("`run` must be a run id.") from None
    if not ids:
        return []
    query = RunQuery(run_ids=ids)
    page = run_store.query(workspace_id, query, limit=len(ids) * 2, payloads=NO_PAYLOADS)
    rows = {detail.row.id: detail.row for detail in reversed(page.runs)}
    return [rows[run_id] for run_id in ids if run_id in rows]


def load_turns(workspace_id: UUID, project_id: str, thread_key: str) -> list[RunRow]:
    """Return the first turns of the thread, oldest first; raises `NotFound`."""
    try:
        project = get_project(workspace_id, UUID(project_id))
    except ValueError:
        raise core_errors.NotFound from None
    query = RunQuery(
        project_ids=[project.pk],
        is_root=True,
        oldest_first=True,
        where=filters.thread_filter(thread_key),
    )
    page = run_store.query(workspace_id, query, limit=MAX_RUNS, payloads=NO_PAYLOADS)
    return [detail.row for detail in page.runs]


def list_datasets(workspace_id: UUID, text: str) -> list[Dataset]:
    """Return the datasets whose name contains the text, last changed first."""
    rows = Dataset.objects.for_workspace(workspace_id).present()
    if text:
        rows = rows.filter(name__icontains=text)
    rows = rows.defer("extra", "inputs_schema", "outputs_schema")
    return list(rows.order_by("-updated_at", "pk")[:MAX_DATASETS])
