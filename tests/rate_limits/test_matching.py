"""Selection of the row for a request."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from apps.core.http.middleware import canonical
from apps.rate_limits.row_matching import counted_path, is_counted, row_for
from apps.rate_limits.table import IdentityKind

IP, KEY, USER = IdentityKind.IP, IdentityKind.KEY, IdentityKind.USER
PARAMETER = re.compile("<[^>]*>")
ID = "11111111-2222-3333-4444-555555555555"


def match_row(method: str, path: str, identity: IdentityKind = KEY) -> str:
    return row_for(method, counted_path(canonical(path)), identity).match


@pytest.mark.parametrize(
    ("method", "path", "row"),
    [
        ("OPTIONS", "/anything", "OPTIONS; /info; */v1/metadata/submit"),
        ("OPTIONS", "/repos", "OPTIONS; /info; */v1/metadata/submit"),
        ("GET", "/info", "OPTIONS; /info; */v1/metadata/submit"),
        ("POST", "/v1/metadata/submit", "OPTIONS; /info; */v1/metadata/submit"),
        ("POST", "/what/ever/v1/metadata/submit", "OPTIONS; /info; */v1/metadata/submit"),
        ("POST", "/auth", "/auth"),
        ("POST", "/v1/beacon", "/v1/beacon"),
        ("POST", "/v1/beacon/ingest-traces", "/v1/beacon"),
        ("GET", "/repos", "/repos"),
        ("DELETE", "/repos/-/prompt", "/repos"),
        ("GET", "/repos/-/examples", "/repos"),
        ("GET", "/repository", "Any request with x-api-key"),
        ("POST", "/runs/batch", "POST /runs/batch"),
        ("GET", "/runs/batch", "Any request with x-api-key"),
        ("POST", "/otel/v1/traces", "POST /otel/v1/traces"),
        ("POST", "/charts", "POST containing /charts"),
        ("POST", "/charts/preview", "POST containing /charts"),
        ("GET", "/charts", "Any request with x-api-key"),
        ("POST", "/runs/multipart", "POST /runs/multipart"),
        ("POST", "/runs/query", "POST /runs/query"),
        ("POST", "/generate", "/generate"),
        ("GET", "/commits/-/prompt", "/commits"),
        ("DELETE", "/sessions", "DELETE /sessions; */trigger"),
        ("DELETE", f"/sessions/{ID}", "DELETE /sessions; */trigger"),
        ("GET", f"/sessions/{ID}", "Any request with x-api-key"),
        ("POST", f"/runs/rules/{ID}/trigger", "DELETE /sessions; */trigger"),
        ("POST", "/runs", "POST /runs (single run ingest)"),
        ("POST", f"/runs/{ID}/share", "Any request with x-api-key"),
        ("PATCH", f"/runs/{ID}", "PATCH containing /runs"),
        ("PATCH", f"/annotation-queues/{ID}/runs/{ID}", "PATCH containing /runs"),
        ("POST", "/feedback", "POST /feedback"),
        ("GET", "/feedback", "Any request with x-api-key"),
        ("GET", f"/runs/{ID}", "GET /runs/{uuid}; GET /api/v1/runs/{uuid}"),
        ("HEAD", f"/runs/{ID}", "GET /runs/{uuid}; GET /api/v1/runs/{uuid}"),
        ("GET", f"/runs/{ID}/share", "Any request with x-api-key"),
        ("GET", "/examples", "GET containing /examples"),
        ("GET", f"/datasets/{ID}/examples/count", "GET containing /examples"),
        ("GET", "/sessions", "Any request with x-api-key"),
        ("GET", "/public/download", "/public/download"),
        ("GET", "/public/download/token", "/public/download"),
        ("POST", "/runs/stats", "/runs/stats"),
    ],
)
def test_the_most_specific_row_wins(method, path, row):
    assert match_row(method, path) == row


def test_row_of_another_identity_kind_is_skipped():
    assert match_row("POST", "/runs/batch", USER) == "Any request with x-user-id"
    assert match_row("POST", "/runs/batch", IP) == "All other IPs (catch-all)"
    assert match_row("POST", "/runs/query", USER) == "POST /runs/query"
    assert match_row("POST", "/runs/stats", USER) == "Any request with x-user-id"
    assert match_row("GET", "/auth", IP) == "All other IPs (catch-all)"
    assert row_for("POST", "/runs/query", USER).category == "Run query (User)"
    assert row_for("POST", "/runs/query", KEY).category == "Run query (API)"


@pytest.mark.parametrize(
    "path",
    [
        *("/runs/query", "/runs/query/", "/api/v1/runs/query", "/api/runs/query"),
        *("/v1/platform/runs/query", "/api/v1/platform/runs/query", "/platform/runs/query"),
        *("/v2/runs/query", "/api/v2/runs/query", "/api-host/v2/runs/query", "/v1/runs/query"),
        *("//runs/query", "/runs//query", "/api//v1//runs/query", "///api/v1/runs/query//"),
        *("/Runs/Query", "/API/v1/RUNS/QUERY", "/api/v1/api/v1/runs/query", "/runs/query\n"),
    ],
)
def test_prefix_slash_or_spelling_does_not_bypass_a_row(path):
    assert match_row("POST", path) == "POST /runs/query"


def test_prefixes_do_not_bypass_rows_of_any_kind():
    for prefix in ("/api/v1", "/api", "/v1/platform", "/api/v1/platform", "/platform", "/v2"):
        assert match_row("GET", f"{prefix}/runs/{ID}").startswith("GET /runs/{uuid}")
        assert match_row("POST", f"{prefix}/runs/stats") == "/runs/stats"
        assert match_row("DELETE", f"{prefix}/sessions/{ID}").startswith("DELETE /sessions")
        assert match_row("POST", f"{prefix}/beacon/verify", IP) == "/v1/beacon"
        assert match_row("POST", f"{prefix}/v1/metadata/submit", IP).startswith("OPTIONS")


def list_routes(resolver: URLResolver, prefix: str = "/") -> Any:
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}"
        if isinstance(entry, URLResolver):
            yield from list_routes(entry, path)
        else:
            assert isinstance(entry, URLPattern)
            yield path, entry.callback


# API views that the table does not limit.
HEALTH = {"/ok", "/info/health", "/healthz", "/readyz", "/metrics"}


def is_page(path: str, view: Any) -> bool:
    """Whether the view is a page: those are neither described APIs nor plain JSON endpoints."""
    module = f"{view.__module__}."
    is_api = ".api." in module or module == "apps.api_keys.lightweight_views."
    # What scripts of the playground request, and the trial of an evaluator, which calls a model.
    is_api = is_api or "/playground/" in path or path.endswith("/evaluators/try")
    # The module of the client sign-in also has the page that approves it.
    is_api = is_api or path.startswith(("/oauth/", "/.well-known/")) or path == "/mcp"
    return path.startswith(("/admin/", "/agents/")) or not is_api


def test_pages_and_health_checks_are_not_counted_and_the_api_is():
    misclassified = [
        path
        for path, view in list_routes(get_resolver())
        if is_counted(PARAMETER.sub(ID, path.replace("/^", "/")).replace("SKILL", "skill"))
        == (is_page(path, view) or path in HEALTH)
    ]

    assert misclassified == []


def test_shared_pages_are_not_counted_and_their_api_is():
    assert not is_counted(f"/public/{ID}/r")
    assert not is_counted(f"/public/{ID}/r/{ID}")
    assert not is_counted(f"/public/{ID}/r/transcript")
    assert is_counted(f"/public/{ID}/run")
    assert is_counted(f"/public/{ID}/runs/query")
