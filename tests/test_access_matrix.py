"""Every route, method and socket, requested by callers without access.

tests/test_tenancy.py has callers without a key and of other organizations; here each method of each
route is requested by more of them: revoked and expired keys, read-only roles, members without the
workspace. New routes are included automatically.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import cached_property
from typing import Any

import pytest
from channels.testing import HttpCommunicator, WebsocketCommunicator
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.agent_server.endpoints import routes as agents
from apps.agent_server.messaging import calls as graph_calls
from apps.api_keys import services as api_keys
from apps.api_keys.models import ApiKey
from apps.core.json import dumps_text
from apps.deployments import consumers as deployments
from apps.organizations.models import User, Workspace
from apps.tracing.services import ensure_default_project
from config.asgi import application
from tests import agent_client
from tests.audit.decisions import load_decisions
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)
from tests.factories.tracing import ProjectFactory
from tests.other_tenant import PARAMETER, OtherTenant
from tests.table_writes import count_writes, find_written
from tests.test_tenancy import METHODS, OPEN, agent_routes

pytestmark = pytest.mark.exhaustive

log = logging.getLogger(__name__)
SENTINEL = b"sentinel"
# The outsider knows the ids, but not these values.
UNKNOWN_TO_OUTSIDER = ("sentinel@example.com", "sentinel.example", "git.example/sentinel")
# Routes of the user's own name, keys, organizations and sessions.
OWN_ROUTES = {
    "/orgs/members/basic", "/orgs", "/organizations", "/sign-out", "/end-impersonation",
    "/invitations/<str:token>", "/o/<uuid:workspace_id>/settings/keys/personal",
    "/o/<uuid:workspace_id>/settings/organization/leave",
}  # fmt: skip
PAGES = ("/o/", "/account", "/sign-", "/organizations", "/end-impersonation")
REFUSED_STATUSES = {301, 302, 307, 401, 403, 404, 405}
# Browsers redeem a feedback token by GET, as the SDK documents.
WRITING_READS = {"/feedback/tokens/<uuid:token>"}
# POST requests that read-only roles may send: queries, and routes of their own account.
READ_ONLY_DECISIONS = {"[asks]", "[none]", "[self]", "[mail]"}
# Annotators review items.
REVIEW_ROUTES = {
    "/annotation-queues/status/<uuid:queue_item_id>",
    "/v1/platform/annotation-queues/items/<uuid:queue_item_id>/status",
    *(
        f"/o/<uuid:workspace_id>/annotation/<uuid:queue_id>/i/<uuid:queue_item_id>/{step}"
        for step in ("reserve", "score", "done", "skip")
    ),
}
# tests/test_tenancy.py sends every method of every route as these.
CALLERS_ELSEWHERE = {"unknown key", "ingest-only key", "outsider's key"}
# One query finds neither them nor unknown keys: each route and method gets one of the two.
ENDED_KEYS = ("revoked key", "expired key")


def create_key(workspace: Workspace, *scopes: str, **fields: Any) -> str:
    secret = key_for(workspace, *scopes)
    ApiKey.objects.filter(pk=api_key_row(secret).pk).update(**fields)
    api_keys.clear_cache()
    return secret


class Callers:
    """Callers without access to the workspace, by name: API keys and users."""

    def __init__(self, other_tenant: OtherTenant) -> None:
        self.workspace = other_tenant.workspace

    @cached_property
    def keys(self) -> dict[str, str]:
        now, workspace = timezone.now(), self.workspace
        outsider = WorkspaceFactory()
        return {
            "unknown key": "slip_unknown",
            "revoked key": create_key(workspace, revoked_at=now),
            "expired key": create_key(workspace, expires_at=now - timedelta(seconds=1)),
            "outsider's key": key_for(outsider),
            "sister workspace's key": key_for(
                WorkspaceFactory(organization=workspace.organization)
            ),
            "ingest-only key": key_for(workspace, "ingest"),
        }

    def member(self) -> User:
        """A member of the organization without a workspace."""
        organization = self.workspace.organization
        return MembershipFactory(organization=organization, role="member").user


@pytest.fixture
def other_tenant() -> OtherTenant:
    return OtherTenant.make()


def list_route_methods(other_tenant: OtherTenant) -> list[tuple[str, str]]:
    """Return the routes with their methods."""
    return sorted(
        (route, method)
        for route, methods in METHODS.items()
        if set(PARAMETER.findall(route)) <= set(other_tenant.values)
        for method in methods
    )  # unknown parameters fail in test_tenancy


def send_request(client: Client, method: str, path: str, headers: dict[str, str]) -> Any:
    data = {} if method == "get" else {"data": "{}", "content_type": "application/json"}
    return getattr(client, method)(path, headers=headers, **data)


@pytest.mark.django_db
def test_callers_without_access_get_no_data_from_any_route(other_tenant):
    callers, request_count, violations = Callers(other_tenant), 0, []
    callers_with_clients: list[tuple[str, Client, dict[str, str]]] = [
        (name, Client(), {"X-Api-Key": key})
        for name, key in callers.keys.items()
        if name not in CALLERS_ELSEWHERE
    ]
    member = Client()
    member.force_login(callers.member())
    workspace_headers = {"X-Tenant-Id": str(other_tenant.workspace.pk)}
    callers_with_clients.append(("member without a workspace", member, workspace_headers))

    for number, (route, method) in enumerate(list_route_methods(other_tenant)):
        path = other_tenant.path(route)
        for name, client, headers in callers_with_clients:
            if name == ENDED_KEYS[number % 2] or not _is_meant_for(name, route, path, other_tenant):
                continue
            request_count += 1
            response = send_request(client, method, path, headers)
            body = b"".join(response) if response.streaming else response.content
            leaks = SENTINEL in body.replace(path.encode(), b"")
            is_own_workspace = name.endswith("key") and not PARAMETER.search(route)
            is_refused = response.status_code in REFUSED_STATUSES or (
                is_own_workspace and "workspace" not in path
            )
            if leaks or response.status_code >= 500 or not is_refused:
                violations.append(
                    f"{name}: {method} {route}: {response.status_code} {body[:120]!r}"
                )

    log.info("%s pairs of route and caller", request_count)
    assert not violations, "\n".join(violations)


def _is_meant_for(name: str, route: str, path: str, other_tenant: OtherTenant) -> bool:
    """Whether the caller must be refused there: in their own workspace they may write."""
    if route.startswith(("/account", "/sign-up")):
        return False  # public pages and the user's own pages: tests/accounts
    if name == "sister workspace's key" and route.startswith("/org-charts"):
        return False  # charts of its own organization have no points of other workspaces
    if name == "sister workspace's key":
        # An update of an unknown run is deferred in the caller's own workspace.
        return bool(PARAMETER.search(route)) and route != "/runs/<uuid:run_id>"
    if name == "member without a workspace":
        return bool(PARAMETER.search(route))
    return True


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "annotator"])
def test_read_only_roles_change_nothing(other_tenant, role):
    workspace = other_tenant.workspace
    user = UserFactory()
    MembershipFactory(organization=workspace.organization, user=user, role="viewer")
    WorkspaceMembershipFactory(workspace=workspace, user=user, role=role)
    client = Client()
    client.force_login(user)
    headers = {
        "X-Tenant-Id": str(workspace.pk),
        "X-Organization-Id": str(workspace.organization_id),
    }
    digests_before, violations, request_count = digest_tables(workspace), [], 0

    for (method, route), decision in load_decisions().items():
        if route in OPEN or decision in READ_ONLY_DECISIONS or _is_own(route):
            continue
        if role == "annotator" and ("feedback" in route or route in REVIEW_ROUTES):
            continue
        request_count += 1
        response = send_request(client, method, other_tenant.path(route), headers)
        if response.status_code not in REFUSED_STATUSES:
            violations.append(
                f"{method} {route}: {response.status_code} {response.content[:120]!r}"
            )

    log.info("%s pairs of route and caller", request_count)
    assert not violations, "\n".join(violations)
    assert digest_tables(workspace) == digests_before


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker ends a run or answers a graph call: each would take its whole time limit."""
    monkeypatch.setattr(agent_client, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(graph_calls, "MAX_CALL_SECONDS", 0)


@pytest.mark.django_db
def test_reads_by_an_owner_write_nothing(other_tenant, short_waits):
    """`GET .../webhook-secret` created the secret that it returned."""
    workspace = other_tenant.workspace
    user = MembershipFactory(organization=workspace.organization, role="owner").user
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
    client = Client()
    client.force_login(user)
    headers = {
        "X-Tenant-Id": str(workspace.pk),
        "X-Organization-Id": str(workspace.organization_id),
    }
    ensure_default_project(workspace.pk)  # as the creation of each workspace does
    routes = [
        route
        for route, method in list_route_methods(other_tenant)
        if method == "get" and route not in WRITING_READS
    ]
    succeeded: set[str] = set()

    def read(route: str) -> None:
        response = send_request(client, "get", other_tenant.path(route), headers)
        if response.status_code == 200:
            succeeded.add(route)
        if response.streaming:
            b"".join(response)

    writing = find_writing_routes(workspace, read, routes)

    log.info("%s routes were read", len(succeeded))
    assert writing == []
    assert len(succeeded) > 100


def find_writing_routes(
    workspace: Workspace, read: Callable[[str], None], routes: list[str]
) -> list[tuple[str, list[str]]]:
    """Read each route; return those that changed rows of the workspace, with the tables."""
    writing, digests = [], digest_tables(workspace)
    for route in routes:
        writes = count_writes()
        read(route)
        if written := find_written(writes):
            after = digest_tables(workspace, written)
            if changed := sorted(name for name in after if after[name] != digests[name]):
                writing.append((route, changed))
            digests |= after
    if digest_tables(workspace) != digests:
        writing.append(("another session", []))
    return writing


@pytest.mark.django_db
def test_a_route_that_writes_is_found(other_tenant):
    workspace, elsewhere = other_tenant.workspace, WorkspaceFactory()

    def read(route: str) -> None:
        if route == "/writes":
            ProjectFactory(workspace=workspace)
        if route == "/writes-elsewhere":
            ProjectFactory(workspace=elsewhere)

    routes = ["/reads", "/writes", "/writes-elsewhere", "/reads-too", "/writes"]
    assert find_writing_routes(workspace, read, routes[:1]) == []
    assert find_writing_routes(workspace, read, routes) == [
        ("/writes", ["tracing_project"]),
        ("/writes", ["tracing_project"]),
    ]


@pytest.mark.django_db
def test_ids_of_another_tenant_in_bodies_have_no_effect(other_tenant):
    """An administrator of another workspace sends the ids of the tenant's rows in each body."""
    outsider = WorkspaceFactory()
    headers = {"X-Api-Key": key_for(outsider), "X-Tenant-Id": str(outsider.pk)}
    body, digests_before, violations = (
        dumps_text(build_body(other_tenant)),
        digest_tables(other_tenant.workspace),
        [],
    )
    routes_without_parameter = [key for key in load_decisions() if not PARAMETER.search(key[1])]

    for method, route in routes_without_parameter:
        if route.startswith(PAGES):
            continue  # pages do not accept keys
        response = getattr(Client(), method)(
            route, body, content_type="application/json", headers=headers
        )
        text = response.content.decode(errors="replace")
        if response.status_code >= 500 or any(name in text for name in UNKNOWN_TO_OUTSIDER):
            violations.append(f"{method} {route}: {response.status_code} {text[:120]!r}")

    assert not violations, "\n".join(violations)
    assert digest_tables(other_tenant.workspace) == digests_before


def build_body(other_tenant: OtherTenant) -> dict[str, Any]:
    """Return a body with each id of the other tenant under each field name that bodies use."""
    ids = {name: str(value) for name, value in other_tenant.values.items()}
    run, project = ids["run_id"], ids["project_id"]
    return {
        **ids,
        "id": project, "ids": [project], "project_ids": [project],
        "session": project, "session_id": project, "session_ids": [project],
        "reference_session_id": project, "trace": run, "trace_ids": [run], "runs": [run],
        "run_ids": [run], "run": run, "parent_run_id": run, "tenant_id": ids["workspace_id"],
        "workspace_ids": [ids["workspace_id"]], "workspaces": [ids["workspace_id"]],
        "tag_value_ids": [ids["tag_value_id"]], "resource_type": "project", "resource_id": project,
        "resource_ids": [project], "bulk_export_destination_id": ids["destination_id"],
        "user_id": ids["identity_id"], "role": ids["role_id"], "limit_type": "monthly_traces",
        "limit_value": 1, "share_tokens": [ids["share_token"]], "key": "mine", "name": "mine",
        "value": "mine", "display_name": "mine", "title": "mine", "metadata": {"a": ["b"]},
        "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z", "score": 1,
    }  # fmt: skip


def _is_own(route: str) -> bool:
    """Whether the route belongs to the user whatever their role: account, own keys, leaving."""
    prefixes = ("/account", "/sign-up", "/api-key/current", "/me", "/orgs/pending")
    return route.startswith(prefixes) or route in OWN_ROUTES


def digest_tables(workspace: Workspace, tables: Collection[str] | None = None) -> dict[str, str]:
    """Return a digest of the workspace's rows in each table, or in those of the tables."""
    digests = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE a.attname = 'workspace_id' AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace"
        )
        for (table,) in cursor.fetchall():
            if tables is not None and table not in tables:
                continue
            cursor.execute(
                f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM \"{table}\" t"
                " WHERE workspace_id = %s",
                [workspace.pk],
            )
            digests[table] = cursor.fetchone()[0]
    return digests


@pytest.fixture
def committed(transactional_db: None) -> Any:
    """The other tenant with committed rows, as consumers have their own connections."""
    yield OtherTenant.make()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE trace_store_run, trace_store_run_payload")


@pytest.mark.integration
def test_callers_without_access_open_no_stream_and_no_socket(committed):
    keys = Callers(committed).keys
    callers = {"anonymous": {}, **{name: {"x-api-key": key} for name, key in keys.items()}}
    streams = [
        (method, committed.path(path)) for method, path in agent_routes() if path not in OPEN
    ]
    sockets = socket_paths(committed)

    async def request_all() -> list[str]:
        violations = []
        for name, headers in callers.items():
            raw = [(n.encode(), v.encode()) for n, v in headers.items()]
            for method, path in streams:
                status, body = await request_stream(method, path, raw)
                if status not in REFUSED_STATUSES or SENTINEL in body.replace(path.encode(), b""):
                    violations.append(f"{name}: {method} {path}: {status} {body[:120]!r}")
            opened = [path for path in sockets if await opens_socket(path, raw)]
            violations += [f"{name}: socket {path} opened" for path in opened]
        return violations

    violations = asyncio.run(request_all())

    request_count = len(callers) * (len(streams) + len(sockets))
    log.info("%s pairs of route and caller", request_count)
    assert not violations, "\n".join(violations)


def socket_paths(other_tenant: OtherTenant) -> list[str]:
    every = [*deployments.websocket_routes, *agents.websocket_routes]
    return [other_tenant.path(f"/{route.pattern}") for route in every]


async def request_stream(
    method: str, path: str, headers: list[tuple[bytes, bytes]]
) -> tuple[int, bytes]:
    body = b"" if method == "get" else b"{}"
    length = (b"content-length", str(len(body)).encode())
    communicator = HttpCommunicator(
        application, method.upper(), path, body=body, headers=[*headers, length]
    )
    answer = await communicator.get_response(timeout=60)
    return answer["status"], answer["body"]


async def opens_socket(path: str, headers: list[tuple[bytes, bytes]]) -> bool:
    origin = (b"origin", settings.BASE_URL.encode())
    communicator = WebsocketCommunicator(application, path, headers=[*headers, origin])
    connected, _ = await communicator.connect(timeout=60)
    if connected:
        answer = await communicator.receive_output(timeout=60)
        connected = answer["type"] != "websocket.close"
    await communicator.disconnect()
    return connected
