"""Every route, method and socket, asked by everybody who must not get through.

tests/test_tenancy.py walks with every method; here the (route, method) pairs that exist are asked
by many more callers: keys that are revoked or expired, roles that may only read, members without
the workspace. Routes join by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import cached_property
from typing import Any

import pytest
from channels.testing import HttpCommunicator, WebsocketCommunicator
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import get_resolver
from django.utils import timezone

from apps.agent_server.endpoints import routes as agents
from apps.api_keys import services as api_keys
from apps.api_keys.models import ApiKey
from apps.core.json import dumps_text
from apps.deployments import routing as deployments
from apps.organizations.models import Workspace
from config.asgi import application
from tests.audit.decisions import decisions
from tests.factories.api_keys import key_for, row_of
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)
from tests.methods import methods_of, views
from tests.other_tenant import PARAMETER, Foreign
from tests.test_tenancy import ALL, INGEST, OPEN, agent_routes

log = logging.getLogger(__name__)
SENTINEL = b"sentinel"
# The outsider sent the ids themselves; these words nobody sent.
SHOWN_ONLY_THERE = ("sentinel@example.com", "sentinel.example", "git.example/sentinel")
# One's own name, keys, organizations and ways in and out.
OWN = {
    "/orgs/members/basic", "/orgs", "/organizations", "/sign-out", "/end-impersonation",
    "/invitations/<str:token>", "/o/<uuid:workspace_id>/settings/keys/personal",
    "/o/<uuid:workspace_id>/settings/organization/leave",
}  # fmt: skip
PAGES = ("/o/", "/account", "/sign-", "/organizations", "/end-impersonation")
NO_WAY = {301, 302, 307, 401, 403, 404, 405}
# What may be done by who may only read: asking by POST, and what leads in or out.
HARMLESS = {"[asks]", "[none]", "[self]", "[mail]"}


def secret_of(workspace: Workspace, *scopes: str, **fields: Any) -> str:
    secret = key_for(workspace, *scopes)
    ApiKey.objects.filter(pk=row_of(secret).pk).update(**fields)
    api_keys.clear_cache()
    return secret


class Callers:
    """Who must not get through to that workspace, by name: headers, and who is signed in."""

    def __init__(self, foreign: Foreign) -> None:
        self.workspace = foreign.workspace

    @cached_property
    def keys(self) -> dict[str, str]:
        now, own = timezone.now(), self.workspace
        stranger = WorkspaceFactory()
        return {
            "unknown key": "slip_unknown",
            "revoked key": secret_of(own, revoked_at=now),
            "expired key": secret_of(own, expires_at=now - timedelta(seconds=1)),
            "outsider's key": key_for(stranger),
            "sister workspace's key": key_for(WorkspaceFactory(organization=own.organization)),
            "ingest-only key": key_for(own, "ingest"),
        }

    def people(self) -> dict[str, Any]:
        own = self.workspace
        outsider = WorkspaceMembershipFactory(role="admin").user
        member = MembershipFactory(organization=own.organization, role="member").user
        return {"outsider": outsider, "member of another workspace": member}


@pytest.fixture
def foreign() -> Foreign:
    return Foreign.make()


def pairs(foreign: Foreign) -> list[tuple[str, str]]:
    """The routes with the methods that they take."""
    taken = {(route, method) for method, route in agent_routes()}
    for route, view in views(get_resolver()):
        taken |= {(route, method) for method in ("get", *methods_of(route, view))}
    return sorted(
        (route, method)
        for route, method in taken
        if route in ALL and set(PARAMETER.findall(route)) <= set(foreign.values)
    )  # parameters that are not known fail in test_tenancy


def ask(client: Client, method: str, path: str, headers: dict[str, str]) -> Any:
    data = {} if method == "get" else {"data": "{}", "content_type": "application/json"}
    return getattr(client, method)(path, headers=headers, **data)


@pytest.mark.django_db
def test_nobody_who_has_no_right_gets_through(foreign):
    callers, asked, found = Callers(foreign), 0, []
    walks: list[tuple[str, Client, dict[str, str]]] = [("anonymous", Client(), {})]
    walks += [(name, Client(), {"X-Api-Key": key}) for name, key in callers.keys.items()]
    for name, user in callers.people().items():
        client = Client()
        client.force_login(user)
        walks.append((name, client, {"X-Tenant-Id": str(foreign.workspace.pk)}))

    for route, method in pairs(foreign):
        path = foreign.path(route)
        for name, client, headers in walks:
            if not _is_meant_for(name, route, path, foreign):
                continue
            asked += 1
            response = ask(client, method, path, headers)
            said = b"".join(response) if response.streaming else response.content
            leaks = SENTINEL in said.replace(path.encode(), b"")
            own_place = name.endswith("key") and not PARAMETER.search(route)
            refused = response.status_code in NO_WAY or (own_place and "workspace" not in path)
            if leaks or response.status_code >= 500 or not refused:
                found.append(f"{name}: {method} {route}: {response.status_code} {said[:120]!r}")

    log.info("%s pairs of route and caller", asked)
    assert not found, "\n".join(found)


def _is_meant_for(name: str, route: str, path: str, foreign: Foreign) -> bool:
    """Whether the caller has nothing to look for there: in a place of their own they may write."""
    if route.startswith(("/account", "/sign-up")):
        return False  # doors, and a person's own pages: tests/accounts
    if name == "ingest-only key":
        return route not in INGEST
    if name == "sister workspace's key" and route.startswith("/org-charts"):
        return False  # of its own organization; it has no points of workspaces out of reach
    if name in {"outsider's key", "sister workspace's key"}:
        # A bare update of an unknown run is kept for it, in the caller's own workspace.
        return bool(PARAMETER.search(route)) and route != "/runs/<uuid:run_id>"
    if name in {"outsider", "member of another workspace"}:
        return bool(PARAMETER.search(route))
    return True


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "annotator"])
def test_a_role_that_may_only_read_changes_nothing(foreign, role):
    own = foreign.workspace
    user = UserFactory()
    MembershipFactory(organization=own.organization, user=user, role="viewer")
    WorkspaceMembershipFactory(workspace=own, user=user, role=role)
    client = Client()
    client.force_login(user)
    headers = {"X-Tenant-Id": str(own.pk), "X-Organization-Id": str(own.organization_id)}
    before, found, asked = rows(own), [], 0

    for (method, route), decided in decisions().items():
        if route in OPEN or decided in HARMLESS or _is_own(route):
            continue
        if "feedback" in route and role == "annotator":
            continue
        asked += 1
        response = ask(client, method, foreign.path(route), headers)
        if response.status_code not in NO_WAY:
            found.append(f"{method} {route}: {response.status_code} {response.content[:120]!r}")

    log.info("%s pairs of route and caller", asked)
    assert not found, "\n".join(found)
    assert rows(own) == before


@pytest.mark.django_db
def test_ids_of_elsewhere_in_bodies_reach_nothing(foreign):
    """Who may do everything in a place of their own names the rows of another in each body."""
    outsider = WorkspaceFactory()
    headers = {"X-Api-Key": key_for(outsider), "X-Tenant-Id": str(outsider.pk)}
    body, before, found = dumps_text(body_of(foreign)), rows(foreign.workspace), []
    wanted = [one for one in decisions() if not PARAMETER.search(one[1])]

    for method, route in wanted:
        if route.startswith(PAGES):
            continue  # a key opens none
        response = getattr(Client(), method)(
            route, body, content_type="application/json", headers=headers
        )
        said = response.content.decode(errors="replace")
        if response.status_code >= 500 or any(name in said for name in SHOWN_ONLY_THERE):
            found.append(f"{method} {route}: {response.status_code} {said[:120]!r}")

    assert not found, "\n".join(found)
    assert rows(foreign.workspace) == before


def body_of(foreign: Foreign) -> dict[str, Any]:
    """Every id of the foreign rows, under every name that a body may have for it."""
    of = {name: str(value) for name, value in foreign.values.items()}
    run, project = of["run_id"], of["project_id"]
    return {
        **of,
        "id": project, "ids": [project], "project_ids": [project],
        "session": project, "session_id": project, "session_ids": [project],
        "reference_session_id": project, "trace": run, "trace_ids": [run], "runs": [run],
        "run_ids": [run], "run": run, "parent_run_id": run, "tenant_id": of["workspace_id"],
        "workspace_ids": [of["workspace_id"]], "workspaces": [of["workspace_id"]],
        "tag_value_ids": [of["tag_value_id"]], "resource_type": "project", "resource_id": project,
        "resource_ids": [project], "bulk_export_destination_id": of["destination_id"],
        "user_id": of["identity_id"], "role": of["role_id"], "limit_type": "monthly_traces",
        "limit_value": 1, "share_tokens": [of["share_token"]], "key": "mine", "name": "mine",
        "value": "mine", "display_name": "mine", "title": "mine", "metadata": {"a": ["b"]},
        "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z", "score": 1,
    }  # fmt: skip


def _is_own(route: str) -> bool:
    """What is a person's own, whatever their role: the account, keys of their own, leaving."""
    own = ("/account", "/sign-up", "/api-key/current", "/me", "/orgs/pending")
    return route.startswith(own) or route in OWN


def rows(workspace: Workspace) -> dict[str, str]:
    """What a workspace has in each table, as a digest."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE a.attname = 'workspace_id' AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(
                f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM \"{table}\" t"
                " WHERE workspace_id = %s",
                [workspace.pk],
            )
            found[table] = cursor.fetchone()[0]
    return found


@pytest.fixture
def committed(transactional_db: None) -> Any:
    """Consumers have connections of their own, so what they are to find is committed."""
    yield Foreign.make()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE trace_store_run, trace_store_run_payload")


@pytest.mark.xdist_group("machine")
def test_no_stream_and_no_socket_opens_to_who_has_no_right(committed):
    keys = Callers(committed).keys
    callers = {"anonymous": {}, **{name: {"x-api-key": key} for name, key in keys.items()}}
    streams = [
        (method, committed.path(path)) for method, path in agent_routes() if path not in OPEN
    ]
    sockets = socket_paths(committed)

    async def walk() -> list[str]:
        found = []
        for name, headers in callers.items():
            raw = [(n.encode(), v.encode()) for n, v in headers.items()]
            for method, path in streams:
                status, body = await stream(method, path, raw)
                if status not in NO_WAY or SENTINEL in body.replace(path.encode(), b""):
                    found.append(f"{name}: {method} {path}: {status} {body[:120]!r}")
            opened = [path for path in sockets if await opens(path, raw)]
            found += [f"{name}: socket {path} opened" for path in opened]
        return found

    found = asyncio.run(walk())

    asked = len(callers) * (len(streams) + len(sockets))
    log.info("%s pairs of route and caller", asked)
    assert not found, "\n".join(found)


def socket_paths(foreign: Foreign) -> list[str]:
    every = [*deployments.websocket_routes, *agents.websocket_routes]
    return [foreign.path(f"/{route.pattern}") for route in every]


async def stream(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    body = b"" if method == "get" else b"{}"
    length = (b"content-length", str(len(body)).encode())
    asked = HttpCommunicator(
        application, method.upper(), path, body=body, headers=[*headers, length]
    )
    answer = await asked.get_response(timeout=20)
    return answer["status"], answer["body"]


async def opens(path: str, headers: list[tuple[bytes, bytes]]) -> bool:
    origin = (b"origin", settings.BASE_URL.encode())
    asked = WebsocketCommunicator(application, path, headers=[*headers, origin])
    connected, _ = await asked.connect(timeout=20)
    if connected:
        answer = await asked.receive_output(timeout=20)
        connected = answer["type"] != "websocket.close"
    await asked.disconnect()
    return connected
