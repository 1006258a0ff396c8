"""The pages of exports, for those who may and those who may not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.exports import runner
from apps.exports.models import BulkExport, Destination
from apps.exports.services import create_export, spawn_due
from apps.tracing.models import Project
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)
from tests.factories.tracing import ingest, wire_run

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def address(name, workspace, *more):
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
def here(workspace):
    made = Destination(workspace_id=workspace.pk, name="Downloads", kind="platform")
    made.save(force_insert=True)
    return made


def test_nobody_is_sent_to_sign_in_and_a_viewer_may_not(client, workspace):
    assert client.get(address("export-list", workspace)).status_code == 302
    member(client, workspace, "viewer")

    assert client.get(address("export-list", workspace)).status_code == 403


def test_another_workspace_is_not_there(admin):
    assert admin.get(address("export-list", WorkspaceFactory())).status_code == 404


def test_without_destinations_one_is_asked_for(admin, workspace):
    assert "Add a destination" in admin.get(address("export-list", workspace)).text

    answer = admin.get(address("export-new", workspace))

    assert answer.url == address("export-destination-new", workspace)


def test_a_destination_and_an_export_by_hand(admin, workspace, project):
    ingest(workspace, wire_run(start=DAY + timedelta(hours=3), session_name="exported"))
    form = {"name": "Here", "kind": "platform", "key_prefix": "lake"}
    assert admin.post(address("export-destination-new", workspace), form).status_code == 302
    destination = Destination.unscoped.get()
    asked = {
        "project": project.pk, "destination": destination.pk, "begin": "2026-03-01",
        "end": "2026-03-02", "interval": "", "compression": "zstandard",
    }  # fmt: skip

    answer = admin.post(address("export-new", workspace), asked)

    export = BulkExport.unscoped.get()
    assert answer.url == address("export-detail", workspace, export.pk)
    assert (export.start_time, export.end_time) == (DAY, DAY + timedelta(days=2))
    assert 'hx-trigger="every 2s"' in admin.get(answer.url).text
    runner.work_for(seconds=60)
    page = admin.get(answer.url).text
    assert "Completed" in page
    assert "part-00000.parquet" in page
    assert "every 2s" not in page
    assert "Completed" in admin.get(address("export-list", workspace)).text


@pytest.fixture
def good(project, here):
    return {
        "project": project.pk, "destination": here.pk, "begin": "2026-03-01",
        "end": "2026-03-02", "interval": "", "compression": "zstandard",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"end": ""}, "Enter either an end date"),
        ({"interval": "24"}, "Enter either an end date"),
        ({"end": "2026-02-01"}, "not be before"),
        ({"filter": "eq(name"}, "column"),
        ({"project": "x"}, "valid"),
    ],
)
def test_what_makes_no_sense_comes_back_with_the_form(admin, good, workspace, change, said):

    answer = admin.post(address("export-new", workspace), good | change)

    assert answer.status_code == 422
    assert said in answer.text
    assert BulkExport.unscoped.count() == 0


def test_a_bucket_that_cannot_be_reached_is_told_on_the_form(admin, workspace, s3, s3_url):
    form = {
        "name": "Lake", "kind": "s3", "bucket_name": "absent", "endpoint_url": s3_url,
        "region": "us-east-1", "access_key_id": "id", "secret_access_key": "top-secret",
    }  # fmt: skip

    answer = admin.post(address("export-destination-new", workspace), form)

    assert answer.status_code == 422
    assert "A test object could not be written" in answer.text
    assert "top-secret" not in answer.text


def test_an_export_is_stopped(admin, workspace, project, here):
    export = BulkExport(
        workspace_id=workspace.pk, project=project, destination=here, start_time=DAY,
        end_time=DAY + timedelta(days=1),
    )  # fmt: skip
    export.save(force_insert=True)

    answer = admin.post(address("export-cancel", workspace, export.pk), follow=True)

    assert "Export cancelled." in answer.text
    assert BulkExport.unscoped.get().status == "Cancelled"


def test_the_list_asks_as_little_however_long_it_is(
    admin, workspace, project, here, django_assert_max_num_queries
):
    for _ in range(3):
        BulkExport(
            workspace_id=workspace.pk, project=project, destination=here, start_time=DAY,
            end_time=DAY + timedelta(days=1),
        ).save(force_insert=True)  # fmt: skip
    admin.get(address("export-list", workspace))

    with django_assert_max_num_queries(10):
        admin.get(address("export-list", workspace))


def test_the_list_costs_the_same_at_any_length(admin, workspace, here):
    ingest(workspace, wire_run(session_name="sales"))
    project = Project.objects.for_workspace(workspace).get(name="sales")
    counted = []
    for number in (1, 3):
        for day in range(number):
            said = {"start_time": DAY + timedelta(days=10 * number + day)}
            said |= {"end_time": said["start_time"] + timedelta(days=2)}
            create_export(export=export_of(project, here, **said))
            create_export(export=export_of(project, here, start_time=DAY, interval_hours=168))
        with CaptureQueriesContext(connection) as asked:
            shown = admin.get(address("export-list", workspace)).context["rows"]
        counted.append((len(shown), len(asked)))

    assert [rows for rows, _ in counted] == [2, 8]
    assert counted[0][1] == counted[1][1]


def export_of(project, destination, **said):
    return BulkExport(
        workspace_id=project.workspace_id, project=project, destination=destination, **said
    )


def test_a_schedule_tells_how_many_exports_it_made(admin, workspace, here):
    ingest(workspace, wire_run(session_name="sales"))
    project = Project.objects.for_workspace(workspace).get(name="sales")
    schedule = create_export(export=export_of(project, here, start_time=DAY, interval_hours=24))
    spawn_due(DAY + timedelta(days=3))

    rows = admin.get(address("export-list", workspace)).context["rows"]

    made = BulkExport.unscoped.filter(source=schedule).count()
    assert [row.spawned for row in rows if row.export == schedule] == [made]
    assert made > 0


def test_a_destination_is_renamed(admin, workspace, here):
    page = address("export-destination", workspace, here.pk)

    shown = admin.get(page).text
    empty = admin.post(page, {"name": ""})
    answer = admin.post(page, {"name": "Files"})

    assert "Downloads" in shown
    assert "Secret key" not in shown
    assert (empty.status_code, answer.status_code) == (422, 302)
    here.refresh_from_db()
    assert here.name == "Files"
    assert page in admin.get(address("export-list", workspace)).text


def test_the_keys_of_a_bucket_are_given_together_and_tried(admin, workspace):
    config = {"bucket_name": "lake", "endpoint_url": "http://127.0.0.1:9"}
    bucket = Destination(workspace_id=workspace.pk, name="Lake", kind="s3", config=config)
    bucket.set_credentials({"access_key_id": "old", "secret_access_key": "old"})
    bucket.save(force_insert=True)
    page = address("export-destination", workspace, bucket.pk)

    renamed = admin.post(page, {"name": "Data", "access_key_id": "", "secret_access_key": ""})
    half = admin.post(page, {"name": "Data", "access_key_id": "new", "secret_access_key": ""})
    failed = admin.post(page, {"name": "Data", "access_key_id": "new", "secret_access_key": "x"})

    assert (renamed.status_code, half.status_code, failed.status_code) == (302, 422, 422)
    bucket.refresh_from_db()
    assert (bucket.name, bucket.credentials()["access_key_id"]) == ("Data", "old")


def test_a_viewer_changes_no_destination(client, workspace, here):
    member(client, workspace, "viewer")

    answer = client.post(address("export-destination", workspace, here.pk), {"name": "Mine"})

    assert answer.status_code == 403
    here.refresh_from_db()
    assert here.name == "Downloads"


def test_a_destination_of_another_workspace_is_not_there(admin, workspace):
    theirs = Destination(workspace_id=WorkspaceFactory().pk, name="Theirs", kind="platform")
    theirs.save(force_insert=True)

    answer = admin.post(address("export-destination", workspace, theirs.pk), {"name": "Mine"})

    assert answer.status_code == 404
    theirs.refresh_from_db()
    assert theirs.name == "Theirs"
