"""Lines that are open when their caller loses the right to them end, each in its protocol's way."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.agent_server.models import AgentRun
from apps.api_keys import live_reauth
from apps.api_keys import services as api_keys
from apps.api_keys.models import ApiKey
from apps.core.sync_bridge import in_thread
from apps.organizations.models import Membership, WorkspaceMembership
from apps.organizations.permissions import Permission
from config.asgi import application
from tests.agent_server.asgi import Caller
from tests.factories.agent_server import ThreadFactory
from tests.factories.api_keys import key_for, row_of
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

HELLO = {"assistant_id": "agent", "input": {"n": 1}}
REVOKED = {"error": "HTTPException", "message": "401: The API key is no longer valid."}
SIGNED_OUT = {"error": "HTTPException", "message": "401: The session has ended. Sign in again."}


@pytest.fixture
def thread(agent):
    return ThreadFactory(deployment=agent)


def revoke(key: str) -> None:
    ApiKey.objects.filter(pk=row_of(key).pk).update(revoked_at=timezone.now())


def expire(key: str) -> None:
    ApiKey.objects.filter(pk=row_of(key).pk).update(expires_at=timezone.now())


def narrow(key: str) -> None:
    ApiKey.objects.filter(pk=row_of(key).pk).update(scopes=["ingest"])


async def test_thread_streams_end_with_an_error_within_two_seconds(front, agent, thread):
    lacks = {"error": "HTTPException", "message": "403: Permission agents:read is required."}
    deeds = {revoke: REVOKED, expire: REVOKED, narrow: lacks}
    path, took = f"/threads/{thread.thread_id}/stream", []

    async def follow(deed: Any) -> Any:
        key = await in_thread(key_for, agent.workspace)
        async with Caller(agent.slug, key).open("GET", path) as request:
            await request.started()
            await in_thread(deed, key)
            done = time.monotonic()
            answer = await request.ended()
            took.append(time.monotonic() - done)
            return answer.events

    said = await asyncio.gather(*map(follow, deeds))

    assert said == [[("error", error, None)] for error in deeds.values()]
    assert max(took) < 2


async def test_stream_of_a_run_ends_and_the_run_continues(call, key, worker, thread):
    async with call.open("POST", f"/threads/{thread.thread_id}/runs/stream", HELLO) as request:
        run = await worker.take()
        await worker.say(run, ("values", {"n": 1}))
        await request.until(lambda answer: answer.names == ["values"])
        await in_thread(revoke, key)
        answer = await request.ended()

    assert answer.events == [("values", {"n": 1}, None), ("error", REVOKED, None)]
    assert (await in_thread(AgentRun.unscoped.get, pk=run.pk)).status == "running"


async def test_run_that_ends_on_disconnect_is_cancelled(call, key, worker, thread):
    body = {**HELLO, "on_disconnect": "cancel"}
    async with call.open("POST", f"/threads/{thread.thread_id}/runs/stream", body) as request:
        run = await worker.take()
        await request.started()
        await in_thread(revoke, key)
        await request.ended()

        assert await worker.told_to_stop() == run.pk


@pytest.mark.parametrize("address", ["/threads/{t}/runs/wait", "/runs/wait"])
async def test_request_waiting_for_a_result_gets_the_rejection(call, key, worker, thread, address):
    path = address.format(t=thread.thread_id)
    async with call.open("POST", path, HELLO) as request:
        await worker.take()
        await in_thread(revoke, key)
        answer = await request.ended()

    assert answer.json() == {"__error__": REVOKED}


async def test_channel_event_streams_end(call, key, thread):
    path, body = f"/threads/{thread.thread_id}/stream/events", {"channels": ["values"]}
    async with call.open("POST", path, body) as request:
        await request.started()
        await in_thread(revoke, key)
        answer = await request.ended()

    assert answer.events[-1] == ("error", REVOKED, None)


async def test_streams_with_other_keys_stay_open(call, key, agent, thread):
    other = Caller(agent.slug, await in_thread(key_for, agent.workspace))
    path = f"/threads/{thread.thread_id}/stream"
    async with other.open("GET", path) as staying, call.open("GET", path) as leaving:
        await staying.started()
        await leaving.started()
        await in_thread(revoke, key)
        await leaving.ended()
        await asyncio.sleep(2 * live_reauth.REVALIDATION_INTERVAL_SECONDS)

        assert staying.answer.events == []
        assert not staying._ended


# Sessions


def member_of(workspace: Any) -> Any:
    user = UserFactory()
    MembershipFactory(organization=workspace.organization, user=user, role="member")
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="editor")
    return user


def cookie_of(user: Any) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    user.session = client.cookies["slipway_session"].value
    return {"cookie": f"slipway_session={user.session}"}


def sign_out(member: Any) -> None:
    Session.objects.filter(pk=member.session).delete()


def let_expire(member: Any) -> None:
    rows = Session.objects.filter(pk=member.session)
    rows.update(expire_date=timezone.now() - timedelta(seconds=1))


def change_password(member: Any) -> None:
    member.set_password("another and a longer one")
    member.save()


def deactivate(member: Any) -> None:
    member.is_active = False
    member.save()


def remove(member: Any) -> None:
    WorkspaceMembership.objects.filter(user=member).delete()
    Membership.objects.filter(user=member).delete()


async def test_browser_streams_end_with_their_session_or_membership(front, agent, thread):
    gone = {"error": "HTTPException", "message": "404: No such workspace."}
    deeds = dict.fromkeys((sign_out, let_expire, change_password, deactivate), SIGNED_OUT)
    deeds[remove] = gone

    async def follow(deed: Any) -> Any:
        member = await in_thread(member_of, agent.workspace)
        caller = Caller(agent.slug, **await in_thread(cookie_of, member))
        async with caller.open("GET", f"/threads/{thread.thread_id}/stream") as request:
            assert (await request.started()).status == 200
            await in_thread(deed, member)
            return (await request.ended()).events

    said = await asyncio.gather(*map(follow, deeds))

    assert said == [[("error", error, None)] for error in deeds.values()]


# Sockets


class Socket:
    """A WebSocket that stays until the server closes it."""

    def __init__(self, path: str, **headers: str) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming.put_nowait({"type": "websocket.connect"})
        host = settings.BASE_URL.partition("://")[2]
        given = {"host": host, "origin": settings.BASE_URL, **headers}
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("testserver", 80),
            "scheme": "ws",
            "subprotocols": [],
        }
        self.task = asyncio.create_task(application(scope, self.incoming.get, self.sent.put))

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), 30)

    async def leave(self, code: int) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": code})
        await asyncio.wait_for(self.task, 30)


async def test_socket_sends_the_reason_closes_and_accepts_no_command(front, agent, key):
    path = f"/agents/{agent.slug}/threads/{uuid4()}/stream/events"
    socket = Socket(path, **{"x-api-key": key})
    assert (await socket.next())["type"] == "websocket.accept"
    subscribing = {"id": 1, "method": "subscription.subscribe", "params": {"channels": ["values"]}}
    socket.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(subscribing)})
    assert json.loads((await socket.next())["text"])["type"] == "success"

    await in_thread(revoke, key)
    said, close = await socket.next(), await socket.next()
    socket.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(subscribing)})
    await socket.leave(4401)

    assert json.loads(said["text"]) == {
        "type": "error",
        "id": None,
        "error": "unauthenticated",
        "message": "The API key is no longer valid.",
    }
    assert close == {"type": "websocket.close", "code": 4401}
    assert socket.sent.empty()


# The cost


@pytest.mark.django_db
def test_thousand_connections_take_as_many_queries_as_two():
    workspaces = [WorkspaceFactory() for _ in range(20)]
    keys = [
        live_reauth.key_credential(key_for(w), w.pk, Permission.AGENTS_READ) for w in workspaces
    ]
    people = []
    for workspace in workspaces:
        user = member_of(workspace)
        cookie_of(user)
        people.append(
            live_reauth.session_credential(user.session, user, workspace.pk, Permission.AGENTS_READ)
        )
    counts = []

    for some in (1, 20):
        with CaptureQueriesContext(connection) as queries:
            assert live_reauth.find_rejected([*keys[:some], *people[:some]]) == {}
        counts.append(len(queries))

    assert counts == [6, 6]


@pytest.mark.django_db
def test_revalidation_gives_the_same_error_as_a_request():
    own = WorkspaceFactory()
    sister = WorkspaceFactory(organization=own.organization)
    bound, wide = key_for(own, "read"), key_for(own, "read")
    ApiKey.objects.filter(pk=row_of(wide).pk).update(is_organization_wide=True)
    stranger = WorkspaceFactory()
    asked = [
        (secret, workspace.pk, permission)
        for secret in (bound, wide, "slip_unknown")
        for workspace in (own, sister, stranger)
        for permission in (Permission.AGENTS_READ, Permission.AGENTS_RUN)
    ]

    refused = live_reauth.find_rejected({live_reauth.key_credential(*one) for one in asked})

    expected = {}
    for secret, workspace_id, permission in asked:
        api_keys.clear_cache()
        try:
            caller = api_keys.caller_for_key(secret=secret, workspace_id=workspace_id)
            expected[secret, workspace_id, permission] = caller.may(permission)
        except live_reauth.errors.AppError:
            expected[secret, workspace_id, permission] = False
    assert {one: live_reauth.key_credential(*one) not in refused for one in asked} == expected
    assert sum(expected.values()) == 3  # reading: the one in its own, the wide in two


async def test_connections_stay_open_while_the_database_is_unavailable(
    call, key, thread, monkeypatch, caplog
):
    failures = []

    def fails(asked: object) -> None:
        failures.append(asked)
        raise OperationalError("gone")

    monkeypatch.setattr(live_reauth, "REVALIDATION_INTERVAL_SECONDS", 0.01)
    with monkeypatch.context() as away:
        away.setattr(live_reauth, "find_rejected", fails)
        async with call.open("GET", f"/threads/{thread.thread_id}/stream") as request:
            await request.started()
            async with asyncio.timeout(30):
                while len(failures) < 3:
                    await asyncio.sleep(0.01)

            assert request.answer.events == []
            away.undo()
            await in_thread(revoke, key)
            assert (await request.ended()).events == [("error", REVOKED, None)]
