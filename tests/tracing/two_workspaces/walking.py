"""Asks questions as a workspace, and compares answers without what differs between any two."""

from __future__ import annotations

import difflib
import json
import re
import zlib
from collections.abc import Iterator
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
from tests.tracing.two_workspaces.questions import Question, named_in

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?")
_NAME = re.compile(r"project-[0-9a-f]{8}")  # what a project is called that nobody named
_TOKEN = re.compile(r'(csrfmiddlewaretoken|nonce|csrf)[^>]{0,40}?["\'][A-Za-z0-9+/=_-]{16,}["\']')
_NONCE = re.compile(r"nonce-[A-Za-z0-9+/=_-]+")
_SIGNED = re.compile(r"token=[\w:.%-]{20,}")
NOTHING = str(UUID(int=1))
"""In routes of things that are not made here, which tests/other_tenant.py names."""
_KEPT = {settings.SESSION_COOKIE_NAME, "slipway_workspace"}
_PASSING = {"x-request-id", "server-timing", "date", "content-length"}


def client_of(workspace: Workspace, *, signed_in: bool) -> Client:
    if not signed_in:
        return Client(headers={"X-Api-Key": key_for(workspace)})
    client = Client()
    user = UserFactory()
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
    client.force_login(user)
    client.get(f"/o/{workspace.pk}/projects")  # the first page sets the workspace's cookie
    return client


@dataclass(frozen=True)
class Names:
    """What the braces of a question stand for, and what its path may have of the asker's own."""

    given: dict[str, str]
    own: dict[str, str]

    @classmethod
    def of(cls, values: Values, own: Values, workspace: Workspace) -> Names:
        fixed = {"workspace_id": str(workspace.pk), "payload": "inputs", "number": "0"}
        fixed |= {"own": str(own["project_id"])}
        token = {"token": str(uuid4())}  # those that open something open it to everybody
        given, mine = ({k: str(v) for k, v in one.items()} for one in (values, own))
        return cls(token | given | fixed, token | mine | fixed)

    def path(self, question: Question) -> str:
        own = {"workspace_id", *named_in(question.route)[: question.own]}
        return PARAMETER.sub(
            lambda match: (self.own if match[1] in own else self.given).get(match[1], NOTHING),
            question.route,
        )

    def fill(self, value: Any) -> Any:
        """The value with the names in its texts replaced."""
        match value:
            case dict():
                return {self.fill(key): self.fill(inner) for key, inner in value.items()}
            case list():
                return [self.fill(inner) for inner in value]
            case str():
                for name, text in self.given.items():
                    value = value.replace("{" + name + "}", text)
                return value.replace("{{", "{").replace("}}", "}")
        return value


def nobodys(values: Values, word: str) -> Values:
    """The same names for things that are not there."""
    return {name: uuid4() if isinstance(value, UUID) else word for name, value in values.items()}


@dataclass(frozen=True)
class Answer:
    status: int
    lines: list[str]
    """The headers, and the text."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def without(self, word: str) -> Answer:
        """The answer with the word that the question named as a blank."""
        return Answer(self.status, [line.replace(word, "WORD") for line in self.lines])


def answer_to(client: Client, question: Question, names: Names) -> Answer:
    """The answer without what differs between any two requests. What it wrote stays written."""
    for name in set(client.cookies) - _KEPT:  # messages and choices of the pages before
        client.cookies.pop(name)
    headers = {"Accept": question.accept} if question.accept else {}
    send = getattr(client, question.method)
    if question.method == "get":
        response = send(names.path(question), names.fill(question.query), headers=headers)
    elif question.is_page:
        response = send(names.path(question), names.fill(question.body), headers=headers)
    else:
        body = json.dumps(names.fill(question.body))
        response = send(
            names.path(question), body, content_type="application/json", headers=headers
        )
    content = b"".join(response) if response.streaming else response.content
    told = [f"{name}: {said}" for name, said in sorted(response.items()) if _lasts(name)]
    told += [f"cookie: {_readable(one)}" for one in response.cookies.values() if _says(one)]
    text = "\n".join([*told, content.decode("utf-8", "replace")])
    for pattern in (_SIGNED, _UUID, _TIME, _NAME, _TOKEN, _NONCE):
        text = pattern.sub("*", text)
    return Answer(response.status_code, text.split("\n"))


def _lasts(name: str) -> bool:
    return name.lower() not in _PASSING


def _says(cookie: Any) -> bool:
    return cookie.key not in {settings.CSRF_COOKIE_NAME, settings.SESSION_COOKIE_NAME}


def _readable(cookie: Any) -> str:
    """The cookie as it is set; of messages, what they say."""
    if cookie.key != "messages":
        return str(cookie.OutputString())
    text = cookie.value.partition(":")[0]
    said: bytes = signing.b64_decode(text.removeprefix(".").encode())
    return f"messages={zlib.decompress(said) if text.startswith('.') else said!r}"


def passing(client: Client, question: Question, names: Names) -> Answer:
    """The answer, and nothing of what it wrote."""
    with transaction.atomic():
        answer = answer_to(client, question, names)
        transaction.set_rollback(True)
    return answer


def difference(one: Answer, other: Answer) -> str:
    """The first lines that differ."""
    if one.status != other.status:
        return f"{one.status} {one.text[-200:]} / {other.status} {other.text[-200:]}"
    lines = difflib.unified_diff(one.lines, other.lines, "one", "other", n=0, lineterm="")
    return "\n".join(line[:600] for line in lines)[:2000]


@dataclass
class Counts:
    """How much was asked, by route; questions that a route does not take are not counted."""

    by_route: dict[str, int] = field(default_factory=dict)
    _not_taken: set[tuple[str, str]] = field(default_factory=set)

    def is_taken(self, question: Question) -> bool:
        return (question.route, question.method) not in self._not_taken

    def count(self, question: Question, answer: Answer) -> None:
        if answer.status == 405:
            self._not_taken.add((question.route, question.method))
        else:
            self.by_route[question.route] = self.by_route.get(question.route, 0) + 1

    def __str__(self) -> str:
        return f"{len(self.by_route)} routes, {sum(self.by_route.values())} questions"


def holdings(workspace: Workspace) -> dict[str, str]:
    """All that the workspace has, as a digest of each table."""
    tables = {model._meta.db_table for model in _owned(WorkspaceOwned)}
    tables |= {"trace_store_run", "trace_store_run_payload"}
    each = (
        f"SELECT '{table}', md5(coalesce(string_agg(r::text, E'\\n' ORDER BY r::text), ''))"
        f" FROM {table} r WHERE workspace_id = %(workspace)s"
        for table in sorted(tables)
    )
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(each), {"workspace": workspace.pk})
        return dict(cursor.fetchall())


def _owned(base: type[WorkspaceOwned]) -> Iterator[type[WorkspaceOwned]]:
    for model in base.__subclasses__():
        if not model._meta.abstract:
            yield model
        yield from _owned(model)
