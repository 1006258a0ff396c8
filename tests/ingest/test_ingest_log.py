"""GET /v1/platform/ingest-ledger: what came in, hour by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.core.ids import uuid7
from apps.tracing.models import Project
from apps.tracing.services import maintenance
from tests.factories.tracing import begun, ended, form, ingest, rows, wire_run

PATH = "/v1/platform/ingest-ledger"


def hours(api, **query):
    return api.get(PATH, **query).json()["hours"]


def test_anonymous_request_is_rejected(client, db):
    assert client.get(PATH).status_code == 401


def test_another_workspace_sees_nothing_of_it(api, api_of, stranger):
    api.post("/runs/batch", {"post": [wire_run(), wire_run(name=7)]})

    assert hours(api_of(stranger)) == []


def test_log_counts_stored_merged_and_rejected_runs(api, workspace):
    new, known = wire_run(session_name="p"), wire_run(session_name="p")
    ingest(workspace, begun(known))
    bad = wire_run(session_name="p", run_type="guess")

    api.post("/runs/batch", {"post": [new, bad], "patch": [ended(known)]})

    of_project, of_none = hours(api)
    assert of_project == {
        "hour": of_project["hour"],
        "project_id": str(Project.objects.for_workspace(workspace).get(name="p").pk),
        "project_name": "p",
        "received": 3,
        "stored": 2,
        "traces": 2,
        "merged": 1,
        "refused": 0,
        "reasons": {},
        "removed": 0,
    }
    assert (of_none["project_id"], of_none["received"]) == (None, 1)
    assert of_none["reasons"] == {"bad_run_type": 1}


def test_rejected_request_is_counted(api):
    run = wire_run()
    api.post("/runs/batch", "{")
    api.post("/runs", {"name": 7})
    api.multipart(b"nothing")
    api.multipart(form((f"post.{run['id']}", run | {"trace_id": str(uuid7())})))
    api.multipart(form((f"post.{run['id']}", run | {"session_id": str(uuid7())})))
    api.multipart(form((f"post.{run['id']}", b"{}", "Content-Type: application/json; length=9")))

    (hour,) = hours(api)

    assert hour["reasons"] == {
        "bad_body": 2,
        "invalid": 1,
        "misplaced": 1,
        "no_project": 1,
        "bad_length": 1,
    }
    assert rows() == 0


def test_future_run_is_rejected_and_counted_for_its_project(api):
    api.post("/runs/batch", {"post": [wire_run(start=datetime.now(UTC) + timedelta(days=9))]})

    (hour,) = hours(api)

    assert (hour["project_name"], hour["reasons"]) == ("default", {"in_the_future": 1})


def test_log_reports_deferred_operations(api):
    api.patch(f"/runs/{uuid7()}", {"outputs": {}})

    assert api.get(PATH).json() == {"hours": [], "waiting": 1}


def test_hours_are_chosen_and_paged(api, workspace, time_machine):
    noon = datetime.now(UTC).replace(minute=30) - timedelta(days=1)
    for hour in range(3):
        time_machine.move_to(noon + timedelta(hours=hour), tick=False)
        for name in ("a", "b"):
            ingest(workspace, wire_run(session_name=name, start=noon))
    project = Project.objects.for_workspace(workspace).get(name="a")
    since = (noon + timedelta(hours=1)).isoformat()

    everything = hours(api, start_time=noon.isoformat())
    assert len(everything) == 6
    assert [one["hour"] for one in everything] == sorted(
        (one["hour"] for one in everything), reverse=True
    )
    assert hours(api, start_time=noon.isoformat(), limit=2, offset=2) == everything[2:4]
    assert len(hours(api, start_time=since)) == 4
    assert len(hours(api, start_time=since, project_id=project.pk)) == 2
    assert len(hours(api, start_time=noon.isoformat(), end_time=since)) == 4


def test_compaction_leaves_the_sums(api, workspace, time_machine):
    past = datetime.now(UTC) - timedelta(hours=3)
    for _ in range(3):
        ingest(workspace, wire_run())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tracing_runcount SET hour = date_trunc('hour', %s)", [past])
    before = hours(api)

    maintenance.compact_run_counts()

    assert hours(api) == before
    assert before[0]["stored"] == 3


def test_a_long_page_costs_no_more_statements(api, workspace):
    ingest(workspace, wire_run(session_name="0"))
    hours(api)
    with CaptureQueriesContext(connection) as few:
        hours(api)
    for number in range(8):
        ingest(workspace, wire_run(session_name=str(number)))
    hours(api)

    with CaptureQueriesContext(connection) as many:
        assert len(hours(api)) == 8

    assert len(many) == len(few)


def test_invalid_query_parameters_are_rejected(api):
    for query in ({"project_id": "x"}, {"start_time": "soon"}, {"limit": 0}, {"offset": -1}):
        assert api.get(PATH, **query).status_code == 422
