"""The WebSocket of a revision's log: it reads rows, and messages only trigger the reads."""

import json

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.sessions.models import Session
from django.test import Client

from apps.deployments import consumers, dispatch
from config.asgi import application
from tests.console.conftest import create_workspace_user
from tests.factories.deployments import LogLineFactory, RevisionFactory
from tests.factories.organizations import UserFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def revision(workspace):
    return RevisionFactory(deployment__workspace=workspace, status="BUILDING")


def make_communicator(revision, user, query=""):
    url = f"/o/{revision.workspace_id}/deployments/{revision.deployment_id}"
    path = f"{url}/revisions/{revision.pk}/live?{query}"
    headers = [(b"origin", b"http://testserver"), (b"host", b"testserver")]
    if user is not None:
        client = Client()
        client.force_login(user)
        cookie = f"slipway_session={client.cookies['slipway_session'].value}"
        headers.append((b"cookie", cookie.encode()))
    return WebsocketCommunicator(application, path, headers=headers)


@pytest.fixture
def connect_reader(revision, workspace):
    """Return a function that connects a reader to the revision's log."""
    opened = []

    async def connect(query="", user="editor"):
        signed_in_user = (
            await sync_to_async(create_workspace_user)(workspace, user)
            if isinstance(user, str)
            else user
        )
        communicator = await sync_to_async(make_communicator)(revision, signed_in_user, query)
        opened.append(communicator)
        accepted, _ = await communicator.connect(timeout=60)
        assert accepted
        return communicator

    return connect


async def receive(communicator):
    return json.loads(await communicator.receive_from(timeout=60))


async def test_new_line_is_sent_when_it_is_written(connect_reader, revision):
    first = await sync_to_async(LogLineFactory)(revision=revision, message="Cloning")
    communicator = await connect_reader()
    lines, status = await receive(communicator), await receive(communicator)

    await sync_to_async(LogLineFactory)(revision=revision, message="Resolved", level="WARNING")
    await sync_to_async(dispatch.notify_revision_changed)(revision.pk)
    update = await receive(communicator)

    assert [line[0] for line in lines["lines"]] == [first.pk]
    assert status == {"type": "status", "status": "BUILDING"}
    assert [line[2:] for line in update["lines"]] == [["WARNING", "Resolved"]]
    await communicator.disconnect()


async def test_reconnected_reader_gets_each_later_line_once(connect_reader, revision):
    lines = [await sync_to_async(LogLineFactory)(revision=revision) for _ in range(3)]

    communicator = await connect_reader(f"after={lines[0].pk}")

    assert [line[0] for line in (await receive(communicator))["lines"]] == [
        lines[1].pk,
        lines[2].pk,
    ]
    await communicator.disconnect()


async def test_polling_sends_lines_after_a_lost_notification(connect_reader, revision, monkeypatch):
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.05)
    communicator = await connect_reader()
    await receive(communicator)

    await sync_to_async(LogLineFactory)(revision=revision, message="unannounced")

    assert (await receive(communicator))["lines"][0][3] == "unannounced"
    await communicator.disconnect()


async def test_socket_closes_after_the_last_line_of_a_finished_build(
    connect_reader, revision, monkeypatch
):
    monkeypatch.setattr(consumers, "MAX_LINES_PER_MESSAGE", 2)
    for _ in range(5):
        await sync_to_async(LogLineFactory)(revision=revision)
    revision.status = "DEPLOYED"
    await sync_to_async(revision.save)()

    communicator = await connect_reader()
    messages = [await receive(communicator) for _ in range(4)]
    end = await communicator.receive_output(timeout=60)

    assert [len(m["lines"]) for m in messages if m["type"] == "lines"] == [2, 2, 1]
    assert [m["status"] for m in messages if m["type"] == "status"] == ["DEPLOYED"]
    assert end == {"type": "websocket.close", "code": 1000}


@pytest.mark.parametrize(
    ("role", "code"), [("anonymous", 4401), ("outsider", 4404), ("annotator", 4404)]
)
async def test_unauthorized_reader_is_closed_without_a_line(
    connect_reader, revision, workspace, role, code
):
    await sync_to_async(LogLineFactory)(revision=revision)
    user = await sync_to_async(UserFactory)() if role == "outsider" else None
    user = (
        await sync_to_async(create_workspace_user)(workspace, role) if role == "annotator" else user
    )

    communicator = await connect_reader(user=user)

    assert await communicator.receive_output(timeout=60) == {
        "type": "websocket.close",
        "code": code,
    }


async def test_signed_out_reader_is_closed(connect_reader, revision):
    communicator = await connect_reader()
    await receive(communicator)

    await sync_to_async(Session.objects.all().delete)()
    await sync_to_async(LogLineFactory)(revision=revision, message="unannounced")

    end = await communicator.receive_output(timeout=60)
    assert end == {"type": "websocket.close", "code": 4401}


async def test_page_of_another_origin_cannot_connect(revision, editor):
    communicator = await sync_to_async(make_communicator)(revision, editor)
    communicator.scope["headers"][0] = (b"origin", b"https://evil.example")

    accepted, _ = await communicator.connect(timeout=60)

    assert not accepted
