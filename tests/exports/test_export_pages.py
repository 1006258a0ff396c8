"""The export pages and their permissions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.exports import runner
from apps.exports.models import BulkExport, Destination
from apps.exports.services import create_due_exports, create_export
from apps.tracing.models import Project
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)
from tests.factories.tracing import ingest, wire_run

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def page_url(name, workspace, *more):
    return reverse(name, args=[workspace.pk, *more])


@pytest.fixture
def admin(client, workspace):
    member(client, workspace, "admin")
    return client


def member(client, workspace, role):
    user = UserFactory()
    MembershipFactory(user=user, organization=workspace.organization, role="member")
    WorkspaceMembershipFactory(user=user, workspace=workspace, role=role)
    client.force_login(user)


@pytest.fixture
def destination(workspace):
    destination = Destination(workspace_id=workspace.pk, name="Downloads", kind="platform")
    destination.save(force_insert=True)
    return destination


def test_anonymous_user_is_redirected_to_sign_in_and_viewer_gets_403(client, workspace):
    assert client.get(page_url("export-list", workspace)).status_code == 302
    member(client, workspace, "viewer")

    assert client.get(page_url("export-list", workspace)).status_code == 403


def test_export_list_of_another_workspace_is_not_found(admin):
    assert admin.get(page_url("export-list", WorkspaceFactory())).status_code == 404


def test_new_export_without_destination_redirects_to_new_destination(admin, workspace):
    assert "Add a destination" in admin.get(page_url("export-list", workspace)).text

    response = admin.get(page_url("export-new", workspace))

    assert response.url == page_url("export-destination-new", workspace)


def test_export_created_through_the_pages_completes(admin, workspace, project):
    ingest(workspace, wire_run(start=DAY + timedelta(hours=3), session_name="exported"))
    form = {"name": "Here", "kind": "platform", "key_prefix": "lake"}
    assert admin.post(page_url("export-destination-new", workspace), form).status_code == 302
    destination = Destination.unscoped.get()
    form = {
        "project": project.pk, "destination": destination.pk, "begin": "2026-03-01",
        "end": "2026-03-02", "interval": "", "compression": "zstandard",
    }  # fmt: skip

    response = admin.post(page_url("export-new", workspace), form)

    export = BulkExport.unscoped.get()
    assert response.url == page_url("export-detail", workspace, export.pk)
    assert (export.start_time, export.end_time) == (DAY, DAY + timedelta(days=2))
    assert 'hx-trigger="every 2s"' in admin.get(response.url).text
    runner.run_slice(seconds=60)
    page = admin.get(response.url).text
    assert "Completed" in page
    assert "part-00000.parquet" in page
    assert "every 2s" not in page
    assert "Completed" in admin.get(page_url("export-list", workspace)).text


@pytest.fixture
def valid_form(project, destination):
    return {
        "project": project.pk, "destination": destination.pk, "begin": "2026-03-01",
        "end": "2026-03-02", "interval": "", "compression": "zstandard",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end": ""}, "Enter either an end date"),
        ({"interval": "24"}, "Enter either an end date"),
        ({"end": "2026-02-01"}, "not be before"),
        ({"filter": "eq(name"}, "column"),
        ({"project": "x"}, "valid"),
    ],
)
def test_invalid_export_form_is_shown_with_its_error(admin, valid_form, workspace, change, message):

    response = admin.post(page_url("export-new", workspace), valid_form | change)

    assert response.status_code == 422
    assert message in response.text
    assert BulkExport.unscoped.count() == 0


def test_unreachable_bucket_is_a_form_error_without_the_secret(admin, workspace, s3, s3_url):
    form = {
        "name": "Lake", "kind": "s3", "bucket_name": "absent", "endpoint_url": s3_url,
        "region": "us-east-1", "access_key_id": "id", "secret_access_key": "top-secret",
    }  # fmt: skip

    response = admin.post(page_url("export-destination-new", workspace), form)

    assert response.status_code == 422
    assert "A test object could not be written" in response.text
    assert "top-secret" not in response.text


def test_cancel_page_cancels_the_export(admin, workspace, project, destination):
    export = BulkExport(
        workspace_id=workspace.pk, project=project, destination=destination, start_time=DAY,
        end_time=DAY + timedelta(days=1),
    )  # fmt: skip
    export.save(force_insert=True)

    response = admin.post(page_url("export-cancel", workspace, export.pk), follow=True)

    assert "Export cancelled." in response.text
    assert BulkExport.unscoped.get().status == "Cancelled"


def test_query_count_of_export_list_does_not_grow_with_its_length(admin, workspace, destination):
    ingest(workspace, wire_run(session_name="sales"))
    project = Project.objects.for_workspace(workspace).get(name="sales")
    counts = []
    for number in (1, 3):
        for day in range(number):
            fields = {"start_time": DAY + timedelta(days=10 * number + day)}
            fields |= {"end_time": fields["start_time"] + timedelta(days=2)}
            create_export(export=build_export(project, destination, **fields))
            create_export(
                export=build_export(project, destination, start_time=DAY, interval_hours=168)
            )
        with CaptureQueriesContext(connection) as queries:
            rows = admin.get(page_url("export-list", workspace)).context["rows"]
        counts.append((len(rows), len(queries)))

    assert [rows for rows, _ in counts] == [2, 8]
    assert counts[0][1] == counts[1][1]


def build_export(project, destination, **fields):
    return BulkExport(
        workspace_id=project.workspace_id, project=project, destination=destination, **fields
    )


def test_schedule_row_counts_the_exports_it_created(admin, workspace, destination):
    ingest(workspace, wire_run(session_name="sales"))
    project = Project.objects.for_workspace(workspace).get(name="sales")
    schedule = create_export(
        export=build_export(project, destination, start_time=DAY, interval_hours=24)
    )
    create_due_exports(DAY + timedelta(days=3))

    rows = admin.get(page_url("export-list", workspace)).context["rows"]

    created_count = BulkExport.unscoped.filter(source=schedule).count()
    assert [row.scheduled_exports for row in rows if row.export == schedule] == [created_count]
    assert created_count > 0


def test_destination_page_renames_the_destination(admin, workspace, destination):
    page = page_url("export-destination", workspace, destination.pk)

    page_text = admin.get(page).text
    empty = admin.post(page, {"name": ""})
    response = admin.post(page, {"name": "Files"})

    assert "Downloads" in page_text
    assert "Secret key" not in page_text
    assert (empty.status_code, response.status_code) == (422, 302)
    destination.refresh_from_db()
    assert destination.name == "Files"
    assert page in admin.get(page_url("export-list", workspace)).text


def test_new_bucket_keys_must_be_complete_and_pass_a_test_write(admin, workspace):
    config = {"bucket_name": "lake", "endpoint_url": "http://127.0.0.1:9"}
    bucket = Destination(workspace_id=workspace.pk, name="Lake", kind="s3", config=config)
    bucket.set_credentials({"access_key_id": "old", "secret_access_key": "old"})
    bucket.save(force_insert=True)
    page = page_url("export-destination", workspace, bucket.pk)

    renamed = admin.post(page, {"name": "Data", "access_key_id": "", "secret_access_key": ""})
    half = admin.post(page, {"name": "Data", "access_key_id": "new", "secret_access_key": ""})
    failed = admin.post(page, {"name": "Data", "access_key_id": "new", "secret_access_key": "x"})

    assert (renamed.status_code, half.status_code, failed.status_code) == (302, 422, 422)
    bucket.refresh_from_db()
    assert (bucket.name, bucket.credentials()["access_key_id"]) == ("Data", "old")


def test_viewer_cannot_change_a_destination(client, workspace, destination):
    member(client, workspace, "viewer")

    response = client.post(
        page_url("export-destination", workspace, destination.pk), {"name": "Mine"}
    )

    assert response.status_code == 403
    destination.refresh_from_db()
    assert destination.name == "Downloads"


def test_destination_of_another_workspace_is_not_found(admin, workspace):
    theirs = Destination(workspace_id=WorkspaceFactory().pk, name="Theirs", kind="platform")
    theirs.save(force_insert=True)

    response = admin.post(page_url("export-destination", workspace, theirs.pk), {"name": "Mine"})

    assert response.status_code == 404
    theirs.refresh_from_db()
    assert theirs.name == "Theirs"
