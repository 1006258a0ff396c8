"""No route, filter, cursor, token or id of one workspace shows a byte of another.

Rows of every kind are planted in one workspace. Another one asks every route of tracing and
monitoring by their ids and names, and asks the same again by ids and names that nobody has: both
answers must be the same, and what is secret in none.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from apps.core.tenancy import WorkspaceOwned
from apps.organizations.models import Workspace
from apps.tracing.models import Project
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceMembershipFactory
from tests.factories.tracing import ingest, wire_run
from tests.foreign import PARAMETER
from tests.planted import Values, plant

WORD, ABSENT, SECRET = "planted-word", "missing-word", "unspeakable"
APPS = ("apps.tracing", "apps.monitoring", "apps.exports")
WRITES = ("post", "put", "patch", "delete")


@dataclass(frozen=True)
class Question:
    """A request; its texts hold the names of values in braces."""

    method: str
    route: str
    query: dict[str, Any] | None = None
    body: Any = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.route} {json.dumps(self.query or self.body)}"


FILTERS = [
    'eq(name, "{word}")',
    'has(tags, "{word}")',
    'eq(thread_id, "{word}")',
    'and(eq(metadata_key, "{word}"), eq(metadata_value, "unspeakable"))',
    'and(eq(feedback_key, "{word}"), gte(feedback_score, 0))',
    'eq(feedback_source, "{word}")',
    'search("unspeakable")',
    'eq(trace_id, "{trace_id}")',
    'eq(id, "{run_id}")',
    "gt(total_tokens, 0)",
]
NAMED = [
    {"session": ["{project_id}"]},
    {"session": ["{project_id}"], "is_root": True, "select": ["inputs", "feedback_stats"]},
    {"trace": "{trace_id}", "select": ["inputs", "outputs", "extra", "error", "events"]},
    {"id": ["{run_id}", "{child_id}"]},
    {"parent_run": "{run_id}"},
    {"reference_example": ["{example_id}"]},
    {"reference_dataset_id": "{dataset_id}"},
    {"session_id": "{project_id}"},
    {"session_id": "{project_id}", "group_by": "conversation"},
    {"project_ids": ["{project_id}"], "selects": ["INPUTS", "FEEDBACK_STATS", "SHARE_URL"]},
    {"project_ids": ["{own}"], "ids": ["{run_id}"], "selects": ["NAME", "INPUTS"]},
    {"project_id": "{project_id}", "trace_ids": ["{trace_id}"]},
    {"reference_dataset_id": "{dataset_id}", "selects": ["NAME"]},
]
FILTERED = [
    body
    for text in FILTERS
    for body in (
        {"session": ["{own}", "{project_id}"], "filter": text},
        {"project_ids": ["{own}", "{project_id}"], "filter": text},
        {"session_id": "{own}", "group_by": "conversation", "filter": text},
        {"project_id": "{own}", "filter": text},
    )
]
WIDER = [
    {"session": ["{own}"], "trace_filter": FILTERS[0]},
    {"session": ["{own}"], "tree_filter": FILTERS[0]},
    {"session": ["{own}"], "search_filter": FILTERS[6]},
]
ASKED = [
    {},
    {"session": "{project_id}"},
    {"session_id": "{project_id}"},
    {"project_id": "{project_id}"},
    {"id": "{project_id}"},
    {"run": "{run_id}"},
    {"run_id": "{run_id}"},
    {"key": "{word}"},
    {"name": "{word}"},
    {"name_contains": "{word}"},
    {"source": "{word}"},
    {"feedback_thread_id": "{word}"},
    {"feedback_key": "{word}"},
    {"reference_dataset": "{dataset_id}"},
    {"dataset_id": "{dataset_id}"},
    {"metadata": '{{"{word}": "unspeakable"}}'},
    {"filter": FILTERS[0]},
    {"include_stats": "true", "facets": "true"},
    {"q": "{word}"},
    {"selects": "INPUTS", "project_id": "{project_id}"},
]
SAID = [
    {},
    *NAMED,
    {"run_id": "{run_id}", "key": "k", "score": 1},
    {"trace_id": "{trace_id}", "run_id": "{child_id}", "key": "{word}", "score": 1},
    {"session_id": "{project_id}", "key": "k", "score": 1},
    {"run_id": "{run_id}", "feedback_key": "{word}"},
    {"feedback_key": "{word}", "feedback_config": {"type": "continuous"}},
    {"session_id": "{project_id}", "trace_ids": ["{trace_id}"]},
    {"session_id": "{project_id}", "metadata": {"{word}": "unspeakable"}},
    {"share_tokens": ["{share_token}"]},
    {"name": "{word}"},
    {"display_name": "{word}", "filter_string": FILTERS[0]},
    {
        "session_id": "{project_id}",
        "feedback_key": "f",
        "aggregation_type": "sum",
        "formula_parts": [{"part_type": "weighted_key", "key": "{word}", "weight": 1}],
    },
    {
        "bulk_export_destination_id": "{destination_id}",
        "session_id": "{own}",
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-02T00:00:00Z",
    },
    {"post": [], "patch": [{"id": "{run_id}", "outputs": {"overwritten": True}}]},
]
# Routes that only look, whatever the method: they get every filter.
LOOKING = re.compile(r"/(query|stats|group|validate|facets|values|preview|charts|dashboard)\b")


def _routes() -> list[str]:
    """The routes of tracing, monitoring and exports, from the route table itself."""

    def below(resolver: URLResolver, prefix: str) -> Iterator[str]:
        for entry in resolver.url_patterns:
            path = f"{prefix}{entry.pattern}"
            if isinstance(entry, URLPattern):
                yield path
            else:
                yield from below(entry, path)

    return sorted(
        {
            path
            for entry in get_resolver().url_patterns
            if isinstance(entry, URLResolver) and _belongs(entry)
            for path in below(entry, f"/{entry.pattern}")
        }
    )


def _belongs(entry: URLResolver) -> bool:
    return getattr(entry.urlconf_name, "__name__", "").startswith(APPS)


ROUTES = _routes()


def reading(route: str) -> Iterator[Question]:
    for query in ASKED:
        yield Question("get", route, query=query)
    if LOOKING.search(route):
        for body in [*SAID, *FILTERED, *WIDER]:
            yield Question("post", route, body=body)


def writing(route: str) -> Iterator[Question]:
    if not LOOKING.search(route):
        for body in SAID:
            yield Question("post", route, body=body)
    for method in WRITES[1:]:
        for body in ({}, {"name": "x", "score": 0, "comment": "x", "display_name": "x"}):
            yield Question(method, route, body=body)


def filled(value: Any, names: dict[str, str]) -> Any:
    """The value with the names in its texts replaced."""
    if isinstance(value, dict):
        return {filled(key, names): filled(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, names) for inner in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value.replace("{{", "{").replace("}}", "}")
    return value


def asked(client: Client, question: Question, names: dict[str, str]) -> Any:
    path = PARAMETER.sub(lambda match: names[match[1]], question.route)
    if question.method == "get":
        return client.get(path, filled(question.query, names))
    body = filled(question.body, names)
    return getattr(client, question.method)(path, body, content_type="application/json")


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?")
_NAME = re.compile(r"project-[0-9a-f]{8}")  # what a project is called that nobody named
_TOKEN = re.compile(r'(csrfmiddlewaretoken|nonce|csrf)[^>]{0,40}?["\'][A-Za-z0-9+/=_-]{16,}["\']')


def plain(response: Any, names: dict[str, str]) -> tuple[int, str]:
    """Status and text without what differs between any two requests."""
    text = b"".join(response) if response.streaming else response.content
    found: str = text.decode("utf-8", "replace").replace(names["word"], "WORD")
    for pattern in (_UUID, _TIME, _NAME, _TOKEN):
        found = pattern.sub("*", found)
    return response.status_code, found


@pytest.fixture
def planted_in(db: None) -> tuple[Workspace, Values]:
    workspace = WorkspaceMembershipFactory(role="admin").workspace
    return workspace, plant(workspace, WORD, SECRET)


@pytest.fixture
def outsider(db: None) -> Workspace:
    return WorkspaceMembershipFactory(role="admin").workspace


def client_of(workspace: Workspace, *, signed_in: bool) -> Client:
    if not signed_in:
        return Client(headers={"X-Api-Key": key_for(workspace)})
    client = Client()
    user = UserFactory()
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
    client.force_login(user)
    return client


def names_of(values: Values, outsider: Workspace, own: UUID, **more: object) -> dict[str, str]:
    found = {**values, "workspace_id": outsider.pk, "own": own, "payload": "inputs", "number": 0}
    return {name: str(value) for name, value in (found | more).items()}


def nobodys(values: Values) -> Values:
    """The same names for things that are not there."""
    fresh: Values = {
        name: uuid4() if isinstance(value, UUID) else ABSENT for name, value in values.items()
    }
    return fresh | {"number": 0}


def own_project(workspace: Workspace) -> UUID:
    run = wire_run(session_name="own", name="own")
    ingest(workspace, run)
    return Project.objects.for_workspace(workspace).get(name="own").pk


def snapshot(workspace: Workspace) -> dict[str, list[str]]:
    """All that the workspace has, table by table."""
    found: dict[str, list[str]] = {}
    tables = {model._meta.db_table for model in _owned(WorkspaceOwned)}
    with connection.cursor() as cursor:
        for table in sorted(tables | {"tracing_run", "tracing_runpayload"}):
            cursor.execute(
                f"SELECT r::text FROM {table} r WHERE workspace_id = %s ORDER BY 1",
                [workspace.pk],
            )
            found[table] = [row for (row,) in cursor.fetchall()]
    return found


def _owned(base: type[WorkspaceOwned]) -> Iterator[type[WorkspaceOwned]]:
    for model in base.__subclasses__():
        if not model._meta.abstract:
            yield model
        yield from _owned(model)


def walk(
    client: Client, routes: list[str], foreign: dict[str, str], absent: dict[str, str]
) -> tuple[Counter[str], list[str]]:
    """How much was asked of each route, and what was answered otherwise than it may."""
    counts: Counter[str] = Counter()
    found = []
    for kind in (reading, writing):  # what is written shows in what is read afterwards
        for question in (question for route in routes for question in kind(route)):
            route = question.route
            response = asked(client, question, foreign)
            counts[route] += 1
            if response.status_code == 405:
                continue
            status, text = plain(response, foreign)
            other = plain(asked(client, question, absent), absent)
            if (status, text) != other:
                found.append(f"differs: {question.name}: {status} {text[:300]} / {other}"[:900])
            if SECRET in text and SECRET not in question.name:
                found.append(f"leaks: {question.name}: {text[:300]}")
            if status >= 500:
                found.append(f"fails: {question.name}: {text[:300]}")
    return counts, found


@pytest.mark.parametrize("surface", ["api", "pages"])
def test_what_is_anothers_is_as_what_is_not_there(planted_in, outsider, surface, record_property):
    workspace, values = planted_in
    own = own_project(outsider)
    before = snapshot(workspace)
    is_page = surface == "pages"
    routes = [
        r
        for r in ROUTES
        if r.startswith("/o/") == is_page and not r.startswith(("/public", "/v2/public"))
    ]
    client = client_of(outsider, signed_in=is_page)

    counts, found = walk(
        client,
        routes,
        names_of(values, outsider, own, token=uuid4()),
        names_of(nobodys(values), outsider, own, token=uuid4()),
    )

    record_property("questions", f"{len(counts)} routes, {counts.total()} questions")
    assert found == []
    assert snapshot(workspace) == before
