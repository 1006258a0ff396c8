"""Custom routes and custom CORS rules of an agent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from apps.agent_server.web import cors, custom_paths
from apps.agent_server.web.proxy import validate_message
from apps.agent_server.web.tunnels import Tunnel
from apps.deployments.langgraph_json.sections import Cors, Http
from apps.deployments.routes import CustomRoute

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
    ("path", "method", "kind", "expected"),
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
def test_custom_route_takes_the_requests_its_framework_matches(path, method, kind, expected):
    assert custom_paths.match(ROUTES, path, kind, method) is expected


def test_catch_all_route_gets_the_remaining_paths():
    routes = (CustomRoute("", "mount", frozenset()),)

    assert custom_paths.match(routes, "/threads", "http", "GET") is False
    assert custom_paths.has_catch_all(routes) is True
    assert custom_paths.has_catch_all(ROUTES) is False
    assert custom_paths.has_catch_all(None) is True


@pytest.mark.parametrize(
    ("flag", "disabled", "enabled"),
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
def test_route_groups_are_disabled_separately(flag, disabled, enabled):
    http = Http(**{flag: True})

    assert custom_paths.is_disabled(http, disabled) is True
    assert custom_paths.is_disabled(http, enabled) is False
    assert custom_paths.is_disabled(Http(), disabled) is False


def decode_headers(headers):
    return {name.decode(): value.decode() for name, value in headers}


def test_default_cors_allows_reads_without_credentials():
    anonymous = cors.response_headers(Cors(allow_origins=["*"]), "https://a")
    with_credentials = cors.response_headers(
        Cors(allow_origins=["*"], allow_credentials=True), "https://a"
    )

    assert decode_headers(anonymous) == {"access-control-allow-origin": "*"}
    assert decode_headers(with_credentials)["access-control-allow-origin"] == "https://a"
    assert decode_headers(with_credentials)["access-control-allow-credentials"] == "true"


def test_request_without_an_origin_gets_no_cors_headers():
    assert cors.response_headers(Cors(allow_origins=["*"]), None) == []


def test_cors_rule_without_methods_rejects_post():
    """As in LangGraph's server, a configured rule replaces every default."""
    code, text, _ = cors.preflight_response(
        Cors(allow_origins=["*"]), "https://a", "POST", "x-api-key"
    )

    assert (code, text) == (400, b"Disallowed CORS method, headers")


def test_cors_wildcards_allow_the_requested_values():
    wildcard_methods = Cors(allow_origins=["https://a"], allow_methods=["*"], allow_headers=["*"])

    code, _, headers = cors.preflight_response(
        wildcard_methods, "https://a", "DELETE", "x-one, x-two"
    )

    assert code == 200
    assert decode_headers(headers)["access-control-allow-headers"] == "x-one, x-two"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "http.response.start", "status": 200, "headers": [[10**12, b"x"]]},
        {"type": "http.response.start", "status": 200, "headers": [[b"x", 10**12]]},
        {"type": "http.response.start", "status": 200, "headers": [[b"x"]]},
        {"type": "http.response.start", "status": 200, "headers": 7},
        {"type": "http.response.start"},
        {"type": "http.response.start", "status": float("inf")},
        {"type": "http.response.body", "body": "text"},
        {"type": "websocket.send", "text": 7},
        {"body": b""},
        ["http.response.start"],
        None,
    ],
)
def test_message_of_a_malicious_agent_with_wrong_types_is_rejected(message):
    with pytest.raises((TypeError, ValueError, LookupError, AttributeError, ArithmeticError)):
        validate_message(message)


def test_response_start_of_an_agent_keeps_its_status_and_headers():
    message = {"type": "http.response.start", "status": 201, "headers": [[b"x-a", b"1"]]}

    assert validate_message(message) == {**message, "headers": [(b"x-a", b"1")]}


def test_infinite_credit_from_a_malicious_agent_closes_its_own_tunnel():
    closings: list[bool] = []
    manager = SimpleNamespace(forget=lambda _: None)
    tunnel = Tunnel(
        manager, b"id", "peer", lambda _, value: int(value), lambda: closings.append(True)
    )

    tunnel.on_message("more", float("inf"))

    assert tunnel.is_over
    assert closings == [True]
