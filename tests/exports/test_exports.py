"""Bulk exports: files, destinations, cancellation, retries and schedules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from apps.core import object_storage
from apps.exports import runner, services
from apps.exports.errors import WriteFailed
from apps.exports.models import BulkExport, Destination, ExportPart, ExportStatus
from tests.exports.conftest import CREDENTIALS, read_parquet
from tests.factories.tracing import ingest, wire_run

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def build_run(hours=12, **fields):
    return wire_run(start=DAY + timedelta(hours=hours), session_name="exported", **fields)


@pytest.fixture
def destination(api):
    body = {"destination_type": "platform", "display_name": "here", "config": {"prefix": "/pre/"}}
    return api.post("/bulk-exports/destinations", body).json()["id"]


@pytest.fixture
def create_export(api, project, destination):
    """A function that creates an export of two days through the API."""

    def create(**fields):
        body = {
            "bulk_export_destination_id": destination,
            "session_id": str(project.pk),
            "start_time": DAY.isoformat(),
            "end_time": (DAY + timedelta(days=2)).isoformat(),
        }
        response = api.post("/api/v1/bulk-exports", body | fields)
        assert response.status_code == 200, response.content
        return response.json()

    return create


def list_parts(api, export):
    return api.get(f"/bulk-exports/{export['id']}/runs").json()


def read_exported_rows(api, export):
    """Return all rows of an export to platform storage."""
    files = [
        path
        for part in list_parts(api, export)
        for path in part["metadata"]["result"]["exported_files"]
    ]
    return [row for path in files for row in read_parquet(object_storage.get(path))]


# Files


def test_each_day_is_a_file_with_all_fields_of_its_runs(api, workspace, create_export):
    usage = {"input_tokens": 3, "output_tokens": 4, "total_cost": "0.000001"}
    root = build_run(
        hours=1, run_type="llm", tags=["a", "b"], outputs={"usage_metadata": usage},
        extra={"metadata": {"customer": "c-1"}}, error="It broke.",
    )  # fmt: skip
    ingest(
        workspace, root, build_run(hours=30, name="next day"), build_run(hours=60, name="too late")
    )

    export = create_export()
    assert runner.run_slice(seconds=60) is False

    response = api.get(f"/bulk-exports/{export['id']}").json()
    assert (response["status"], response["progress"]) == (
        "Completed",
        {"parts_done": 2, "parts": 2, "rows_written": 2},
    )
    first, second = list_parts(api, export)
    workspace_id, project_id = str(workspace.pk), response["session_id"]
    folder = f"pre/export_id={export['id']}/tenant_id={workspace_id}/session_id={project_id}/runs"
    assert first["metadata"]["result"]["exported_files"] == [
        f"exports/{workspace_id}/{folder}/year=2026/month=3/day=1/part-00000.parquet"
    ]
    assert second["metadata"]["result"]["rows_written"] == 1
    row, other = read_exported_rows(api, export)
    assert other["name"] == "next day"
    assert (row["id"], row["run_type"], row["status"]) == (root["id"], "llm", "error")
    assert (row["error"], row["is_root"], row["latency"]) == ("It broke.", True, 1.0)
    assert row["start_time"] == DAY + timedelta(hours=1)
    assert (row["prompt_tokens"], row["total_tokens"]) == (3, 7)
    assert row["total_cost"] == Decimal("0.000001")
    assert json.loads(row["inputs"]) == {"question": "why?"}
    assert json.loads(row["tags"]) == ["a", "b"]
    assert json.loads(row["extra"])["metadata"] == {"customer": "c-1"}


def test_export_contains_only_filtered_runs_and_selected_fields(api, workspace, create_export):
    ingest(workspace, build_run(name="kept"), build_run(name="left out"))

    export = create_export(
        filter='eq(name, "kept")', export_fields=["name", "outputs"], compression="gzip"
    )
    runner.run_slice(seconds=60)

    assert read_exported_rows(api, export) == [{"name": "kept", "outputs": '{"answer": "because"}'}]


def test_full_file_is_followed_by_another_with_the_next_runs(
    api, workspace, create_export, monkeypatch
):
    monkeypatch.setattr(runner, "PAGE_SIZE", 2)
    monkeypatch.setattr(runner, "MAX_FILE_ROWS", 4)
    created = [build_run(hours=1 + number / 10) for number in range(10)]
    ingest(workspace, *created)

    export = create_export()
    runner.run_slice(seconds=60)

    files = list_parts(api, export)[0]["metadata"]["result"]["exported_files"]
    assert [path.rpartition("/")[2] for path in files] == [
        f"part-0000{n}.parquet" for n in range(3)
    ]
    assert [row["id"] for row in read_exported_rows(api, export)] == [
        build_run["id"] for build_run in created
    ]


def test_export_without_runs_completes_without_files(api, create_export):
    export = create_export()
    runner.run_slice(seconds=60)

    assert api.get(f"/bulk-exports/{export['id']}").json()["status"] == "Completed"
    assert read_exported_rows(api, export) == []


def test_platform_files_are_downloaded_by_signed_urls(
    api, client, workspace, create_export, settings
):
    ingest(workspace, build_run())
    export = create_export()
    runner.run_slice(seconds=60)

    [url] = list_parts(api, export)[0]["metadata"]["result"]["download_urls"]

    response = client.get(url.removeprefix(settings.BASE_URL))
    assert response.status_code == 200
    assert len(read_parquet(b"".join(response.streaming_content))) == 1


# Retries and cancellation


def test_worker_death_between_file_and_row_neither_loses_nor_duplicates_runs(
    api, workspace, create_export, monkeypatch
):
    monkeypatch.setattr(runner, "PAGE_SIZE", 1)
    monkeypatch.setattr(runner, "MAX_FILE_ROWS", 2)
    created = [build_run(hours=1 + number / 10) for number in range(5)]
    ingest(workspace, *created)
    export = create_export()
    put = object_storage.put
    calls = []

    def die_after_second_file(path, content):
        put(path, content)
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(object_storage, "put", die_after_second_file)
    with pytest.raises(KeyboardInterrupt):
        runner.run_slice(seconds=60)
    assert runner.run_slice(seconds=60) is False  # the dead worker holds the lease
    assert len(read_exported_rows(api, export)) == 2

    ExportPart.unscoped.filter(export=export["id"]).update(locked_until=DAY)
    runner.run_slice(seconds=60)

    assert [row["id"] for row in read_exported_rows(api, export)] == [
        build_run["id"] for build_run in created
    ]


def test_failed_write_is_retried_later(api, workspace, create_export, monkeypatch):
    ingest(workspace, build_run())
    export = create_export()

    def refuse(*_):
        raise WriteFailed("AccessDenied")

    monkeypatch.setattr("apps.exports.writers._PlatformWriter.put", refuse)
    assert runner.run_slice(seconds=60) is False

    [first, _] = list_parts(api, export)
    assert (first["status"], first["retry_number"]) == ("Running", 1)
    assert first["errors"]["0"]["detail"] == "AccessDenied"
    monkeypatch.undo()


def test_export_fails_after_the_last_attempt(api, workspace, create_export, monkeypatch):
    monkeypatch.setattr(runner, "MAX_ATTEMPTS", 1)
    ingest(workspace, build_run())
    export = create_export()

    def refuse(*_):
        raise WriteFailed("AccessDenied")

    monkeypatch.setattr("apps.exports.writers._PlatformWriter.put", refuse)
    runner.run_slice(seconds=60)

    assert api.get(f"/bulk-exports/{export['id']}").json()["status"] == "Failed"


def test_cancelled_export_writes_no_files(api, workspace, create_export):
    ingest(workspace, build_run())
    export = create_export()

    response = api.patch(f"/bulk-exports/{export['id']}", {"status": "Cancelled"})

    assert (response.status_code, response.json()["status"]) == (200, "Cancelled")
    runner.run_slice(seconds=60)
    assert read_exported_rows(api, export) == []
    assert {part["status"] for part in list_parts(api, export)} == {"Cancelled"}
    second = api.patch(f"/bulk-exports/{export['id']}", {"status": "Cancelled"})
    assert second.status_code == 200


def test_finished_export_cannot_be_cancelled(api, create_export):
    export = create_export()
    runner.run_slice(seconds=60)

    response = api.patch(f"/bulk-exports/{export['id']}", {"status": "Cancelled"})

    assert (response.status_code, response.json()["code"]) == (409, "export_over")


# Schedules


def test_schedule_creates_one_export_per_window_after_ten_minutes(api, workspace, create_export):
    ingest(workspace, build_run(hours=1), build_run(hours=7))
    schedule = create_export(end_time=None, interval_hours=6)

    services.create_due_exports(DAY + timedelta(hours=6, minutes=9))
    assert BulkExport.unscoped.filter(source=schedule["id"]).count() == 0
    services.create_due_exports(DAY + timedelta(hours=12, minutes=10))
    services.create_due_exports(DAY + timedelta(hours=12, minutes=10))

    created = BulkExport.unscoped.filter(source=schedule["id"]).order_by("start_time")
    assert [(build_run.start_time - DAY, build_run.end_time - DAY) for build_run in created] == [
        (timedelta(hours=0), timedelta(hours=6)),
        (timedelta(hours=6), timedelta(hours=12)),
    ]
    runner.run_slice(seconds=60)
    assert [len(read_exported_rows(api, {"id": build_run.pk})) for build_run in created] == [1, 1]
    assert api.get(f"/bulk-exports/{schedule['id']}").json()["status"] == "Running"


def test_cancelled_schedule_creates_no_exports(api, create_export):
    schedule = create_export(end_time=None, interval_hours=1)
    api.patch(f"/bulk-exports/{schedule['id']}", {"status": "Cancelled"})

    assert services.create_due_exports() == 0


def test_time_range_is_split_at_midnights():
    start_time = DAY + timedelta(hours=20)

    assert [*services.split_into_days(start_time, start_time + timedelta(hours=30))] == [
        (start_time, DAY + timedelta(days=1)),
        (DAY + timedelta(days=1), DAY + timedelta(days=2)),
        (DAY + timedelta(days=2), DAY + timedelta(days=2, hours=2)),
    ]


# Buckets


def bucket_body(url, **config_fields):
    config = {"bucket_name": "exports", "prefix": "pre", "region": "us-east-1", "endpoint_url": url}
    return {
        "destination_type": "s3",
        "display_name": "b",
        "config": config | config_fields,
        "credentials": CREDENTIALS,
    }


def test_export_to_bucket_writes_a_readable_file(api, workspace, project, s3, s3_url):
    created = api.post("/bulk-exports/destinations", bucket_body(s3_url)).json()
    ingest(workspace, build_run())
    body = {
        "bulk_export_destination_id": created["id"], "session_id": str(project.pk),
        "start_time": DAY.isoformat(), "end_time": (DAY + timedelta(days=1)).isoformat(),
        "format_version": "v2_beta",
    }  # fmt: skip

    export = api.post("/bulk-exports", body).json()
    runner.run_slice(seconds=60)

    [part] = list_parts(api, export)
    [item] = s3.list_objects_v2(Bucket="exports")["Contents"]
    assert part["metadata"]["result"]["exported_files"] == [f"exports/{item['Key']}"]
    assert "/resource=runs/year=2026/month=3/day=1/" in item["Key"]
    assert part["metadata"]["result"]["download_urls"] is None
    assert len(read_parquet(s3.get_object(Bucket="exports", Key=item["Key"])["Body"].read())) == 1


def test_credentials_are_stored_encrypted_and_not_returned(api, s3, s3_url):
    created = api.post("/bulk-exports/destinations", bucket_body(s3_url)).json()

    assert created["credentials_keys"] == ["access_key_id", "secret_access_key"]
    assert "secret" not in json.dumps(created["config"])
    destination_row = Destination.unscoped.get(pk=created["id"])
    assert b"secret" not in bytes(destination_row.secret)
    assert destination_row.credentials() == CREDENTIALS


def test_bucket_that_fails_the_test_write_is_rejected(api, s3, s3_url):
    response = api.post("/bulk-exports/destinations", bucket_body(s3_url, bucket_name="absent"))

    assert (response.status_code, response.json()["code"]) == (400, "destination_refused")
    assert Destination.unscoped.count() == 0


def test_new_credentials_are_saved_after_a_test_write(api, s3, s3_url):
    created = api.post("/bulk-exports/destinations", bucket_body(s3_url)).json()

    renewed = {"access_key_id": "new", "secret_access_key": "n"}
    response = api.patch(f"/bulk-exports/destinations/{created['id']}", {"credentials": renewed})

    assert response.status_code == 200
    assert Destination.unscoped.get(pk=created["id"]).credentials() == renewed


def test_bucket_at_a_private_address_is_rejected(api, s3_url, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = False

    response = api.post("/bulk-exports/destinations", bucket_body(s3_url))

    assert (response.status_code, response.json()["code"]) == (400, "destination_refused")


# Invalid requests and other tenants


@pytest.mark.parametrize(
    "invalid_fields",
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
def test_invalid_export_request_is_rejected(api, project, destination, invalid_fields):
    body = {
        "bulk_export_destination_id": destination,
        "session_id": str(project.pk),
        "start_time": DAY.isoformat(),
        "end_time": (DAY + timedelta(days=2)).isoformat(),
    }

    assert api.post("/bulk-exports", body | invalid_fields).status_code in {400, 422}
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
def test_invalid_destination_config_is_rejected(api, config):
    response = api.post("/bulk-exports/destinations", bucket_body("http://s3.example", **config))

    assert response.status_code == 422


def test_bucket_without_credentials_is_rejected(api):
    body = bucket_body("http://s3.example")
    del body["credentials"]

    assert api.post("/bulk-exports/destinations", body).status_code == 422


def test_other_workspace_cannot_read_or_use_exports(
    other_tenant_api, create_export, destination, project
):
    export = create_export()
    body = {
        "bulk_export_destination_id": destination, "session_id": str(project.pk),
        "start_time": DAY.isoformat(), "interval_hours": 1,
    }  # fmt: skip

    assert other_tenant_api.get("/bulk-exports").json() == []
    assert other_tenant_api.get("/bulk-exports/destinations").json() == []
    assert other_tenant_api.get(f"/bulk-exports/{export['id']}").status_code == 404
    assert other_tenant_api.get(f"/bulk-exports/{export['id']}/runs/{uuid4()}").status_code == 404
    assert other_tenant_api.post("/bulk-exports", body).status_code == 404


@pytest.fixture
def other_tenant_api(make_api, other_workspace):
    return make_api(other_workspace)


def test_query_count_of_export_list_is_constant(api, create_export, django_assert_num_queries):
    create_export()
    api.get("/bulk-exports")
    with django_assert_num_queries(2):
        assert len(api.get("/bulk-exports").json()) == 1
    for _ in range(4):
        create_export()
    with django_assert_num_queries(2):
        assert len(api.get("/bulk-exports").json()) == 5


def test_statuses_are_the_values_of_the_api():
    assert set(ExportStatus.values) == {
        "Created", "Running", "Completed", "Cancelled", "Failed", "TimedOut",
    }  # fmt: skip
