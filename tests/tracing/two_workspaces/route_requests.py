"""Requests for every route, with ids, names, filters and forms that name foreign rows.

Texts contain the names of values in braces; tests/tenant_fixtures.py defines the values.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from tests.other_tenant import PARAMETER

APPS = ("apps.tracing", "apps.feedback", "apps.ingest", "apps.monitoring", "apps.exports")
PUBLIC = ("/public", "/v2/public")
# Routes that only read, with any method: they get every filter.
READING = re.compile(r"/(query|stats|group|validate|facets|values|preview|charts|dashboard)\b")
STREAM = "text/event-stream"


@dataclass(frozen=True)
class RouteRequest:
    """A request. Its first `own` path parameters name rows of the requester, the others do not."""

    method: str
    route: str
    query: dict[str, Any] | None = None
    body: Any = None
    own: int = 0
    accept: str = ""

    @property
    def name(self) -> str:
        params = json.dumps(self.query if self.body is None else self.body)
        return f"{self.method} {self.route} [{self.own} own] {params} {self.accept}".strip()

    @property
    def is_page(self) -> bool:
        return self.route.startswith("/o/")

    @property
    def is_read(self) -> bool:
        return self.method == "get" or READING.search(self.route) is not None


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
FOREIGN_ID_BODIES: list[Any] = [
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
FILTER_BODIES = [
    body
    for text in FILTERS
    for body in (
        {"session": ["{own}", "{project_id}"], "filter": text},
        {"project_ids": ["{own}", "{project_id}"], "filter": text},
        {"session_id": "{own}", "group_by": "conversation", "filter": text},
        {"project_id": "{own}", "filter": text},
    )
]
TREE_FILTER_BODIES = [
    {"session": ["{own}"], "trace_filter": FILTERS[0]},
    {"session": ["{own}"], "tree_filter": FILTERS[0]},
    {"session": ["{own}"], "search_filter": FILTERS[6]},
]
QUERIES: list[dict[str, Any]] = [
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
    {"selects": "INPUTS", "project_id": "{project_id}"},
]
POST_BODIES: list[Any] = [
    {},
    *FOREIGN_ID_BODIES,
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
    {"session_id": "{own}", "section_id": "{section_id}", "title": "{word}"},
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
CHANGE_BODIES: list[Any] = [
    {},
    {"name": "x", "score": 0, "comment": "x", "display_name": "x"},
    {"section_id": "{section_id}", "session_id": "{project_id}", "title": "x"},
    {"share_tokens": ["{share_token}"], "ids": ["{run_id}"]},
]
# Query parameters of pages, and the fields of their forms.
PAGE_QUERIES: list[dict[str, Any]] = [
    {},
    {"q": "{word}"},
    {"q": "unspeakable", "show": "all"},
    *({"filter": text, "show": "all"} for text in FILTERS),
    {"view": "{view_id}"},
    {"a": "{run_id}", "b": "{child_id}"},
    {"thread": "{word}"},
    {"field": "name", "range": "30d"},
    {"group": "metadata", "path": "{word}"},
    {"price": "{price_id}"},
    {"key": "{word}"},
    {"whole": "1", "part": "preview"},
]
FORMS: list[dict[str, Any]] = [
    {},
    {"run": ["{run_id}", "{child_id}"], "action": "compare"},
    {"run": ["{run_id}"], "action": "delete", "confirmation": "1"},
    {"project": ["{project_id}"], "confirmation": "{word}"},
    {"view": "{view_id}", "action": "delete"},
    {"view": "{view_id}", "action": "replace", "name": "x"},
    {"name": "{word}"},
    {"key": "{word}", "type": "freeform"},
    {"key": "{word}", "score": "1", "comment": "x"},
    {"action": "revoke"},
    {"title": "x", "project": "{project_id}", "metrics": "run_count", "chart_type": "line"},
    {
        "project": "{project_id}",
        "destination": "{destination_id}",
        "begin": "2026-01-01",
        "end": "2026-01-02",
        "compression": "zstd",
    },
]


def list_routes(*, pages: bool) -> list[str]:
    """Return the non-public routes of tracing, monitoring and exports, from the route table."""

    def walk(resolver: URLResolver, prefix: str) -> Iterator[str]:
        for entry in resolver.url_patterns:
            path = f"{prefix}{entry.pattern}"
            if isinstance(entry, URLPattern):
                yield path
            else:
                yield from walk(entry, path)

    paths = {
        path
        for entry in get_resolver().url_patterns
        if isinstance(entry, URLResolver) and _belongs(entry)
        for path in walk(entry, f"/{entry.pattern}")
    }
    return sorted(path for path in paths if path.startswith("/o/") == pages and _is_closed(path))


def _belongs(entry: URLResolver) -> bool:
    return getattr(entry.urlconf_name, "__name__", "").startswith(APPS)


def _is_closed(route: str) -> bool:
    return not route.startswith(PUBLIC)


def row_parameters(route: str) -> list[str]:
    """Return the parameters that name a row; the workspace in a path is always the requester's."""
    return [name for name in PARAMETER.findall(route) if name != "workspace_id"]


def build_requests(route: str) -> Iterator[RouteRequest]:
    """Yield all requests for a route, reads before changes."""
    is_page = route.startswith("/o/")
    depth = len(row_parameters(route))
    for own in range(depth + 1):
        yield from _build_reads(route, own, is_page=is_page)
    for own in range(depth + 1):
        yield from _build_changes(route, own, is_page=is_page)


def _build_reads(route: str, own: int, *, is_page: bool) -> Iterator[RouteRequest]:
    for query in PAGE_QUERIES if is_page else QUERIES:
        yield RouteRequest("get", route, query=query, own=own)
    if READING.search(route) and not is_page:
        for body in [*POST_BODIES, *FILTER_BODIES, *TREE_FILTER_BODIES]:
            yield RouteRequest("post", route, body=body, own=own)
        if route.startswith("/v2/"):
            for body in (*FOREIGN_ID_BODIES, *FILTER_BODIES):
                yield RouteRequest("post", route, body=body, own=own, accept=STREAM)


def _build_changes(route: str, own: int, *, is_page: bool) -> Iterator[RouteRequest]:
    if is_page or not READING.search(route):
        for body in FORMS if is_page else POST_BODIES:
            yield RouteRequest("post", route, body=body, own=own)
    for method in () if is_page else ("put", "patch", "delete"):
        for body in CHANGE_BODIES:
            yield RouteRequest(method, route, body=body, own=own)


def select_requests(requests: Iterable[RouteRequest], *, step: int) -> Iterator[RouteRequest]:
    """Yield every `step`th request, with another offset for each route, and the first of each kind.

    Every route gets every method with every kind of path, and every kind of body is sent to some
    route.
    """
    seen = set()
    for index, request in enumerate(requests):
        kind = request.route, request.method, request.own, request.accept
        if kind not in seen or (index + zlib.crc32(request.route.encode())) % step == 0:
            seen.add(kind)
            yield request
