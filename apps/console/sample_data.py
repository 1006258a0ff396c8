"""Sample data: recorded traces of the sample agent, in a project of their own.

`sample_traces.json` has the runs as the LangSmith SDK sent them: plain answers, tools, a subgraph,
a thread of three turns, a mail that waits for approval, a rejected one, and an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from apps.core import errors
from apps.core.json import dumps_text
from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from apps.trace_store.dotted_order import format_segment
from apps.tracing import services
from apps.tracing.models import Project

PROJECT_NAME = "sample-concierge"
_MARK = {"slipway_sample": True}
"""The metadata of the project that tells it from one of the same name."""
_FILE = Path(__file__).with_name("sample_traces.json")
_AGE = timedelta(minutes=2)
"""How long ago the newest trace seems to have ended."""


class SampleNameTaken(errors.Conflict):
    code = "sample_name_taken"
    detail = f"Another project is named `{PROJECT_NAME}`."


def find_sample_project(workspace_id: UUID) -> Project | None:
    """Return the project of the sample data, if it is loaded."""
    projects = Project.objects.for_workspace(workspace_id).present()
    return projects.filter(name=PROJECT_NAME, extra__metadata=_MARK).first()


def is_sample(project: Project) -> bool:
    metadata = (project.extra or {}).get("metadata")
    return project.name == PROJECT_NAME and bool(metadata == _MARK)


def load_sample_data(workspace_id: UUID, now: datetime | None = None) -> Project:
    """Store the sample traces and return their project; no effect if they are loaded.

    Their times end shortly before `now`. Raises `SampleNameTaken`.
    """
    if (project := find_sample_project(workspace_id)) is not None:
        return project
    projects = Project.objects.for_workspace(workspace_id).present()
    if projects.filter(name=PROJECT_NAME).exists():
        raise SampleNameTaken
    project = services.ensure_project(workspace_id, PROJECT_NAME)
    project.extra = {"metadata": _MARK}
    project.save(update_fields=["extra"])
    runs = list(_shift_runs(json.loads(_FILE.read_text()), project, now or datetime.now(UTC)))
    # The rest of the platform sees what a client would have sent.
    body = dumps_text({"post": runs}).encode()
    ingest_runs.ingest(workspace_id, decoders.decode_batch(body))
    return project


def remove_sample_data(workspace_id: UUID) -> None:
    """Delete the project of the sample data with its traces; no effect without it."""
    if (project := find_sample_project(workspace_id)) is not None:
        services.delete_project(project=project)


def _shift_runs(
    runs: Sequence[Mapping[str, Any]], project: Project, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield the runs with ids of the project and recent times; parents stand before children."""
    newest = max(_parse(run["end_time"]) for run in runs)
    delay = now - _AGE - newest
    orders: dict[str, str] = {}
    for run in runs:
        run_id = uuid5(project.pk, run["id"])
        start = _parse(run["start_time"]) + delay
        parent = run.get("parent_run_id")
        segment = format_segment(start, run_id)
        orders[run["id"]] = f"{orders[parent]}.{segment}" if parent else segment
        events = [
            {**event, "time": (_parse(event["time"]) + delay).isoformat()}
            for event in run.get("events") or ()
        ]
        yield {
            **run,
            "id": str(run_id),
            "trace_id": str(uuid5(project.pk, run["trace_id"])),
            "parent_run_id": str(uuid5(project.pk, parent)) if parent else None,
            "dotted_order": orders[run["id"]],
            "start_time": start.isoformat(),
            "end_time": (_parse(run["end_time"]) + delay).isoformat(),
            "events": events,
            "session_name": PROJECT_NAME,
        }


def _parse(time: str) -> datetime:
    value = datetime.fromisoformat(time)
    return value if value.tzinfo else value.replace(tzinfo=UTC)
