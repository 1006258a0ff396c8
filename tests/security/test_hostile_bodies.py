"""Hostile bodies on every writing route of the platform, as an owner with all rights.

A body is hostile as a whole, or is a valid one with one value replaced, so that what lies behind
the checks of other fields is reached, too. None may end in an unhandled error, errors have the one
shape, and a refused request changes nothing.

`make test` sends a body to each route, `make fuzz` two for each of its examples.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import pytest
from django.conf import settings as django_settings
from django.db import DatabaseError, connection, transaction
from django.test import Client

from apps.agent_server.a2a.rpc import Method
from apps.core.errors import AppError
from apps.core.http.loop_response import LoopResponse
from apps.core.json import dumps
from apps.exports import services as exports
from apps.organizations.services.workspaces import set_secrets
from apps.platform_mcp.tools import TOOLS
from apps.providers import transport
from tests.audit.decisions import load_decisions
from tests.examples import EXAMPLES
from tests.factories.api_keys import key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceMembershipFactory,
)
from tests.other_tenant import PARAMETER, OtherTenant
from tests.playground.conftest import (
    forget_partitions,
    objects,
    read,
    shared_connection,
)
from tests.security.hostile_bodies import (
    FORM,
    JSON,
    HostileBody,
    encode_form,
    list_forms,
    list_json_bodies,
    list_whole_bodies,
)
from tests.security.watched_bodies import (
    Readings,
    encode,
    find_form,
    find_json_body,
    without_refused,
)
from tests.table_writes import count_writes, find_written
from tests.test_access_matrix import build_body, short_waits
from tests.test_tenancy import agent_routes

__all__ = ["forget_partitions", "objects", "shared_connection", "short_waits"]

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.django_db,
    pytest.mark.usefixtures("short_waits"),
]

log = logging.getLogger(__name__)
MAX_CPU_SECONDS = 3.0
"""Of a request without its database; anyone may repeat it."""
ROUTES_FOR_KEYS = ("/agents/", "/otel/", "/mcp", "/runs/batch", "/runs/multipart")
FORM_PAGES = ("/o/", "/account", "/sign-", "/organizations", "/invitations", "/end-", "/oauth/")
EXPECTED_SERVER_ERRORS = {501, 502, 504}
"""Features that the platform documents as missing, and calls to a provider out of reach."""
IS_LONG = "EXAMPLES" in os.environ
"""Whether to look for better bodies, and for changes by refused requests."""
COUNT = 2 * EXAMPLES if IS_LONG else 1
"""Bodies of a route: `make test` sends one, another one to each route, `make fuzz` 200."""
PIECES = 32 if IS_LONG else 4
"""The routes are divided among tests, so that each has an end and they run in parallel."""
UNRELATED = {"django_session", "audit_entry", "api_keys_apikey", "ingest_rejectioncount"}
"""Tables of sessions, failed sign-ins, the last use of a key, and counts of refusals."""
_FILTER = "eq(is_root, true)"
KNOWN: dict[str, Any] = {
    **dict.fromkeys(["filter", "trace_filter", "tree_filter", "search_filter"], _FILTER),
    "as_of": "latest", "commit": "latest", "template_format": "f-string", "select": ["id"],
}  # fmt: skip
HOSTILE_QUERY = "limit=-1&offset=1" + "0" * 30 + "&order=%3B&cursor=%00&q=" + "%5B" * 500


class Attacker:
    """An owner of the organization, who sends bodies in transactions that are rolled back."""

    def __init__(self, tenant: OtherTenant) -> None:
        workspace = tenant.workspace
        user = MembershipFactory(organization=workspace.organization, role="owner").user
        WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
        self._client = Client(
            raise_request_exception=False,
            headers={
                "X-Tenant-Id": str(workspace.pk),
                "X-Organization-Id": str(workspace.organization_id),
            },
        )
        self._client.force_login(user)
        self._session = self._client.cookies[django_settings.SESSION_COOKIE_NAME].value
        self._key = key_for(workspace)
        self.uses_key = False
        self.slowest = (0.0, "")
        self.statuses: Counter[int] = Counter()

    def send(self, method: str, path: str, body: HostileBody, *, writes: bool = False) -> Answer:
        """Send the body; with `writes`, look for changes by a refused request."""
        self._client.cookies[django_settings.SESSION_COOKIE_NAME] = self._session
        headers = {"X-Api-Key": self._key} if self.uses_key else {}
        counts = count_writes() if writes else {}
        savepoint = transaction.savepoint()
        written: dict[str, str] = {}
        began = time.process_time()
        try:
            response = self._client.generic(
                method.upper(),
                path,
                body.content,
                content_type=body.content_type,
                headers=headers,
            )
            answer = _check(response)
            if writes and 400 <= answer.status < 500:
                written = _find_changed(counts)
        finally:
            transaction.savepoint_rollback(savepoint)
        seconds = time.process_time() - began
        self.slowest = max(self.slowest, (seconds, f"{method} {path} {body.name}"))
        self.statuses[answer.status] += 1
        if seconds > MAX_CPU_SECONDS:
            return answer._replace(problem=f"{seconds:.1f} s of CPU")
        if written and written != digest(written):
            return answer._replace(problem=f"{answer.status}, but wrote to {list(written)}")
        return answer


def _find_changed(counts: dict[str, int]) -> dict[str, str]:
    try:
        return digest(find_written(counts) - UNRELATED)
    except DatabaseError:  # the request's transaction failed as a whole
        return {}


def digest(tables: Collection[str]) -> dict[str, str]:
    """Return a digest of the rows of each table."""
    digests = {}
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t")
            digests[table] = cursor.fetchone()[0]
    return digests


class Answer(NamedTuple):
    status: int
    problem: str
    """What is wrong with the answer; empty if it is as it should be."""
    error: dict[str, Any] | None = None


def _check(response: Any) -> Answer:
    status = int(response.status_code)
    if isinstance(response, LoopResponse):
        status, content = _read_stream(response)
    else:
        content = response.getvalue()
    if status >= 500 and status not in EXPECTED_SERVER_ERRORS:
        return Answer(status, f"{status} {content[:200]!r}")
    if status < 400 or not response.headers.get("Content-Type", "").startswith(JSON):
        return Answer(status, "")
    try:
        error = json.loads(content)
    except ValueError:
        error = None
    is_well_shaped = _is_error(error)
    problem = "" if is_well_shaped else f"{status} without the error shape: {content[:200]!r}"
    return Answer(status, problem, error if is_well_shaped else None)


def _is_error(value: Any) -> bool:
    """Whether it has the one error shape, or that of OAuth, JSON-RPC, A2A or thread commands."""
    if not isinstance(value, dict):
        return False
    is_other = "error_description" in value or isinstance(value.get("error"), dict)
    is_command = value.get("type") == "error" and {"error", "message"} <= value.keys()
    return {"detail", "code", "errors"} <= value.keys() or is_other or is_command


def _read_stream(response: LoopResponse) -> tuple[int, bytes]:
    try:
        return response.status_code, read(response)
    except AppError as error:
        return error.status, dumps(error.as_json())  # before the first byte


def list_routes(tenant: OtherTenant) -> list[tuple[str, str]]:
    known = set(tenant.values)
    agents = [(method, route) for method, route in agent_routes() if method != "get"]
    return sorted(
        (route, method)
        for method, route in [*load_decisions(), *agents]
        if set(PARAMETER.findall(route)) <= known and not route.startswith("/(?:")
    )


@pytest.fixture(autouse=True)
def unreachable_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*_: Any) -> Any:
        raise ConnectionRefusedError

    monkeypatch.setattr(transport, "connect", connect)
    monkeypatch.setattr(exports, "test_write", lambda _: None)


@pytest.fixture
def tenant() -> OtherTenant:
    tenant = OtherTenant.make()
    set_secrets(workspace_id=tenant.workspace.pk, values={"OPENAI_API_KEY": "sk-key"})
    return tenant


def list_known(tenant: OtherTenant) -> dict[str, Any]:
    """Return valid values of fields by name, where their type does not tell."""
    body = build_body(tenant)
    others = {
        "source_run_id": body["run_id"],
        "experiment_id": body["session_id"],
        "default_dataset": body["dataset_id"],
    }
    return body | KNOWN | others


class RouteBodies:
    """A valid body of a route, and the hostile ones that are made from it."""

    def __init__(self, attacker: Attacker, method: str, path: str, known: dict[str, Any]) -> None:
        rounds = 4 if IS_LONG else 1
        self._attacker, self._method, self._path = attacker, method, path
        attacker.uses_key = path.startswith(ROUTES_FOR_KEYS)
        self.body = find_json_body(
            lambda raw: self._send(HostileBody("watched", raw)), known, rounds
        )
        self.refused: list[str] = []
        if IS_LONG:
            self.body, self.refused = without_refused(self.body, self._find_error)
        self._calls = list(list_calls(path, known))
        self.fields: dict[str, Any] = {}
        if path.startswith(FORM_PAGES):
            self.fields = find_form(
                lambda form: self._send(HostileBody("watched", encode_form(form), FORM)),
                known,
                rounds,
            )

    def _send(self, body: HostileBody) -> Answer:
        return self._attacker.send(self._method, self._path, body)

    def _find_error(self, body: Any) -> dict[str, Any] | None:
        answer = self._send(HostileBody("reduced", encode(body)))
        return answer.error if answer.status in {400, 409, 422, 501} else None

    def list_valid(self) -> list[HostileBody]:
        valid = [HostileBody("valid", encode(body)) for body in [self.body, *self._calls]]
        if self.fields:
            valid.append(HostileBody("valid form", encode_form(self.fields), FORM))
        return valid

    def list_hostile(self) -> Iterator[HostileBody]:
        yield from list_whole_bodies(self.body, self.fields)
        yield from list_json_bodies(self.body, self.refused)
        yield from list_forms(self.fields)
        for call in self._calls:
            yield from list_json_bodies(call, [])


def list_calls(path: str, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield calls of each method of an endpoint with JSON-RPC."""
    call = {"jsonrpc": "2.0", "id": 1}
    if path == "/mcp":
        for tool in TOOLS.values():
            schema = tool.arguments.model_json_schema()
            arguments = Readings(known).of_schema(schema, schema.get("$defs", {}))
            yield call | {
                "method": "tools/call",
                "params": {"name": tool.name, "arguments": arguments},
            }
    elif path.endswith("/mcp"):
        arguments = {"messages": [{"role": "user", "content": "Hi"}]}
        yield call | {"method": "tools/call", "params": {"name": "agent", "arguments": arguments}}
        yield call | {"method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "a", "version": "1"},
        }}  # fmt: skip
    elif "/a2a/" in path:
        message = {
            "role": "user", "messageId": "a", "contextId": known["thread_id"], "metadata": {"a": 1},
            "parts": [{"kind": "text", "text": "Hi"}, {"kind": "data", "data": {"a": 1}}],
        }  # fmt: skip
        push = {
            "id": "p", "url": "https://93.184.216.34/hook", "token": "t",
            "authentication": {"schemes": ["Bearer"], "credentials": "c"},
        }  # fmt: skip
        task = {"id": known["task_id"], "historyLength": 1, "pushNotificationConfigId": "p"}
        configuration = {"acceptedOutputModes": ["text"], "pushNotificationConfig": push}
        params = {
            Method.SEND: {"message": message, "configuration": configuration},
            Method.STREAM: {"message": message},
            Method.LIST: {"contextId": known["thread_id"], "pageSize": 1, "pageToken": "a"},
            Method.CREATE_PUSH: {"taskId": known["task_id"], "pushNotificationConfig": push},
        }
        for method in Method:
            _, name = method.value
            yield call | {"method": name, "params": params.get(method, task)}
        message = {"role": "ROLE_USER", "messageId": "a", "parts": [{"text": "Hi"}]}
        yield call | {"method": "SendMessage", "params": {"message": message}}


def test_json_that_the_database_refuses_is_a_bad_request(tenant: OtherTenant) -> None:
    client = Client(headers={"X-Api-Key": key_for(tenant.workspace)})
    chart = {"title": "a", "chart_type": "line", "series": [{"name": "a", "metric": "run_count"}]}
    assert client.post("/charts/create", chart, content_type=JSON).status_code == 200
    chart["series"][0]["\0"] = 1

    response = client.post("/charts/create", chart, content_type=JSON)

    assert response.status_code == 400
    assert response.json()["detail"] == "The request contains a NUL character."


@pytest.mark.parametrize("path", ["/account/connections", "/account/emails"])
def test_pages_of_the_account_answer_scripts_with_pages(client: Client, path: str) -> None:
    client.force_login(UserFactory())

    response = client.post(path, "{}", content_type=JSON, headers={"Accept": JSON})

    assert response.headers["Content-Type"].startswith("text/html")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("piece", range(PIECES))
def test_no_hostile_body_ends_in_an_unhandled_error(tenant: OtherTenant, piece: int) -> None:
    attacker = Attacker(tenant)
    known = list_known(tenant)
    failures: list[str] = []
    routes = list_routes(tenant)[piece::PIECES]
    for number, (route, method) in enumerate(routes):
        path = tenant.path(route)
        bodies = RouteBodies(attacker, method, path, known)
        valid = bodies.list_valid()
        if IS_LONG:
            answers = [attacker.send(method, path, body) for body in valid]
            if all(answer.status >= 400 for answer in answers):
                log.info("not reached: %s %s %s %s", method, route, answers, bodies.body)
        hostile = list(bodies.list_hostile())
        step = max(1, len(hostile) // COUNT)
        requests = [(path, body) for body in hostile[number % step :: step]]
        if IS_LONG or number % 4 == 0:
            requests.append((f"{path}?{HOSTILE_QUERY}", valid[number % len(valid)]))
        for address, body in requests:
            if problem := attacker.send(method, address, body, writes=IS_LONG).problem:
                failures.append(f"{method} {route}: {body.name}: {problem}")
                log.info(failures[-1])
    log.info("%s routes, answers: %s", len(routes), attacker.statuses)
    log.info("the slowest took %.2f s of CPU: %s", *attacker.slowest)
    accepted = sum(count for status, count in attacker.statuses.items() if status < 400)
    assert accepted > attacker.statuses.total() / 5  # valid but for the replaced values
    assert not failures, "\n".join(failures)
