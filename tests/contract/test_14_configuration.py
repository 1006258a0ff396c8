"""Section 14: langgraph.json. Custom routes, CORS, prefixes, disabled routes."""

from __future__ import annotations

import json
import threading
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from tests.contract.deployment import deploy_shared
from tests.installation import wait_until
from tests.response_deadline import with_deadline

# One test ends the agent's process, which disturbs the other tests of this file.
pytestmark = pytest.mark.xdist_group("http")

TOM = {"Authorization": "tom"}
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def url(live):
    return deploy_shared(live, "http")


@pytest.fixture(scope="module")
def tom(url):
    with with_deadline(httpx.Client(base_url=url, headers=TOM, timeout=60)) as client:
        yield client


@pytest.fixture(scope="module")
def sdk(url):
    with with_deadline(get_sync_client(url=url, api_key=None, headers=TOM, timeout=60)) as client:
        yield client


# Custom routes


def test_a_request_arrives_as_it_was_sent(tom):
    response = tom.post("/own/echo?a=1&b=%20x", content=b"12345", headers={"X-Mine": "1"})

    echo = response.json()
    assert (echo["method"], echo["below"], echo["size"]) == ("POST", "/own/echo", 5)
    assert echo["query"] == {"a": "1", "b": " x"}
    assert "x-mine" in echo["headers"]
    assert response.headers["x-own"] == "yes"


def test_a_custom_route_has_path_parameters(tom):
    assert tom.get("/own/items/7").json()["item"] == 7
    assert tom.get("/own/items/seven").status_code == 404


def test_the_lifespan_of_the_application_runs_before_requests(tom):
    echo = tom.get("/own/echo").json()

    assert (echo["greeting"], echo["started"]) == ("hello", 1)


def test_the_middleware_of_the_application_applies_to_its_routes_only(tom, sdk):
    assert tom.get("/own/echo").headers["x-stamp"] == "1"
    assert "x-stamp" not in tom.post("/threads", json={}).headers


def test_custom_routes_read_the_user(tom):
    echo = tom.get("/own/echo").json()

    assert (echo["user"], echo["authenticated_for"]) == ("tom", "GET /own/echo")


def test_custom_routes_reject_anonymous_callers(url):
    response = httpx.get(f"{url}/own/echo")

    assert (response.status_code, response.json()["detail"]) == (401, "No token.")


def test_custom_routes_shadow_routes_of_the_server(sdk, tom):
    assert sdk.assistants.search() == [{"shadowed": True}]
    assert tom.post("/assistants/count", json={}).json() == 1


def test_an_unsupported_method_of_a_custom_route_is_rejected(tom):
    assert tom.delete("/own/echo").status_code == 405
    assert tom.get("/assistants/search").status_code in {404, 405, 422}


def test_a_mounted_application_serves_all_paths_below(tom):
    assert tom.get("/files/a/b.txt").text == "a file"


def test_a_stream_is_relayed_in_pieces_until_the_client_disconnects(tom):
    before = tom.get("/own/seen").json()["left"]

    # Collected first, the stream would take a day.
    with tom.stream("GET", "/own/count?to=1000000&pause=0.1") as response:
        lines = (line for line in response.iter_lines() if line)
        received = [next(lines) for _ in range(3)]

    assert received == ["data: 0", "data: 1", "data: 2"]
    assert response.headers["content-type"].startswith("text/event-stream")
    wait_until(lambda: tom.get("/own/seen").json()["left"] == before + 1, "the end")


def test_a_large_response_is_complete(tom):
    response = tom.get("/own/large?megabytes=8")

    assert len(response.content) == 8 * MEGABYTE


def test_a_slow_reader_does_not_delay_other_requests(tom):
    with tom.stream("GET", "/own/large?megabytes=64") as slow:
        first = next(slow.iter_raw())
        others = [tom.get("/own/items/1").json()["item"] for _ in range(5)]

    assert len(first) > 0
    assert others == [1] * 5


def test_a_large_request_is_complete(tom):
    assert tom.post("/own/upload", content=b"x" * 3 * MEGABYTE).json() == {"size": 3 * MEGABYTE}


def test_a_request_of_unknown_length_is_streamed(tom):
    def parts():
        for _ in range(10):
            yield b"y" * 100_000

    assert tom.post("/own/upload", content=parts()).json() == {"size": 1_000_000}


def test_a_request_above_the_limit_is_rejected(tom):
    def parts():
        for _ in range(40):
            yield b"z" * MEGABYTE

    try:
        code = tom.post("/own/upload", content=parts()).status_code
    except httpx.WriteError:
        code = 413  # rejected while the body was sent

    assert code == 413


def test_the_error_of_a_crashing_route_is_not_shown(tom):
    response = tom.get("/own/crash")

    assert response.status_code in {500, 502}
    assert "a secret of the route" not in response.text


def test_custom_routes_are_sandboxed_by_their_security_policy(tom):
    policy = tom.get("/own/echo").headers["content-security-policy"]

    assert policy.startswith("sandbox")
    assert "allow-same-origin" not in policy


def test_custom_routes_set_no_headers_of_the_whole_origin(tom):
    headers = tom.get("/own/echo").headers

    assert (headers["x-own"], headers["mcp-session-id"]) == ("yes", "session")
    attempted = {
        *("alt-svc", "nel", "report-to", "reporting-endpoints", "accept-ch", "clear-site-data"),
        *("service-worker-allowed", "strict-transport-security", "x-accel-redirect"),
    }
    assert attempted & set(headers) == set()


def test_pages_of_the_platform_do_not_load_scripts_of_agents(tom):
    statuses = [
        tom.get(
            "/own/echo", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": destination}
        ).status_code
        for site in ("same-origin", "cross-site")
        for destination in ("script", "style", "sharedworker", "document", "empty", "image")
    ]

    assert statuses == [403, 403, 403, 200, 200, 200, *[200] * 6]


def test_cookies_of_custom_routes_are_limited_to_the_path_of_the_agent(tom, url):
    cookie = tom.get("/own/echo").headers["set-cookie"]

    assert cookie == f"seen=1; HttpOnly; Path=/agents/{url.rpartition('/')[2]}"


def test_concurrent_streams_are_complete(url):
    texts = []

    def read_stream():
        texts.append(httpx.get(f"{url}/own/count?to=5&pause=0.1", headers=TOM, timeout=60).text)

    threads = [threading.Thread(target=read_stream) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert [text.count("data:") for text in texts] == [5] * 20


def test_the_agent_recovers_when_its_process_exits(tom, sdk):
    response = tom.get("/own/end")

    assert response.status_code == 502
    assert tom.get("/own/items/3").json()["item"] == 3
    assert sdk.runs.wait(None, "agent", input={})["message"] == "hello"


# WebSockets


def socket_url(url):
    return url.replace("http://", "ws://", 1) + "/own/socket"


def test_a_websocket_sends_and_receives(url):
    with connect(socket_url(url), additional_headers=TOM, subprotocols=["chat"]) as socket:
        greeting = json.loads(socket.recv(timeout=120))
        socket.send("hello")
        reversed_text = socket.recv(timeout=120)

    assert (greeting, reversed_text) == ({"user": "tom"}, "olleh")
    assert socket.subprotocol == "chat"


def test_a_websocket_is_closed_with_the_code_of_the_application(url):
    with connect(socket_url(url), additional_headers=TOM) as socket:
        socket.recv(timeout=120)
        socket.send("bye")
        with pytest.raises(ConnectionClosedError) as closed:
            socket.recv(timeout=120)

    assert closed.value.rcvd.code == 4001


def test_a_websocket_rejects_anonymous_callers(url):
    with pytest.raises(InvalidStatus) as caught:
        connect(socket_url(url))

    assert caught.value.response.status_code == 403


# Disabled routes


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/store/items"),
        ("GET", "/store/items?namespace=a&key=k"),
        ("POST", "/store/items/search"),
        ("POST", "/store/namespaces"),
        ("POST", "/mcp"),
        ("GET", "/info"),
        ("GET", "/metrics"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
    ],
)
def test_disabled_routes_are_not_found(tom, method, path):
    options = {} if method == "GET" else {"json": {}}

    response = tom.request(method, path, **options)

    assert (response.status_code, response.json()["detail"]) == (404, "Not found.")


def test_health_is_served_with_disabled_routes(url):
    assert httpx.get(f"{url}/ok").json()["ok"] is True


# The prefix


def test_the_api_is_served_under_the_prefix(url):
    thread_id = str(uuid4())
    with get_sync_client(
        url=f"{url}/inner", api_key=None, headers=TOM, timeout=60
    ) as prefixed_client:
        prefixed_client.threads.create(thread_id=thread_id)
        values = prefixed_client.runs.wait(thread_id, "agent", input={})

    without = httpx.get(f"{url}/threads/{thread_id}", headers=TOM)
    assert values["message"] == "hello"
    assert without.json()["values"]["message"] == "hello"


def test_custom_routes_are_served_under_the_prefix(tom):
    echo = tom.get("/inner/own/echo").json()

    assert echo["path"].endswith("/inner/own/echo")
    assert echo["below"] == "/own/echo"


# CORS


def preflight(
    url, origin="https://app.example", method="POST", headers="x-api-key", path="/threads"
):
    return httpx.options(
        url + path,
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": headers,
        },
    )


def test_a_listed_origin_passes_the_preflight(url):
    response = preflight(url)

    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "https://app.example"
    assert response.headers["access-control-allow-methods"] == "GET, POST"
    assert response.headers["access-control-max-age"] == "7"
    assert "x-api-key" in response.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"origin": "https://evil.example"}, "Disallowed CORS origin"),
        ({"method": "DELETE"}, "Disallowed CORS method"),
        ({"headers": "x-else"}, "Disallowed CORS headers"),
    ],
)
def test_an_unlisted_origin_method_or_header_fails_the_preflight(url, changes, message):
    response = preflight(url, **changes)

    assert (response.status_code, response.text) == (400, message)


def test_an_origin_is_allowed_by_a_pattern(url):
    assert preflight(url, origin="https://pr.preview.example").status_code == 200
    assert preflight(url, origin="https://preview.example.evil").status_code == 400


@pytest.mark.parametrize("path", ["/threads", "/own/echo", "/runs/wait"])
def test_responses_allow_only_listed_origins(url, path):
    body = {"assistant_id": "agent", "input": {}}
    responses = {
        origin: httpx.post(url + path, json=body, headers={**TOM, "Origin": origin}, timeout=60)
        for origin in ("https://app.example", "https://evil.example")
    }

    allowed = {
        origin: response.headers.get("access-control-allow-origin")
        for origin, response in responses.items()
    }
    assert allowed == {"https://app.example": "https://app.example", "https://evil.example": None}
    exposed = responses["https://app.example"].headers["access-control-expose-headers"]
    assert exposed == "Content-Location"


def test_error_responses_allow_listed_origins(url):
    response = httpx.post(f"{url}/threads", json={}, headers={"Origin": "https://app.example"})

    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == "https://app.example"


# Variables


def test_the_graph_reads_the_variables_of_the_file(sdk):
    assert sdk.runs.wait(None, "agent", input={})["message"] == "hello"


def test_a_run_times_out_after_the_configured_duration(sdk):
    thread = sdk.threads.create()["thread_id"]

    result = sdk.runs.wait(thread, "agent", input={"sleep": 100}, raise_error=False)

    assert result["__error__"]["error"] == "TimeoutError"
    assert sdk.runs.list(thread)[0]["status"] == "timeout"


# A client inside the graph


def test_a_graph_calls_its_own_server(sdk):
    values = sdk.runs.wait(None, "agent", input={"call": True})

    assert values["message"] == "called"
    assert values["threads"] == [{"made": "inside"}]
