"""Attachments: uploaded by multipart requests, downloaded by signed URLs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.files.storage import default_storage

from apps.core.ids import uuid7
from apps.tracing.models import Project
from apps.tracing.services import delete_project, deletion
from tests.factories.tracing import count_stored_runs, multipart_body, read_run, wire_run

PNG = b"\x89PNG\r\n\x1a\n\x00\xff--8d1f0c7 not the boundary\r\n"


def send_attachment(api, name="picture", content=PNG, head="Content-Type: image/png"):
    run = wire_run()
    response = api.multipart(
        multipart_body(
            (f"attachment.{run['id']}.{name}", content, head),
            (f"post.{run['id']}", run),
        )
    )
    assert response.status_code == 202, response.content
    return run


def read_link(api, run, name="picture"):
    return api.get(f"/runs/{run['id']}").json()["s3_urls"][f"attachment.{name}"]


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: image/png",
        f"Content-Type: image/png; length={len(PNG)}",
        f"Content-Type: image/png\r\nContent-Length: {len(PNG)}",
    ],
)
def test_an_attachment_is_downloaded_without_a_key(api, client, head):
    run = send_attachment(api, head=head)

    link = read_link(api, run)

    assert link["mime_type"] == "image/png"
    assert link["presigned_url"].startswith("http")
    response = client.get(link["presigned_url"])
    assert response.status_code == 200
    assert response.getvalue() == PNG
    assert response["Content-Type"] == "image/png"


def test_an_html_attachment_is_sandboxed(api, client):
    run = send_attachment(api, content=b"<script>alert(1)</script>", head="Content-Type: text/html")

    response = client.get(read_link(api, run)["presigned_url"])

    assert response.getvalue() == b"<script>alert(1)</script>"
    assert response["Content-Disposition"].startswith("attachment")
    assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"


def test_a_download_url_expires(api, client, time_machine):
    link = read_link(api, send_attachment(api))
    time_machine.move_to(datetime.now(UTC) + timedelta(hours=2))

    response = client.get(link["presigned_url"])

    assert response.status_code == 403
    assert response.json()["code"] == "download_expired"


@pytest.mark.parametrize("token", ["", "x", "a.b.c"])
def test_forged_download_url_is_rejected(client, db, token):
    assert client.get("/public/download", {"token": token}).status_code == 403


def test_attachment_after_its_run_is_added(api):
    run = send_attachment(api)
    api.multipart(
        multipart_body((f"attachment.{run['id']}.second", b"2", "Content-Type: text/plain"))
    )

    urls = api.get(f"/runs/{run['id']}").json()["s3_urls"]

    assert set(urls) == {"attachment.picture", "attachment.second"}
    assert count_stored_runs() == 1


def test_a_repeated_attachment_is_stored_once(api, workspace):
    run = send_attachment(api)
    body = multipart_body((f"attachment.{run['id']}.picture", PNG, "Content-Type: image/png"))

    api.multipart(body)

    (attachment,) = read_run(workspace, run["id"]).row.attachments
    assert (attachment.name, attachment.size) == ("picture", len(PNG))
    folder = attachment.path.rpartition("/")[0]
    assert default_storage.listdir(folder)[1] == [attachment.path.rpartition("/")[2]]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "é", "a.b", "\x00"])
def test_an_attachment_name_is_never_a_path(api, client, name):
    run = send_attachment(api, name=name)

    urls = api.get(f"/runs/{run['id']}").json()["s3_urls"]

    ((key, link),) = urls.items()
    assert key == f"attachment.{name}".replace("\x00", "\ufffd")
    assert client.get(link["presigned_url"]).getvalue() == PNG


def test_attachment_of_a_rejected_run_is_rejected(api):
    run_id = uuid7()

    response = api.multipart(
        multipart_body(
            (f"post.{run_id}", {"name": "x", "run_type": "nonsense"}),
            (f"attachment.{run_id}.a", b"1", "Content-Type: text/plain"),
        )
    )

    assert response.status_code == 422


def test_deleting_the_project_deletes_the_file(api, workspace):
    run = send_attachment(api)
    (attachment,) = read_run(workspace, run["id"]).row.attachments
    project = Project.objects.for_workspace(workspace).get(name="default")

    delete_project(project=project)
    deletion.remove_deleted_projects()

    assert not default_storage.exists(attachment.path)
    assert count_stored_runs() == 0
