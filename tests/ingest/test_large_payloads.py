"""Payloads that are too large for a row are in object storage, transparently for readers."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.core import objects
from apps.core.errors import Unavailable
from apps.trace_store import Payload
from apps.tracing.models import Project
from apps.tracing.services import deletion, expiry, maintenance
from tests.factories.tracing import begun, ended, form, ingest, read, rows, wire_run

NOISE = random.Random(4).randbytes(30_000).hex()  # halves when packed
LARGE = {"text": NOISE}


@pytest.fixture(autouse=True)
def small_rows(settings):
    settings.LARGE_PAYLOAD_BYTES = 10_000


def kept(settings):
    folder = Path(settings.STORAGES["default"]["OPTIONS"]["location"])
    return sorted(file for file in folder.rglob("*") if file.is_file())


def test_large_payload_is_read_unchanged(api, workspace, settings):
    run = wire_run(outputs=LARGE)

    response = api.multipart(form((f"post.{run['id']}", run)))

    assert response.status_code == 202
    assert read(workspace, run["id"]).value(Payload.OUTPUTS) == LARGE
    assert api.get(f"/runs/{run['id']}").json()["outputs"] == LARGE
    (file,) = kept(settings)
    assert file.stat().st_size < len(NOISE)


def test_payload_that_compresses_well_stays_in_the_row(workspace, settings):
    run = wire_run(outputs={"text": "again " * 20_000})

    ingest(workspace, run)

    assert kept(settings) == []
    assert read(workspace, run["id"]).value(Payload.OUTPUTS) == run["outputs"]


def test_an_update_with_a_large_payload_that_waited_for_its_run(api, workspace):
    run = wire_run(outputs=LARGE)
    api.patch(f"/runs/{run['id']}", {"outputs": LARGE, "end_time": run["end_time"]})

    api.post("/runs", begun(run))

    assert read(workspace, run["id"]).value(Payload.OUTPUTS) == LARGE


def test_a_repeat_keeps_one_object(api, settings):
    run = wire_run(outputs=LARGE)

    for _ in range(2):
        api.post("/runs/batch", {"post": [begun(run)], "patch": [ended(run)]})

    assert len(kept(settings)) == 1


def test_the_objects_of_a_deleted_project_go_with_it(api, workspace, settings):
    gone, stays = (wire_run(outputs=LARGE, session_name=name) for name in ("gone", "stays"))
    api.multipart(form((f"post.{gone['id']}", gone), (f"attachment.{gone['id']}.a", b"file")))
    ingest(workspace, stays)
    project = Project.objects.for_workspace(workspace).get(name="gone")

    api.delete(f"/sessions/{project.pk}")
    maintenance.remove_deleted_projects()
    deletion.remove_pending_files()

    assert rows() == 1
    (file,) = kept(settings)
    assert stays["id"] in str(file)


def test_the_objects_of_a_day_that_expires_go_with_it(workspace, settings):
    ingest(workspace, wire_run(outputs=LARGE))
    assert kept(settings)

    expiry.expire(datetime.now(UTC) + timedelta(days=500))

    assert rows() == 0
    assert kept(settings) == []


def test_nothing_is_stored_when_object_storage_fails(api, monkeypatch):
    def fail(*_):
        raise Unavailable("Object storage does not answer.")

    monkeypatch.setattr(objects, "put", fail)

    response = api.post("/runs/batch", {"post": [wire_run(outputs=LARGE), wire_run()]})

    assert response.status_code == 503
    assert response["Retry-After"] == "1"
    assert rows() == 0


def test_an_object_that_was_lost_does_not_keep_its_run_from_being_read(api, workspace, settings):
    run = wire_run(outputs=LARGE)
    ingest(workspace, run)
    (file,) = kept(settings)
    file.unlink()

    response = api.get(f"/runs/{run['id']}")

    assert response.status_code == 200
    assert response.json()["outputs"] is None
    assert response.json()["inputs"] == run["inputs"]
