"""Payloads too large for a row are stored in object storage and read transparently."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.core import object_storage
from apps.core.errors import Unavailable
from apps.trace_store import Payload, run_store
from apps.tracing.models import Project
from apps.tracing.services import deletion, retention
from tests.factories.tracing import (
    count_stored_runs,
    end_fields,
    ingest,
    multipart_body,
    read_run,
    start_fields,
    wire_run,
)

NOISE = random.Random(4).randbytes(30_000).hex()  # compresses to half its size
LARGE = {"text": NOISE}


@pytest.fixture(autouse=True)
def limit_row_size(settings):
    settings.LARGE_PAYLOAD_BYTES = 10_000


def list_objects(settings):
    folder = Path(settings.STORAGES["default"]["OPTIONS"]["location"])
    return sorted(file for file in folder.rglob("*") if file.is_file())


def test_large_payload_is_read_unchanged(api, workspace, settings):
    run = wire_run(outputs=LARGE)

    response = api.multipart(multipart_body((f"post.{run['id']}", run)))

    assert response.status_code == 202
    assert read_run(workspace, run["id"]).value(Payload.OUTPUTS) == LARGE
    assert api.get(f"/runs/{run['id']}").json()["outputs"] == LARGE
    (file,) = list_objects(settings)
    assert file.stat().st_size < len(NOISE)


def test_payload_that_compresses_well_stays_in_the_row(workspace, settings):
    run = wire_run(outputs={"text": "again " * 20_000})

    ingest(workspace, run)

    assert list_objects(settings) == []
    assert read_run(workspace, run["id"]).value(Payload.OUTPUTS) == run["outputs"]


def test_a_deferred_update_with_a_large_payload_is_applied(api, workspace):
    run = wire_run(outputs=LARGE)
    api.patch(f"/runs/{run['id']}", {"outputs": LARGE, "end_time": run["end_time"]})

    api.post("/runs", start_fields(run))

    assert read_run(workspace, run["id"]).value(Payload.OUTPUTS) == LARGE


def test_a_repeated_payload_is_stored_once(api, settings):
    run = wire_run(outputs=LARGE)

    for _ in range(2):
        api.post("/runs/batch", {"post": [start_fields(run)], "patch": [end_fields(run)]})

    assert len(list_objects(settings)) == 1


def test_the_objects_of_a_deleted_project_are_deleted(api, workspace, settings):
    deleted_run, kept_run = (
        wire_run(outputs=LARGE, session_name=name) for name in ("gone", "stays")
    )
    api.multipart(
        multipart_body(
            (f"post.{deleted_run['id']}", deleted_run),
            (f"attachment.{deleted_run['id']}.a", b"file"),
        )
    )
    ingest(workspace, kept_run)
    project = Project.objects.for_workspace(workspace).get(name="gone")

    api.delete(f"/sessions/{project.pk}")
    deletion.remove_deleted_projects()
    run_store.delete_pending_files()

    assert count_stored_runs() == 1
    (file,) = list_objects(settings)
    assert kept_run["id"] in str(file)


def test_the_objects_of_an_expired_day_are_deleted(workspace, settings):
    ingest(workspace, wire_run(outputs=LARGE))
    assert list_objects(settings)

    retention.expire_traces(datetime.now(UTC) + timedelta(days=500))

    assert count_stored_runs() == 0
    assert list_objects(settings) == []


def test_nothing_is_stored_when_object_storage_fails(api, monkeypatch):
    def fail(*_):
        raise Unavailable("Object storage does not answer.")

    monkeypatch.setattr(object_storage, "put", fail)

    response = api.post("/runs/batch", {"post": [wire_run(outputs=LARGE), wire_run()]})

    assert response.status_code == 503
    assert response["Retry-After"] == "1"
    assert count_stored_runs() == 0


def test_a_run_with_a_lost_object_is_readable(api, workspace, settings):
    run = wire_run(outputs=LARGE)
    ingest(workspace, run)
    (file,) = list_objects(settings)
    file.unlink()

    response = api.get(f"/runs/{run['id']}")

    assert response.status_code == 200
    assert response.json()["outputs"] is None
    assert response.json()["inputs"] == run["inputs"]
