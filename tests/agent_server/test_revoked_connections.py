"""Open connections end when their caller loses access, each as its protocol requires."""

from __future__ import annotations

import asyncio
import json
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
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

HELLO = {"assistant_id": "agent", "input": {"n": 1}}
REVOKED = {"error": "HTTPException", "message": "401: The API key is no longer valid."}
SIGNED_OUT = {"error": "HTTPException", "message": "401: The session has ended. Sign in again."}


def revoke(key: str) -> None:
    ApiKey.objects.filter(pk=api_key_row(key).pk).update(revoked_at=timezone.now())


def expire(key: str) -> None:
    ApiKey.objects.filter(pk=api_key_row(key).pk).update(expires_at=timezone.now())


def remove_scopes(key: str) -> None:
    ApiKey.objects.filter(pk=api_key_row(key).pk).update(scopes=["ingest"])


async def test_thread_streams_end_with_an_error(asgi_app, agent, thread):
    missing_permission = {
        "error": "HTTPException",
        "message": "403: Permission agents:read is required.",
    }
    expected_errors = {revoke: REVOKED, expire: REVOKED, remove_scopes: missing_permission}
    path = f"/threads/{thread.thread_id}/stream"

    async def follow(revocation: Any) -> Any:
        key = await in_thread(key_for, agent.workspace)
        async with Caller(agent.slug, key).open("GET", path) as request:
            await request.wait_for_start()
            await in_thread(revocation, key)
            answer = await request.wait_for_end()
            return answer.events

    events_by_stream = await asyncio.gather(*map(follow, expected_errors))

    assert events_by_stream == [[("error", error, None)] for error in expected_errors.values()]
    # With a query and the time to write, within two seconds.
    assert live_reauth.REVALIDATION_INTERVAL_SECONDS < 1


async def test_stream_of_a_run_ends_and_the_run_continues(call, key, worker, thread):
    async with call.open("POST", f"/threads/{thread.thread_id}/runs/stream", HELLO) as request:
        run = await worker.claim_run()
        await worker.publish(run, ("values", {"n": 1}))
        await request.wait_until(lambda answer: answer.names == ["values"])
        await in_thread(revoke, key)
        answer = await request.wait_for_end()

    assert answer.events == [("values", {"n": 1}, None), ("error", REVOKED, None)]
    assert (await in_thread(AgentRun.unscoped.get, pk=run.pk)).status == "running"


async def test_run_that_ends_on_disconnect_is_cancelled(call, key, worker, thread):
    body = {**HELLO, "on_disconnect": "cancel"}
    async with call.open("POST", f"/threads/{thread.thread_id}/runs/stream", body) as request:
        run = await worker.claim_run()
        await request.wait_for_start()
        await in_thread(revoke, key)
        await request.wait_for_end()

        assert await worker.next_cancelled_run() == run.pk


@pytest.mark.parametrize("address", ["/threads/{t}/runs/wait", "/runs/wait"])
async def test_request_waiting_for_a_result_gets_the_rejection(call, key, worker, thread, address):
    path = address.format(t=thread.thread_id)
    async with call.open("POST", path, HELLO) as request:
        await worker.claim_run()
        await in_thread(revoke, key)
        answer = await request.wait_for_end()

    assert answer.json() == {"__error__": REVOKED}


async def test_channel_event_streams_end(call, key, thread):
    path, body = f"/threads/{thread.thread_id}/stream/events", {"channels": ["values"]}
    async with call.open("POST", path, body) as request:
        await request.wait_for_start()
        await in_thread(revoke, key)
        answer = await request.wait_for_end()

    assert answer.events[-1] == ("error", REVOKED, None)


async def test_streams_with_other_keys_stay_open(call, key, agent, thread):
    other = Caller(agent.slug, await in_thread(key_for, agent.workspace))
    path = f"/threads/{thread.thread_id}/stream"
    async with other.open("GET", path) as staying, call.open("GET", path) as leaving:
        await staying.wait_for_start()
        await leaving.wait_for_start()
        await in_thread(revoke, key)
        await leaving.wait_for_end()
        await asyncio.sleep(2 * live_reauth.REVALIDATION_INTERVAL_SECONDS)

        assert staying.answer.events == []
        assert not staying._ended


# Sessions


def create_member(workspace: Any) -> Any:
    user = UserFactory()
    MembershipFactory(organization=workspace.organization, user=user, role="member")
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="editor")
    return user


def sign_in(user: Any) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    user.session = client.cookies["slipway_session"].value
    return {"cookie": f"slipway_session={user.session}"}


def sign_out(member: Any) -> None:
    Session.objects.filter(pk=member.session).delete()


def expire_session(member: Any) -> None:
    rows = Session.objects.filter(pk=member.session)
    rows.update(expire_date=timezone.now() - timedelta(seconds=1))


def change_password(member: Any) -> None:
    member.set_password("another and a longer one")
    member.save()


def deactivate(member: Any) -> None:
    member.is_active = False
    member.save()


def remove_membership(member: Any) -> None:
    WorkspaceMembership.objects.filter(user=member).delete()
    Membership.objects.filter(user=member).delete()


async def test_browser_streams_end_with_their_session_or_membership(asgi_app, agent, thread):
    not_found = {"error": "HTTPException", "message": "404: No such workspace."}
    expected_errors = dict.fromkeys(
        (sign_out, expire_session, change_password, deactivate), SIGNED_OUT
    )
    expected_errors[remove_membership] = not_found

    async def follow(revocation: Any) -> Any:
        member = await in_thread(create_member, agent.workspace)
        caller = Caller(agent.slug, **await in_thread(sign_in, member))
        async with caller.open("GET", f"/threads/{thread.thread_id}/stream") as request:
            assert (await request.wait_for_start()).status == 200
            await in_thread(revocation, member)
            return (await request.wait_for_end()).events

    events_by_stream = await asyncio.gather(*map(follow, expected_errors))

    assert events_by_stream == [[("error", error, None)] for error in expected_errors.values()]


# Sockets


class Socket:
    """A WebSocket connection that stays open until the server closes it."""

    def __init__(self, path: str, **headers: str) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.incoming.put_nowait({"type": "websocket.connect"})
        host = settings.BASE_URL.partition("://")[2]
        all_headers = {"host": host, "origin": settings.BASE_URL, **headers}
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("testserver", 80),
            "scheme": "ws",
            "subprotocols": [],
        }
        self.task = asyncio.create_task(application(scope, self.incoming.get, self.sent.put))

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), 30)

    async def disconnect(self, code: int) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": code})
        await asyncio.wait_for(self.task, 30)


async def test_socket_sends_the_reason_closes_and_accepts_no_command(asgi_app, agent, key):
    path = f"/agents/{agent.slug}/threads/{uuid4()}/stream/events"
    socket = Socket(path, **{"x-api-key": key})
    assert (await socket.next())["type"] == "websocket.accept"
    subscription = {"id": 1, "method": "subscription.subscribe", "params": {"channels": ["values"]}}
    socket.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(subscription)})
    assert json.loads((await socket.next())["text"])["type"] == "success"

    await in_thread(revoke, key)
    message, close = await socket.next(), await socket.next()
    socket.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(subscription)})
    await socket.disconnect(4401)

    assert json.loads(message["text"]) == {
        "type": "error",
        "id": None,
        "error": "unauthenticated",
        "message": "The API key is no longer valid.",
    }
    assert close == {"type": "websocket.close", "code": 4401}
    assert socket.sent.empty()


# Number of queries


@pytest.mark.django_db
def test_thousand_connections_take_as_many_queries_as_two():
    workspaces = [WorkspaceFactory() for _ in range(20)]
    key_credentials = [
        live_reauth.key_credential(key_for(w), w.pk, Permission.AGENTS_READ) for w in workspaces
    ]
    session_credentials = []
    for workspace in workspaces:
        user = create_member(workspace)
        sign_in(user)
        session_credentials.append(
            live_reauth.session_credential(user.session, user, workspace.pk, Permission.AGENTS_READ)
        )
    counts = []

    for count in (1, 20):
        with CaptureQueriesContext(connection) as queries:
            assert (
                live_reauth.find_rejected([*key_credentials[:count], *session_credentials[:count]])
                == {}
            )
        counts.append(len(queries))

    assert counts == [6, 6]


@pytest.mark.django_db
def test_revalidation_gives_the_same_error_as_a_request():
    home = WorkspaceFactory()
    sister = WorkspaceFactory(organization=home.organization)
    workspace_key, organization_key = key_for(home, "read"), key_for(home, "read")
    ApiKey.objects.filter(pk=api_key_row(organization_key).pk).update(is_organization_wide=True)
    foreign = WorkspaceFactory()
    requests = [
        (secret, workspace.pk, permission)
        for secret in (workspace_key, organization_key, "slip_unknown")
        for workspace in (home, sister, foreign)
        for permission in (Permission.AGENTS_READ, Permission.AGENTS_RUN)
    ]

    rejected = live_reauth.find_rejected(
        {live_reauth.key_credential(*request) for request in requests}
    )

    expected = {}
    for secret, workspace_id, permission in requests:
        api_keys.clear_cache()
        try:
            caller = api_keys.caller_for_key(secret=secret, workspace_id=workspace_id)
            expected[secret, workspace_id, permission] = caller.may(permission)
        except live_reauth.errors.AppError:
            expected[secret, workspace_id, permission] = False
    assert {
        request: live_reauth.key_credential(*request) not in rejected for request in requests
    } == expected
    assert (
        sum(expected.values()) == 3
    )  # reading: the workspace key in one workspace, the organization key in two


async def test_revalidation_stops_when_the_last_rejected_connection_closes(monkeypatch):
    credential = live_reauth.Credential(uuid4(), Permission.AGENTS_READ)
    rejections = []
    error = live_reauth.errors.Unauthenticated()
    monkeypatch.setattr(live_reauth, "REVALIDATION_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(
        live_reauth, "find_rejected", lambda credentials: dict.fromkeys(credentials, error)
    )
    tasks_before = asyncio.all_tasks()

    with live_reauth.revalidating(credential, rejections.append):
        async with asyncio.timeout(30):
            while not rejections:
                await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)

    assert rejections == [error]
    assert asyncio.all_tasks() == tasks_before


async def test_connections_stay_open_while_the_database_is_unavailable(
    call, key, thread, monkeypatch, caplog
):
    failures = []

    def fail_query(credentials: object) -> None:
        failures.append(credentials)
        raise OperationalError("gone")

    monkeypatch.setattr(live_reauth, "REVALIDATION_INTERVAL_SECONDS", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(live_reauth, "find_rejected", fail_query)
        async with call.open("GET", f"/threads/{thread.thread_id}/stream") as request:
            await request.wait_for_start()
            async with asyncio.timeout(30):
                while len(failures) < 3:
                    await asyncio.sleep(0.01)

            assert request.answer.events == []
            patched.undo()
            await in_thread(revoke, key)
            assert (await request.wait_for_end()).events == [("error", REVOKED, None)]
