"""GET /v1/platform/ingest-log: received and stored runs by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.core.ids import uuid7
from apps.ingest.services import unread_usage
from apps.trace_store import run_store
from apps.tracing.models import Project
from tests.factories.tracing import (
    count_stored_runs,
    end_fields,
    ingest,
    multipart_body,
    start_fields,
    wire_run,
)

PATH = "/v1/platform/ingest-log"
LAST_TIME = "9999-12-31T23:59:59.999999Z"


def read_hours(api, **query):
    return api.get(PATH, **query).json()["hours"]


def test_anonymous_request_is_rejected(client, db):
    assert client.get(PATH).status_code == 401


def test_the_log_of_another_workspace_is_hidden(api, make_api, other_workspace):
    api.post("/runs/batch", {"post": [wire_run(), wire_run(name=7)]})

    assert read_hours(make_api(other_workspace)) == []


def test_log_counts_stored_merged_and_rejected_runs(api, workspace):
    new_run, known_run = wire_run(session_name="p"), wire_run(session_name="p")
    ingest(workspace, start_fields(known_run))
    invalid_run = wire_run(session_name="p", run_type="guess")

    api.post("/runs/batch", {"post": [new_run, invalid_run], "patch": [end_fields(known_run)]})

    project_hour, unassigned_hour = read_hours(api)
    assert project_hour == {
        "hour": project_hour["hour"],
        "project_id": str(Project.objects.for_workspace(workspace).get(name="p").pk),
        "project_name": "p",
        "received": 3,
        "stored": 2,
        "traces": 2,
        "merged": 1,
        "refused": 0,
        "reasons": {},
        "unread_usage": {},
        "removed": 0,
    }
    assert (unassigned_hour["project_id"], unassigned_hour["received"]) == (None, 1)
    assert unassigned_hour["reasons"] == {"bad_run_type": 1}


def test_rejected_request_is_counted(api):
    run = wire_run()
    api.post("/runs/batch", "{")
    api.post("/runs", {"name": 7})
    api.multipart(b"nothing")
    api.multipart(multipart_body((f"post.{run['id']}", run | {"trace_id": str(uuid7())})))
    api.multipart(multipart_body((f"post.{run['id']}", run | {"session_id": str(uuid7())})))
    api.multipart(
        multipart_body((f"post.{run['id']}", b"{}", "Content-Type: application/json; length=9"))
    )

    (hour,) = read_hours(api)

    assert hour["reasons"] == {
        "bad_body": 2,
        "invalid": 1,
        "misplaced": 1,
        "no_project": 1,
        "bad_length": 1,
    }
    assert count_stored_runs() == 0


def test_unread_token_counts_are_counted_by_name(api, make_api, workspace, other_workspace):
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "dream_tokens": 7}
    run = wire_run(session_name="p", run_type="llm", outputs={"usage": usage})
    known = wire_run(session_name="p", run_type="llm", outputs={"usage": {"prompt_tokens": 5}})
    api.post("/runs/batch", {"post": [run, known]})
    api.post(
        "/runs/batch",
        {"post": [wire_run(session_name="p", run_type="llm", outputs={"usage": usage})]},
    )

    unread_usage.flush()
    unread_usage.flush()

    (hour,) = read_hours(api)
    assert hour["unread_usage"] == {"dream_tokens": 2}
    assert (hour["stored"], hour["refused"], hour["received"], hour["reasons"]) == (3, 0, 3, {})
    assert read_hours(make_api(other_workspace)) == []


def test_unread_names_have_a_limit(api, workspace, monkeypatch):
    monkeypatch.setattr(unread_usage, "MAX_NAMES", 2)
    usage = {f"kind_{number}_tokens": 1 for number in range(4)} | {"prompt_tokens": 1}
    api.post("/runs/batch", {"post": [wire_run(run_type="llm", outputs={"usage": usage})]})

    unread_usage.flush()

    (hour,) = read_hours(api)
    assert hour["unread_usage"] == {"kind_0_tokens": 1, "kind_1_tokens": 1, "other": 2}


def test_future_run_is_rejected_and_counted_for_its_project(api):
    api.post("/runs/batch", {"post": [wire_run(start=datetime.now(UTC) + timedelta(days=9))]})

    (hour,) = read_hours(api)

    assert (hour["project_name"], hour["reasons"]) == ("default", {"in_the_future": 1})


def test_log_reports_deferred_operations(api):
    api.patch(f"/runs/{uuid7()}", {"outputs": {}})

    assert api.get(PATH).json() == {"hours": [], "waiting": 1}


def test_hours_are_filtered_and_paged(api, workspace, time_machine):
    noon = datetime.now(UTC).replace(minute=30) - timedelta(days=1)
    for hour in range(3):
        time_machine.move_to(noon + timedelta(hours=hour), tick=False)
        for name in ("a", "b"):
            ingest(workspace, wire_run(session_name=name, start=noon))
    project = Project.objects.for_workspace(workspace).get(name="a")
    since = (noon + timedelta(hours=1)).isoformat()

    all_hours = read_hours(api, start_time=noon.isoformat())
    assert len(all_hours) == 6
    assert [row["hour"] for row in all_hours] == sorted(
        (row["hour"] for row in all_hours), reverse=True
    )
    assert read_hours(api, start_time=noon.isoformat(), limit=2, offset=2) == all_hours[2:4]
    assert len(read_hours(api, start_time=since)) == 4
    assert len(read_hours(api, start_time=since, project_id=project.pk)) == 2
    assert len(read_hours(api, start_time=noon.isoformat(), end_time=since)) == 4


def test_compaction_keeps_the_counts(api, workspace, time_machine):
    past = datetime.now(UTC) - timedelta(hours=3)
    for _ in range(3):
        ingest(workspace, wire_run())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE trace_store_runcount SET hour = date_trunc('hour', %s)", [past])
    before = read_hours(api)

    run_store.compact_run_counts()

    assert read_hours(api) == before
    assert before[0]["stored"] == 3


@pytest.mark.usefixtures("unexpired_caches")
def test_the_number_of_queries_does_not_grow_with_the_page(api, workspace):
    ingest(workspace, wire_run(session_name="0"))
    read_hours(api)
    with CaptureQueriesContext(connection) as before:
        read_hours(api)
    for number in range(8):
        ingest(workspace, wire_run(session_name=str(number)))
    read_hours(api)

    with CaptureQueriesContext(connection) as after:
        assert len(read_hours(api)) == 8

    assert len(after) == len(before)


def test_invalid_query_parameters_are_rejected(api):
    for query in ({"project_id": "x"}, {"start_time": "soon"}, {"limit": 0}, {"offset": -1}):
        assert api.get(PATH, **query).status_code == 422


@pytest.mark.parametrize("query", [{"end_time": "0001-01-01T00:00:00Z"}, {"end_time": LAST_TIME}])
def test_the_first_and_the_last_time_are_no_server_error(api, query):
    assert api.get(PATH, **query).status_code == 200
