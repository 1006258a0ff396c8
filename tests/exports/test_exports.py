"""Bulk exports: what is written, where, and what becomes of one that is stopped or killed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from apps.core import objects
from apps.exports import runner, services
from apps.exports.errors import NotWritten
from apps.exports.models import BulkExport, Destination, ExportPart, Status
from tests.exports.conftest import KEYS, table
from tests.factories.tracing import ingest, wire_run
from tests.tracing.conftest import Api, key_for

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def run(hours=12, **fields):
    return wire_run(start=DAY + timedelta(hours=hours), session_name="exported", **fields)


@pytest.fixture
def destination(api):
    asked = {"destination_type": "platform", "display_name": "here", "config": {"prefix": "/pre/"}}
    return api.post("/bulk-exports/destinations", asked).json()["id"]


@pytest.fixture
def ask(api, project, destination):
    """Asks for an export of two days."""

    def asked(**more):
        body = {
            "bulk_export_destination_id": destination,
            "session_id": str(project.pk),
            "start_time": DAY.isoformat(),
            "end_time": (DAY + timedelta(days=2)).isoformat(),
        }
        answer = api.post("/api/v1/bulk-exports", body | more)
        assert answer.status_code == 200, answer.content
        return answer.json()

    return asked


def parts(api, export):
    return api.get(f"/bulk-exports/{export['id']}/runs").json()


def rows_of(api, export):
    """All rows of an export to the platform's own storage."""
    files = [
        path for part in parts(api, export) for path in part["metadata"]["result"]["exported_files"]
    ]
    return [row for path in files for row in table(objects.get(path))]


# What is written


def test_runs_are_exported_by_day_with_what_they_hold(api, workspace, ask):
    usage = {"input_tokens": 3, "output_tokens": 4, "total_cost": "0.000001"}
    root = run(
        hours=1, run_type="llm", tags=["a", "b"], outputs={"usage_metadata": usage},
        extra={"metadata": {"customer": "c-1"}}, error="It broke.",
    )  # fmt: skip
    ingest(workspace, root, run(hours=30, name="next day"), run(hours=60, name="too late"))

    export = ask()
    assert runner.work_for(seconds=60) is False

    shown = api.get(f"/bulk-exports/{export['id']}").json()
    assert (shown["status"], shown["progress"]) == (
        "Completed",
        {"parts_done": 2, "parts": 2, "rows_written": 2},
    )
    first, second = parts(api, export)
    workspace_id, project_id = str(workspace.pk), shown["session_id"]
    folder = f"pre/export_id={export['id']}/tenant_id={workspace_id}/session_id={project_id}/runs"
    assert first["metadata"]["result"]["exported_files"] == [
        f"exports/{workspace_id}/{folder}/year=2026/month=3/day=1/part-00000.parquet"
    ]
    assert second["metadata"]["result"]["rows_written"] == 1
    row, other = rows_of(api, export)
    assert other["name"] == "next day"
    assert (row["id"], row["run_type"], row["status"]) == (root["id"], "llm", "error")
    assert (row["error"], row["is_root"], row["latency"]) == ("It broke.", True, 1.0)
    assert row["start_time"] == DAY + timedelta(hours=1)
    assert (row["prompt_tokens"], row["total_tokens"]) == (3, 7)
    assert row["total_cost"] == Decimal("0.000001")
    assert json.loads(row["inputs"]) == {"question": "why?"}
    assert json.loads(row["tags"]) == ["a", "b"]
    assert json.loads(row["extra"])["metadata"] == {"customer": "c-1"}


def test_a_filter_and_chosen_fields(api, workspace, ask):
    ingest(workspace, run(name="kept"), run(name="left out"))

    export = ask(filter='eq(name, "kept")', export_fields=["name", "outputs"], compression="gzip")
    runner.work_for(seconds=60)

    assert rows_of(api, export) == [{"name": "kept", "outputs": '{"answer": "because"}'}]


def test_a_file_ends_at_its_size_and_the_next_goes_on(api, workspace, ask, monkeypatch):
    monkeypatch.setattr(runner, "PAGE", 2)
    monkeypatch.setattr(runner, "ROWS_A_FILE", 4)
    made = [run(hours=1 + number / 10) for number in range(10)]
    ingest(workspace, *made)

    export = ask()
    runner.work_for(seconds=60)

    files = parts(api, export)[0]["metadata"]["result"]["exported_files"]
    assert [path.rpartition("/")[2] for path in files] == [
        f"part-0000{n}.parquet" for n in range(3)
    ]
    assert [row["id"] for row in rows_of(api, export)] == [one["id"] for one in made]


def test_an_export_of_nothing_completes_without_files(api, ask):
    export = ask()
    runner.work_for(seconds=60)

    assert api.get(f"/bulk-exports/{export['id']}").json()["status"] == "Completed"
    assert rows_of(api, export) == []


def test_files_on_the_platform_are_fetched_by_signed_addresses(
    api, client, workspace, ask, settings
):
    ingest(workspace, run())
    export = ask()
    runner.work_for(seconds=60)

    [url] = parts(api, export)[0]["metadata"]["result"]["download_urls"]

    answer = client.get(url.removeprefix(settings.BASE_URL))
    assert answer.status_code == 200
    assert len(table(b"".join(answer.streaming_content))) == 1


# Stopping and going on


def test_a_worker_killed_between_file_and_row_loses_and_doubles_nothing(
    api, workspace, ask, monkeypatch
):
    monkeypatch.setattr(runner, "PAGE", 1)
    monkeypatch.setattr(runner, "ROWS_A_FILE", 2)
    made = [run(hours=1 + number / 10) for number in range(5)]
    ingest(workspace, *made)
    export = ask()
    put = objects.put
    calls = []

    def killed_after_the_second(path, content):
        put(path, content)
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(objects, "put", killed_after_the_second)
    with pytest.raises(KeyboardInterrupt):
        runner.work_for(seconds=60)
    assert runner.work_for(seconds=60) is False  # it is another's, until its lease is over
    assert len(rows_of(api, export)) == 2

    ExportPart.unscoped.filter(export=export["id"]).update(busy_until=DAY)
    runner.work_for(seconds=60)

    assert [row["id"] for row in rows_of(api, export)] == [one["id"] for one in made]


def test_a_destination_that_refuses_is_tried_again_later(api, workspace, ask, monkeypatch):
    ingest(workspace, run())
    export = ask()

    def refuse(*_):
        raise NotWritten("AccessDenied")

    monkeypatch.setattr("apps.exports.writers._Platform.put", refuse)
    assert runner.work_for(seconds=60) is False

    [first, _] = parts(api, export)
    assert (first["status"], first["retry_number"]) == ("Running", 1)
    assert first["errors"]["0"]["detail"] == "AccessDenied"
    monkeypatch.undo()


def test_one_that_fails_for_good_says_so(api, workspace, ask, monkeypatch):
    monkeypatch.setattr(runner, "MOST_ATTEMPTS", 1)
    ingest(workspace, run())
    export = ask()

    def refuse(*_):
        raise NotWritten("AccessDenied")

    monkeypatch.setattr("apps.exports.writers._Platform.put", refuse)
    runner.work_for(seconds=60)

    assert api.get(f"/bulk-exports/{export['id']}").json()["status"] == "Failed"


def test_a_cancelled_export_writes_no_more(api, workspace, ask):
    ingest(workspace, run())
    export = ask()

    answer = api.patch(f"/bulk-exports/{export['id']}", {"status": "Cancelled"})

    assert (answer.status_code, answer.json()["status"]) == (200, "Cancelled")
    runner.work_for(seconds=60)
    assert rows_of(api, export) == []
    assert {part["status"] for part in parts(api, export)} == {"Cancelled"}
    again = api.patch(f"/bulk-exports/{export['id']}", {"status": "Cancelled"})
    assert again.status_code == 200


def test_one_that_has_ended_cannot_be_cancelled(api, ask):
    export = ask()
    runner.work_for(seconds=60)

    answer = api.patch(f"/bulk-exports/{export['id']}", {"status": "Cancelled"})

    assert (answer.status_code, answer.json()["code"]) == (409, "export_over")


# Schedules


def test_a_schedule_makes_an_export_of_each_window_ten_minutes_after_it(api, workspace, ask):
    ingest(workspace, run(hours=1), run(hours=7))
    schedule = ask(end_time=None, interval_hours=6)

    services.spawn_due(DAY + timedelta(hours=6, minutes=9))
    assert BulkExport.unscoped.filter(source=schedule["id"]).count() == 0
    services.spawn_due(DAY + timedelta(hours=12, minutes=10))
    services.spawn_due(DAY + timedelta(hours=12, minutes=10))

    made = BulkExport.unscoped.filter(source=schedule["id"]).order_by("start_time")
    assert [(one.start_time - DAY, one.end_time - DAY) for one in made] == [
        (timedelta(hours=0), timedelta(hours=6)),
        (timedelta(hours=6), timedelta(hours=12)),
    ]
    runner.work_for(seconds=60)
    assert [len(rows_of(api, {"id": one.pk})) for one in made] == [1, 1]
    assert api.get(f"/bulk-exports/{schedule['id']}").json()["status"] == "Running"


def test_a_cancelled_schedule_makes_no_more(api, ask):
    schedule = ask(end_time=None, interval_hours=1)
    api.patch(f"/bulk-exports/{schedule['id']}", {"status": "Cancelled"})

    assert services.spawn_due() == 0


def test_a_span_is_cut_at_midnights():
    begin = DAY + timedelta(hours=20)

    assert [*services.days(begin, begin + timedelta(hours=30))] == [
        (begin, DAY + timedelta(days=1)),
        (DAY + timedelta(days=1), DAY + timedelta(days=2)),
        (DAY + timedelta(days=2), DAY + timedelta(days=2, hours=2)),
    ]


# Buckets


def bucket(url, **more):
    config = {"bucket_name": "exports", "prefix": "pre", "region": "us-east-1", "endpoint_url": url}
    return {
        "destination_type": "s3",
        "display_name": "b",
        "config": config | more,
        "credentials": KEYS,
    }


def test_an_export_to_a_bucket(api, workspace, project, s3, s3_url):
    made = api.post("/bulk-exports/destinations", bucket(s3_url)).json()
    ingest(workspace, run())
    body = {
        "bulk_export_destination_id": made["id"], "session_id": str(project.pk),
        "start_time": DAY.isoformat(), "end_time": (DAY + timedelta(days=1)).isoformat(),
        "format_version": "v2_beta",
    }  # fmt: skip

    export = api.post("/bulk-exports", body).json()
    runner.work_for(seconds=60)

    [part] = parts(api, export)
    [found] = s3.list_objects_v2(Bucket="exports")["Contents"]
    assert part["metadata"]["result"]["exported_files"] == [f"exports/{found['Key']}"]
    assert "/resource=runs/year=2026/month=3/day=1/" in found["Key"]
    assert part["metadata"]["result"]["download_urls"] is None
    assert len(table(s3.get_object(Bucket="exports", Key=found["Key"])["Body"].read())) == 1


def test_credentials_are_kept_encrypted_and_never_shown(api, s3, s3_url):
    made = api.post("/bulk-exports/destinations", bucket(s3_url)).json()

    assert made["credentials_keys"] == ["access_key_id", "secret_access_key"]
    assert "secret" not in json.dumps(made["config"])
    kept = Destination.unscoped.get(pk=made["id"])
    assert b"secret" not in bytes(kept.secret)
    assert kept.credentials() == KEYS


def test_a_bucket_that_cannot_be_written_is_refused(api, s3, s3_url):
    answer = api.post("/bulk-exports/destinations", bucket(s3_url, bucket_name="absent"))

    assert (answer.status_code, answer.json()["code"]) == (400, "destination_refused")
    assert Destination.unscoped.count() == 0


def test_new_credentials_are_tried_before_they_count(api, s3, s3_url):
    made = api.post("/bulk-exports/destinations", bucket(s3_url)).json()

    renewed = {"access_key_id": "new", "secret_access_key": "n"}
    answer = api.patch(f"/bulk-exports/destinations/{made['id']}", {"credentials": renewed})

    assert answer.status_code == 200
    assert Destination.unscoped.get(pk=made["id"]).credentials() == renewed


def test_a_bucket_on_a_private_address_is_refused(api, s3_url, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = False

    answer = api.post("/bulk-exports/destinations", bucket(s3_url))

    assert (answer.status_code, answer.json()["code"]) == (400, "destination_refused")


# Bad requests and strangers


@pytest.mark.parametrize(
    "wrong",
    [
        {"end_time": None},
        {"interval_hours": 1},
        {"end_time": DAY.isoformat()},
        {"end_time": None, "interval_hours": 169},
        {"export_fields": ["passwords"]},
        {"compression": "rar"},
        {"filter": "eq(name"},
        {"session_id": "x"},
        {"start_time": "soon"},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(api, project, destination, wrong):
    body = {
        "bulk_export_destination_id": destination,
        "session_id": str(project.pk),
        "start_time": DAY.isoformat(),
        "end_time": (DAY + timedelta(days=2)).isoformat(),
    }

    assert api.post("/bulk-exports", body | wrong).status_code in {400, 422}
    assert BulkExport.unscoped.count() == 0


@pytest.mark.parametrize(
    "config",
    [
        {"bucket_name": "No Such Name"},
        {"endpoint_url": "ftp://x"},
        {"endpoint_url": "http://["},
        {"prefix": "a/../b"},
        {"prefix": "a\u0000b"},
    ],
)
def test_a_destination_that_makes_no_sense_is_refused(api, config):
    answer = api.post("/bulk-exports/destinations", bucket("http://s3.example", **config))

    assert answer.status_code == 422


def test_a_bucket_without_credentials_is_not_written_with_the_operators(api):
    asked = bucket("http://s3.example")
    del asked["credentials"]

    assert api.post("/bulk-exports/destinations", asked).status_code == 422


def test_a_stranger_can_neither_see_nor_use_them(stranger_api, ask, destination, project):
    export = ask()
    body = {
        "bulk_export_destination_id": destination, "session_id": str(project.pk),
        "start_time": DAY.isoformat(), "interval_hours": 1,
    }  # fmt: skip

    assert stranger_api.get("/bulk-exports").json() == []
    assert stranger_api.get("/bulk-exports/destinations").json() == []
    assert stranger_api.get(f"/bulk-exports/{export['id']}").status_code == 404
    assert stranger_api.get(f"/bulk-exports/{export['id']}/runs/{uuid4()}").status_code == 404
    assert stranger_api.post("/bulk-exports", body).status_code == 404


@pytest.fixture
def stranger_api(db):
    from tests.factories.organizations import WorkspaceFactory

    return Api(key_for(WorkspaceFactory()))


def test_the_list_costs_the_same_however_long_it_is(api, ask, django_assert_num_queries):
    ask()
    api.get("/bulk-exports")
    with django_assert_num_queries(2):
        assert len(api.get("/bulk-exports").json()) == 1
    for _ in range(4):
        ask()
    with django_assert_num_queries(2):
        assert len(api.get("/bulk-exports").json()) == 5


def test_the_states_are_the_wires():
    assert set(Status.values) == {
        "Created", "Running", "Completed", "Cancelled", "Failed", "TimedOut",
    }  # fmt: skip
