"""Sends requests as a workspace and compares responses without their volatile parts."""

from __future__ import annotations

import difflib
import json
import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.core import signing
from django.db import connection, transaction
from django.test import Client

from apps.core.tenancy import WorkspaceOwned
from apps.organizations.models import Workspace
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceMembershipFactory
from tests.other_tenant import PARAMETER
from tests.tenant_fixtures import Values
from tests.tracing.two_workspaces.route_requests import RouteRequest, row_parameters

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?")
_NAME = re.compile(r"project-[0-9a-f]{8}")  # the generated name of a project
_TOKEN = re.compile(r'(csrfmiddlewaretoken|nonce|csrf)[^>]{0,40}?["\'][A-Za-z0-9+/=_-]{16,}["\']')
_NONCE = re.compile(r"nonce-[A-Za-z0-9+/=_-]+")
_SIGNED = re.compile(r"token=[\w:.%-]{20,}")
UNKNOWN_ID = str(UUID(int=1))
"""For parameters of rows that tests/other_tenant.py names and these tests do not create."""
_KEPT_COOKIES = {settings.SESSION_COOKIE_NAME, "slipway_workspace"}
_VOLATILE_HEADERS = {"x-request-id", "server-timing", "date", "content-length"}


def create_client(workspace: Workspace, *, signed_in: bool) -> Client:
    if not signed_in:
        return Client(headers={"X-Api-Key": key_for(workspace)})
    client = Client()
    user = UserFactory()
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
    client.force_login(user)
    client.get(f"/o/{workspace.pk}/projects")  # the first page sets the workspace's cookie
    return client


@dataclass(frozen=True)
class PlaceholderValues:
    """The values of the placeholders of a request, and those of the requester's own rows."""

    values: dict[str, str]
    own: dict[str, str]

    @classmethod
    def build(cls, values: Values, own: Values, workspace: Workspace) -> PlaceholderValues:
        fixed = {"workspace_id": str(workspace.pk), "payload": "inputs", "number": "0"}
        fixed |= {"own": str(own["project_id"])}
        token = {"token": str(uuid4())}  # public links are open to all callers
        texts, own_texts = ({k: str(v) for k, v in row.items()} for row in (values, own))
        return cls(token | texts | fixed, token | own_texts | fixed)

    def path(self, request: RouteRequest) -> str:
        own = {"workspace_id", *row_parameters(request.route)[: request.own]}
        return PARAMETER.sub(
            lambda match: (self.own if match[1] in own else self.values).get(match[1], UNKNOWN_ID),
            request.route,
        )

    def fill(self, value: Any) -> Any:
        """Return the value with the placeholders in its texts replaced."""
        match value:
            case dict():
                return {self.fill(key): self.fill(inner) for key, inner in value.items()}
            case list():
                return [self.fill(inner) for inner in value]
            case str():
                for name, text in self.values.items():
                    value = value.replace("{" + name + "}", text)
                return value.replace("{{", "{").replace("}}", "}")
        return value


def absent_values(values: Values, word: str) -> Values:
    """Return values of the same names for rows that do not exist."""
    return {name: uuid4() if isinstance(value, UUID) else word for name, value in values.items()}


@dataclass(frozen=True)
class ComparableResponse:
    status: int
    lines: list[str]
    """The headers and the lines of the body."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def without(self, word: str) -> ComparableResponse:
        """Return the response with the word of the request replaced."""
        return ComparableResponse(self.status, [line.replace(word, "WORD") for line in self.lines])


def send_request(
    client: Client, request: RouteRequest, names: PlaceholderValues
) -> ComparableResponse:
    """Send the request and return its response without volatile parts. Its writes are kept."""
    for name in set(client.cookies) - _KEPT_COOKIES:  # messages and choices of previous pages
        client.cookies.pop(name)
    headers = {"Accept": request.accept} if request.accept else {}
    send = getattr(client, request.method)
    if request.method == "get":
        response = send(names.path(request), names.fill(request.query), headers=headers)
    elif request.is_page:
        response = send(names.path(request), names.fill(request.body), headers=headers)
    else:
        body = json.dumps(names.fill(request.body))
        response = send(names.path(request), body, content_type="application/json", headers=headers)
    content = b"".join(response) if response.streaming else response.content
    header_lines = [
        f"{name}: {value}" for name, value in sorted(response.items()) if _is_stable_header(name)
    ]
    header_lines += [
        f"cookie: {_cookie_text(cookie)}"
        for cookie in response.cookies.values()
        if _is_stable_cookie(cookie)
    ]
    text = "\n".join([*header_lines, content.decode("utf-8", "replace")])
    for pattern in (_SIGNED, _UUID, _TIME, _NAME, _TOKEN, _NONCE):
        text = pattern.sub("*", text)
    return ComparableResponse(response.status_code, text.split("\n"))


def _is_stable_header(name: str) -> bool:
    return name.lower() not in _VOLATILE_HEADERS


def _is_stable_cookie(cookie: Any) -> bool:
    return cookie.key not in {settings.CSRF_COOKIE_NAME, settings.SESSION_COOKIE_NAME}


def _cookie_text(cookie: Any) -> str:
    """Return the cookie; of messages, their decoded text."""
    if cookie.key != "messages":
        return str(cookie.OutputString())
    text = cookie.value.partition(":")[0]
    decoded: bytes = signing.b64_decode(text.removeprefix(".").encode())
    return f"messages={zlib.decompress(decoded) if text.startswith('.') else decoded!r}"


def send_and_roll_back(
    client: Client, request: RouteRequest, names: PlaceholderValues
) -> ComparableResponse:
    """Send the request, roll back its writes and return its response."""
    with transaction.atomic():
        response = send_request(client, request, names)
        transaction.set_rollback(True)
    return response


def describe_difference(first: ComparableResponse, second: ComparableResponse) -> str:
    """Return the first lines that differ."""
    if first.status != second.status:
        return f"{first.status} {first.text[-200:]} / {second.status} {second.text[-200:]}"
    lines = difflib.unified_diff(first.lines, second.lines, "one", "other", n=0, lineterm="")
    return "\n".join(line[:600] for line in lines)[:2000]


@dataclass
class RequestCounts:
    """The number of requests by route, without those whose method the route does not support."""

    by_route: dict[str, int] = field(default_factory=dict)
    _unsupported: set[tuple[str, str]] = field(default_factory=set)

    def is_supported(self, request: RouteRequest) -> bool:
        return (request.route, request.method) not in self._unsupported

    def count(self, request: RouteRequest, response: ComparableResponse) -> None:
        if response.status == 405:
            self._unsupported.add((request.route, request.method))
        else:
            self.by_route[request.route] = self.by_route.get(request.route, 0) + 1

    def __str__(self) -> str:
        return f"{len(self.by_route)} routes, {sum(self.by_route.values())} requests"


def table_digests(workspace: Workspace, tables: Collection[str] | None = None) -> dict[str, str]:
    """Return a digest of the workspace's rows for each table, or for those of the tables."""
    owned = _owned_tables()
    names = owned if tables is None else owned.intersection(tables)
    if not names:
        return {}
    each = (
        f"SELECT '{table}', md5(coalesce(string_agg(r::text, E'\\n' ORDER BY r::text), ''))"
        f" FROM {table} r WHERE workspace_id = %(workspace)s"
        for table in sorted(names)
    )
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each), {"workspace": workspace.pk})
        return dict(cursor.fetchall())


def _owned_tables() -> set[str]:
    tables = {model._meta.db_table for model in _owned_models(WorkspaceOwned)}
    return tables | {"trace_store_run", "trace_store_run_payload"}


def _owned_models(base: type[WorkspaceOwned]) -> Iterator[type[WorkspaceOwned]]:
    for model in base.__subclasses__():
        if not model._meta.abstract:
            yield model
        yield from _owned_models(model)
