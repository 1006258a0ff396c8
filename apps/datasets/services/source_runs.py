"""The runs that examples are made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from apps.datasets import errors
from apps.datasets.models import ExampleRevision
from apps.datasets.wire import WireExample
from apps.trace_store import Attachment, Payload, RunDetail, RunQuery, run_store

_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS, Payload.EXTRA)
_BATCH_SIZE = 100


@dataclass(frozen=True, slots=True)
class SourceRun:
    """What an example takes from its source run."""

    project_id: UUID
    trace_id: UUID
    start_time: datetime
    attachments: Sequence[Attachment]
    inputs: msgspec.Raw
    outputs: msgspec.Raw
    extra: Mapping[str, Any]
    """The run's `extra`, which has the tools of a model call."""


def fetch_source_runs(
    workspace_id: UUID, examples: Collection[WireExample], *, with_extra: bool = False
) -> dict[UUID, SourceRun]:
    """Return the source runs of the examples, with their content for those that take it.

    `with_extra` reads the `extra` of all. A run may arrive after its example: an unknown one is
    skipped, unless its content is needed; then `SourceRunNotFound` is raised.
    """
    ids = {example.source_run_id for example in examples if example.source_run_id is not None}
    needed = {
        example.source_run_id
        for example in examples
        if example.source_run_id is not None
        and (example.use_source_run_io or example.use_source_run_attachments)
    }
    runs: dict[UUID, SourceRun] = {}
    extra_only = (Payload.EXTRA,) if with_extra else ()
    for detail in _fetch(workspace_id, sorted(ids - needed), extra_only):
        runs[detail.row.id] = _source_run(detail)
    for detail in _fetch(workspace_id, sorted(needed), _PAYLOADS):
        runs[detail.row.id] = _source_run(detail)
    missing = needed - runs.keys()
    if missing:
        raise errors.SourceRunNotFound(f"There is no run {min(missing)}.")
    return runs


def _fetch(
    workspace_id: UUID, run_ids: Sequence[UUID], payloads: Collection[Payload]
) -> list[RunDetail]:
    details: list[RunDetail] = []
    for start in range(0, len(run_ids), _BATCH_SIZE):
        batch = run_ids[start : start + _BATCH_SIZE]
        query = RunQuery(run_ids=batch)
        # A run id is one run per project; the newest run comes first and wins.
        page = run_store.query(workspace_id, query, limit=len(batch) * 2, payloads=payloads)
        details += reversed(page.runs)
    return details


def _source_run(detail: RunDetail) -> SourceRun:
    row = detail.row
    inputs, outputs = detail.json(Payload.INPUTS), detail.json(Payload.OUTPUTS)
    return SourceRun(
        project_id=row.project_id,
        trace_id=row.trace_id,
        start_time=row.start_time,
        attachments=row.attachments,
        inputs=msgspec.Raw(inputs or b""),
        outputs=msgspec.Raw(outputs or b""),
        extra=detail.value(Payload.EXTRA) or {},
    )


def find_used_runs(workspace_id: UUID, run_ids: Collection[UUID]) -> set[UUID]:
    """Return the ids of the runs that current examples were made from."""
    rows = ExampleRevision.objects.for_workspace(workspace_id).current()
    rows = rows.filter(source_run_id__in=run_ids, dataset__deleted_at=None)
    return {run_id for run_id in rows.values_list("source_run_id", flat=True) if run_id}
