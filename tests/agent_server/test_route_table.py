"""The segment trie of endpoints."""

from __future__ import annotations

import pytest

from apps.agent_server.endpoints.endpoint import Endpoint
from apps.agent_server.endpoints.routes import RouteTable
from apps.agent_server.web.http_context import HttpRequestContext, Response


def endpoint(method: str, path: str) -> Endpoint:
    names = [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]
    arguments = ", ".join(["context: HttpRequestContext", *(f"{name}: str" for name in names)])
    namespace = {"HttpRequestContext": HttpRequestContext, "Response": Response}
    exec(f"def respond({arguments}) -> Response: ...", namespace)
    return Endpoint(method, path, namespace["respond"], tag="runs")


TABLE = RouteTable(
    [
        endpoint("GET", "/"),
        endpoint("GET", "/runs/{run_id}"),
        endpoint("DELETE", "/runs/{run_id}"),
        endpoint("POST", "/runs/wait"),
        endpoint("GET", "/runs/crons/{cron_id}"),
        endpoint("GET", "/runs/{run_id}/join"),
        endpoint("GET", "/threads/{thread_id}/runs/{run_id}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "expected_path", "path_params"),
    [
        ("GET", "/", "/", {}),
        ("GET", "/runs/1", "/runs/{run_id}", {"run_id": "1"}),
        ("DELETE", "/runs/1", "/runs/{run_id}", {"run_id": "1"}),
        ("POST", "/runs/wait", "/runs/wait", {}),
        ("GET", "/runs/wait", "/runs/{run_id}", {"run_id": "wait"}),
        ("GET", "/runs/crons/join", "/runs/crons/{cron_id}", {"cron_id": "join"}),
        ("GET", "/runs/c/join", "/runs/{run_id}/join", {"run_id": "c"}),
        (
            "GET",
            "/threads/t/runs/r",
            "/threads/{thread_id}/runs/{run_id}",
            {"thread_id": "t", "run_id": "r"},
        ),
    ],
)
def test_path_finds_its_endpoint(method, path, expected_path, path_params):
    match = TABLE.find(path, method)

    assert match is not None
    assert (match.endpoint.method, match.endpoint.path) == (method, expected_path)
    assert match.path_params == path_params


def test_head_finds_the_get_endpoint():
    match = TABLE.find("/runs/1", "HEAD")

    assert match is not None
    assert match.endpoint.method == "GET"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/runs/1"),
        ("GET", "/runs/1/"),
        ("GET", "/runs//join"),
        ("GET", "/one"),
        ("HEAD", "/runs/wait/x"),
    ],
)
def test_unknown_path_or_method_finds_no_endpoint(method, path):
    assert TABLE.find(path, method) is None


def test_path_lists_its_methods():
    assert TABLE.methods("/runs/1") == ["GET", "DELETE", "HEAD", "OPTIONS"]
    assert TABLE.methods("/runs/wait") == ["GET", "POST", "DELETE", "HEAD", "OPTIONS"]
    assert TABLE.methods("/unknown") == []


def test_declaring_a_method_and_path_twice_is_rejected():
    with pytest.raises(ValueError, match="declared twice"):
        RouteTable([endpoint("GET", "/runs"), endpoint("GET", "/runs")])


def test_function_parameter_that_is_neither_in_the_path_nor_an_input_is_rejected():
    def respond(context: HttpRequestContext, run_id: str) -> Response:
        return Response()

    with pytest.raises(TypeError, match="undeclared parameters"):
        Endpoint("GET", "/runs", respond, tag="runs")
