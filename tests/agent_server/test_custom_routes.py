"""Which requests an agent's own routes take, and what CORS rules of its own let in."""

from __future__ import annotations

import pytest

from apps.agent_server.web import custom_cors, custom_paths
from apps.deployments.langgraph_json.sections import Cors, Http
from apps.deployments.serving_config import CustomRoute

ROUTES = tuple(
    CustomRoute(path, kind, frozenset(methods))
    for path, kind, methods in [
        ("/own", "http", ["GET", "HEAD"]),
        ("/items/{item:int}", "http", []),
        ("/names/{name}", "http", []),
        ("/odd/{a}-{b}", "http", []),
        ("/rest/{rest:path}", "http", []),
        ("/files", "mount", []),
        ("/socket", "websocket", []),
    ]
)


@pytest.mark.parametrize(
    ("path", "method", "kind", "taken"),
    [
        ("/own", "GET", "http", True),
        ("/own/", "GET", "http", True),
        ("/own", "POST", "http", None),
        ("/own/more", "GET", "http", False),
        ("/items/7", "GET", "http", True),
        ("/items/x", "GET", "http", False),
        ("/items", "GET", "http", False),
        ("/names/ann", "DELETE", "http", True),
        ("/odd/a-b", "GET", "http", True),
        ("/rest/a/b/c", "GET", "http", True),
        ("/rest", "GET", "http", True),
        ("/files/a/b", "GET", "http", True),
        ("/socket", "GET", "websocket", True),
        ("/socket", "GET", "http", False),
        ("/threads", "POST", "http", False),
    ],
)
def test_custom_route_takes_the_requests_its_framework_matches(path, method, kind, taken):
    assert custom_paths.match(ROUTES, path, kind, method) is taken


def test_catch_all_route_gets_the_remaining_paths():
    routes = (CustomRoute("", "mount", frozenset()),)

    assert custom_paths.match(routes, "/threads", "http", "GET") is False
    assert custom_paths.takes_rest(routes) is True
    assert custom_paths.takes_rest(ROUTES) is False
    assert custom_paths.takes_rest(None) is True


@pytest.mark.parametrize(
    ("flag", "shut", "open_"),
    [
        ("disable_assistants", "/assistants/search", "/threads"),
        ("disable_threads", "/threads/1/state", "/threads/1/runs/2"),
        ("disable_runs", "/threads/1/runs/2/join", "/threads/1"),
        ("disable_runs", "/runs/crons/search", "/threads/search"),
        ("disable_store", "/store/items", "/runs"),
        ("disable_mcp", "/mcp", "/a2a/1"),
        ("disable_a2a", "/.well-known/agent-card.json", "/mcp"),
        ("disable_meta", "/openapi.json", "/ok"),
        ("disable_ui", "/ui/agent", "/info"),
    ],
)
def test_route_groups_are_disabled_separately(flag, shut, open_):
    http = Http(**{flag: True})

    assert custom_paths.is_disabled(http, shut) is True
    assert custom_paths.is_disabled(http, open_) is False
    assert custom_paths.is_disabled(Http(), shut) is False


def names(headers):
    return {name.decode(): value.decode() for name, value in headers}


def test_default_cors_allows_reads_without_credentials():
    open_ = custom_cors.response_headers(Cors(allow_origins=["*"]), "https://a")
    named = custom_cors.response_headers(
        Cors(allow_origins=["*"], allow_credentials=True), "https://a"
    )

    assert names(open_) == {"access-control-allow-origin": "*"}
    assert names(named)["access-control-allow-origin"] == "https://a"
    assert names(named)["access-control-allow-credentials"] == "true"


def test_request_without_an_origin_gets_no_cors_headers():
    assert custom_cors.response_headers(Cors(allow_origins=["*"]), None) == []


def test_cors_rule_without_methods_rejects_post():
    """As with the peer: what is given replaces every default."""
    code, text, _ = custom_cors.preflight_response(
        Cors(allow_origins=["*"]), "https://a", "POST", "x-api-key"
    )

    assert (code, text) == (400, b"Disallowed CORS method, headers")


def test_cors_wildcards_allow_the_requested_values():
    cors = Cors(allow_origins=["https://a"], allow_methods=["*"], allow_headers=["*"])

    code, _, headers = custom_cors.preflight_response(cors, "https://a", "DELETE", "x-one, x-two")

    assert code == 200
    assert names(headers)["access-control-allow-headers"] == "x-one, x-two"
