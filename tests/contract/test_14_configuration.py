"""Section 14: langgraph.json. Routes of the agent's own, CORS, prefixes, what is left out."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from tests.contract.deploying import deploy
from tests.installation import wait_until
from tests.response_deadline import with_deadline

# One of the tests ends the agent's process, under the feet of all others.
pytestmark = pytest.mark.xdist_group("http")

TOM = {"Authorization": "tom"}
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def url(live):
    return deploy(live, Path(__file__).parent / "http_project", "http")


@pytest.fixture(scope="module")
def tom(url):
    with with_deadline(httpx.Client(base_url=url, headers=TOM, timeout=60)) as client:
        yield client


@pytest.fixture(scope="module")
def sdk(url):
    with with_deadline(get_sync_client(url=url, api_key=None, headers=TOM, timeout=60)) as client:
        yield client


# Routes of the agent's own


def test_a_request_arrives_as_it_was_sent(tom):
    answer = tom.post("/own/echo?a=1&b=%20x", content=b"12345", headers={"X-Mine": "1"})

    told = answer.json()
    assert (told["method"], told["below"], told["size"]) == ("POST", "/own/echo", 5)
    assert told["query"] == {"a": "1", "b": " x"}
    assert "x-mine" in told["headers"]
    assert answer.headers["x-own"] == "yes"


def test_a_path_may_have_parameters(tom):
    assert tom.get("/own/items/7").json()["item"] == 7
    assert tom.get("/own/items/seven").status_code == 404


def test_the_application_starts_before_it_serves(tom):
    told = tom.get("/own/echo").json()

    assert (told["greeting"], told["started"]) == ("hello", 1)


def test_its_middleware_is_around_its_routes_only(tom, sdk):
    assert tom.get("/own/echo").headers["x-stamp"] == "1"
    assert "x-stamp" not in tom.post("/threads", json={}).headers


def test_its_routes_know_the_user(tom):
    told = tom.get("/own/echo").json()

    assert (told["user"], told["asked"]) == ("tom", "GET /own/echo")


def test_its_routes_are_shut_where_they_are_to_be_authenticated(url):
    answer = httpx.get(f"{url}/own/echo")

    assert (answer.status_code, answer.json()["detail"]) == (401, "No token.")


def test_its_routes_shadow_the_servers(sdk, tom):
    assert sdk.assistants.search() == [{"shadowed": True}]
    assert tom.post("/assistants/count", json={}).json() == 1


def test_a_method_that_it_does_not_take_is_the_servers_or_nobodys(tom):
    assert tom.delete("/own/echo").status_code == 405
    assert tom.get("/assistants/search").status_code in {404, 405, 422}


def test_what_is_mounted_takes_all_that_is_below(tom):
    assert tom.get("/files/a/b.txt").text == "a file"


def test_a_stream_comes_piece_by_piece(tom):
    with tom.stream("GET", "/own/count?to=3&pause=1") as answer:
        came = [(line, time.monotonic()) for line in answer.iter_lines() if line]

    assert [line for line, _ in came] == ["data: 0", "data: 1", "data: 2"]
    assert came[2][1] - came[0][1] > 0.1
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_client_that_leaves_is_noticed(tom):
    before = tom.get("/own/seen").json()["left"]

    with tom.stream("GET", "/own/count?to=1000&pause=0.05") as answer:
        next(answer.iter_lines())

    wait_until(lambda: tom.get("/own/seen").json()["left"] == before + 1, "the end", seconds=60)


def test_large_answers_arrive_whole(tom):
    answer = tom.get("/own/large?megabytes=8")

    assert len(answer.content) == 8 * MEGABYTE


def test_a_slow_reader_holds_nobody_up(tom):
    with tom.stream("GET", "/own/large?megabytes=64") as slow:
        first = next(slow.iter_raw())
        begun = time.monotonic()
        others = [tom.get("/own/items/1").json()["item"] for _ in range(5)]
        taken = time.monotonic() - begun

    assert len(first) > 0
    assert others == [1] * 5
    assert taken < 30


def test_large_requests_arrive_whole(tom):
    assert tom.post("/own/upload", content=b"x" * 3 * MEGABYTE).json() == {"size": 3 * MEGABYTE}


def test_a_request_of_unknown_length_is_streamed(tom):
    def parts():
        for _ in range(10):
            yield b"y" * 100_000

    assert tom.post("/own/upload", content=parts()).json() == {"size": 1_000_000}


def test_a_request_may_not_be_larger_than_any(tom):
    def parts():
        for _ in range(40):
            yield b"z" * MEGABYTE

    try:
        code = tom.post("/own/upload", content=parts()).status_code
    except httpx.WriteError:
        code = 413  # it was refused while it was being sent

    assert code == 413


def test_a_route_that_crashes_answers_without_its_secrets(tom):
    answer = tom.get("/own/crash")

    assert answer.status_code in {500, 502}
    assert "what nobody should read" not in answer.text


def test_its_pages_cannot_become_pages_of_the_platform(tom):
    policy = tom.get("/own/echo").headers["content-security-policy"]

    assert policy.startswith("sandbox")
    assert "allow-same-origin" not in policy


def test_its_cookies_stay_below_its_address(tom, url):
    cookie = tom.get("/own/echo").headers["set-cookie"]

    assert cookie == f"seen=1; HttpOnly; Path=/agents/{url.rpartition('/')[2]}"


def test_many_at_once(url):
    codes = []

    def ask():
        codes.append(httpx.get(f"{url}/own/count?to=5&pause=0.1", headers=TOM, timeout=60).text)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert [text.count("data:") for text in codes] == [5] * 20


def test_the_others_go_on_when_its_process_dies(tom, sdk):
    answer = tom.get("/own/end")

    assert answer.status_code == 502
    assert tom.get("/own/items/3").json()["item"] == 3
    assert sdk.runs.wait(None, "agent", input={})["said"] == "hello"


# WebSockets


def socket_url(url):
    return url.replace("http://", "ws://", 1) + "/own/socket"


def test_a_websocket_speaks_both_ways(url):
    with connect(socket_url(url), additional_headers=TOM, subprotocols=["chat"]) as socket:
        greeted = json.loads(socket.recv(timeout=20))
        socket.send("hello")
        turned = socket.recv(timeout=20)

    assert (greeted, turned) == ({"user": "tom"}, "olleh")
    assert socket.subprotocol == "chat"


def test_a_websocket_is_closed_by_its_application(url):
    with connect(socket_url(url), additional_headers=TOM) as socket:
        socket.recv(timeout=20)
        socket.send("bye")
        with pytest.raises(ConnectionClosedError) as closed:
            socket.recv(timeout=20)

    assert closed.value.rcvd.code == 4001


def test_a_websocket_is_shut_to_strangers(url):
    with pytest.raises(InvalidStatus) as refused:
        connect(socket_url(url))

    assert refused.value.response.status_code == 403


# What is left out


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
def test_groups_of_routes_can_be_left_out(tom, method, path):
    sent = {} if method == "GET" else {"json": {}}

    answer = tom.request(method, path, **sent)

    assert (answer.status_code, answer.json()["detail"]) == (404, "Not found.")


def test_it_is_alive_all_the_same(url):
    assert httpx.get(f"{url}/ok").json()["ok"] is True


# The prefix


def test_the_prefix_leads_to_the_same(url):
    thread_id = str(uuid4())
    with with_deadline(
        get_sync_client(url=f"{url}/inner", api_key=None, headers=TOM, timeout=60)
    ) as inner:
        inner.threads.create(thread_id=thread_id)
        answer = inner.runs.wait(thread_id, "agent", input={})

    without = httpx.get(f"{url}/threads/{thread_id}", headers=TOM)
    assert answer["said"] == "hello"
    assert without.json()["values"]["said"] == "hello"


def test_own_routes_are_below_the_prefix_too(tom):
    told = tom.get("/inner/own/echo").json()

    assert told["path"].endswith("/inner/own/echo")
    assert told["below"] == "/own/echo"


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


def test_a_listed_origin_may_ask(url):
    answer = preflight(url)

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert answer.headers["access-control-allow-methods"] == "GET, POST"
    assert answer.headers["access-control-max-age"] == "7"
    assert "x-api-key" in answer.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"origin": "https://evil.example"}, "Disallowed CORS origin"),
        ({"method": "DELETE"}, "Disallowed CORS method"),
        ({"headers": "x-else"}, "Disallowed CORS headers"),
    ],
)
def test_what_is_not_listed_may_not(url, changes, says):
    answer = preflight(url, **changes)

    assert (answer.status_code, answer.text) == (400, says)


def test_origins_may_fit_a_pattern(url):
    assert preflight(url, origin="https://pr.preview.example").status_code == 200
    assert preflight(url, origin="https://preview.example.evil").status_code == 400


@pytest.mark.parametrize("path", ["/threads", "/own/echo", "/runs/wait"])
def test_answers_say_who_may_read_them(url, path):
    body = {"assistant_id": "agent", "input": {}}
    answers = {
        origin: httpx.post(url + path, json=body, headers={**TOM, "Origin": origin}, timeout=60)
        for origin in ("https://app.example", "https://evil.example")
    }

    read = {o: a.headers.get("access-control-allow-origin") for o, a in answers.items()}
    assert read == {"https://app.example": "https://app.example", "https://evil.example": None}
    exposed = answers["https://app.example"].headers["access-control-expose-headers"]
    assert exposed == "Content-Location"


def test_refusals_can_be_read_by_listed_origins(url):
    answer = httpx.post(f"{url}/threads", json={}, headers={"Origin": "https://app.example"})

    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "https://app.example"


# Variables


def test_variables_of_the_file_reach_the_graph(sdk):
    assert sdk.runs.wait(None, "agent", input={})["said"] == "hello"


def test_the_longest_run_is_what_the_deployment_says(sdk):
    thread = sdk.threads.create()["thread_id"]

    answer = sdk.runs.wait(thread, "agent", input={"sleep": 30}, raise_error=False)

    assert answer["__error__"]["error"] == "TimeoutError"
    assert sdk.runs.list(thread)[0]["status"] == "timeout"


# A client inside the graph


def test_a_graph_may_call_its_own_server(sdk):
    answer = sdk.runs.wait(None, "agent", input={"call": True})

    assert answer["said"] == "called"
    assert answer["found"] == [{"made": "inside"}]
