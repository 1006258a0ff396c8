from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import factory
from django.db import connection
from factory.django import DjangoModelFactory

from apps.core.ids import uuid7
from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from apps.organizations.models import Workspace
from apps.trace_store import RunDetail, run_store
from apps.trace_store.dotted_order import format_segment
from apps.tracing.models import Project
from tests.factories.organizations import WorkspaceFactory

BOUNDARY = "8d1f0c7a"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


class ProjectFactory(DjangoModelFactory[Project]):
    class Meta:
        model = Project

    workspace = factory.SubFactory(WorkspaceFactory)
    name = factory.Sequence(lambda n: f"Project {n}")

    @classmethod
    def _create(cls, model_class: type[Project], *args: Any, **fields: Any) -> Project:
        return model_class.unscoped.create(*args, **fields)


def wire_run(parent: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A finished run as clients post it; it took one second, ten seconds ago."""
    start = fields.pop("start", None) or datetime.now(UTC) - timedelta(seconds=10)
    run_id = str(fields.pop("id", None) or uuid7())
    own = format_segment(start, UUID(run_id))
    return {
        "id": run_id,
        "trace_id": parent["trace_id"] if parent else run_id,
        "parent_run_id": parent["id"] if parent else None,
        "dotted_order": f"{parent['dotted_order']}.{own}" if parent else own,
        "session_name": parent["session_name"] if parent else "default",
        "name": "step",
        "run_type": "chain",
        "start_time": start.isoformat(),
        "end_time": (start + timedelta(seconds=1)).isoformat(),
        "inputs": {"question": "why?"},
        "outputs": {"answer": "because"},
    } | fields


def start_fields(run: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a client posts when the run starts."""
    late = ("end_time", "outputs", "error", "events")
    return {name: value for name, value in run.items() if name not in late}


def end_fields(run: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a client patches when the run ends."""
    identity = ("id", "trace_id", "dotted_order", "parent_run_id", "session_name")
    late = ("end_time", "outputs", "error", "events")
    return {name: run[name] for name in (*identity, *late) if name in run}


def ingest(workspace: Workspace, *runs: dict[str, Any]) -> None:
    body = json.dumps({"post": runs}).encode()
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(body))


def stored_run(workspace: Workspace | None = None, **fields: Any) -> UUID:
    """The id of a finished run that is stored."""
    run = wire_run(**fields)
    ingest(workspace or WorkspaceFactory(), run)
    return UUID(run["id"])


def read_run(workspace: Workspace, run_id: str | UUID) -> RunDetail:
    run = run_store.get(workspace.pk, UUID(str(run_id)))
    assert run is not None
    return run


def count_stored_runs() -> int:
    """Return the number of stored runs of all workspaces."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trace_store_run")
        count: int = cursor.fetchone()[0]
        return count


def multipart_body(*parts: tuple[str, Any] | tuple[str, Any, str]) -> bytes:
    """A multipart body of (name, content) or (name, content, headers); JSON unless it is bytes."""
    out = []
    for name, content, *headers in parts:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        head = headers[0] if headers else "Content-Type: application/json"
        disposition = name if name.startswith("form-data") else f'form-data; name="{name}"'
        out.append(
            f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n{head}\r\n\r\n".encode()
            + data
            + b"\r\n"
        )
    return b"".join(out) + f"--{BOUNDARY}--\r\n".encode()


def ingest_multipart_run(workspace: Workspace, files: dict[str, bytes]) -> UUID:
    """The id of a finished, stored run with attachments by name."""
    run = wire_run()
    parts: list[Any] = [(f"post.{run['id']}", run)]
    for name, content in files.items():
        parts.append((f"attachment.{run['id']}.{name}", content, "Content-Type: text/plain"))
    body = multipart_body(*parts)
    ingest_runs.ingest(workspace.pk, decoders.decode_multipart(body, BOUNDARY.encode()))
    return UUID(run["id"])
