"""Section 13.1: what the server says of itself."""

from __future__ import annotations

import re
from importlib.metadata import version

import httpx
import pytest
from jsonschema import Draft202012Validator


@pytest.fixture
def raw(live, agent_url):
    with httpx.Client(base_url=agent_url, headers=live.headers, timeout=60) as http:
        yield http


@pytest.fixture
def stranger(agent_url):
    """Without any key."""
    with httpx.Client(base_url=agent_url, timeout=60) as http:
        yield http


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "/"])
def test_it_is_alive_for_everybody(stranger, path):
    answer = stranger.get(path)

    assert (answer.status_code, answer.json()) == (200, {"ok": True})


def test_info_needs_a_key(stranger):
    assert stranger.get("/info").status_code == 401


def test_info(raw):
    info = raw.get("/info").json()

    assert re.fullmatch(r"\d+\.\d+\.\d+", info["version"])
    assert info["flags"]["assistants"] is True
    assert info["flags"]["crons"] is True
    assert info["host"]["deployment"] == "contract"


def test_info_names_the_langgraph_of_the_revision(raw):
    found = raw.get("/info").json()["langgraph_py_version"]

    assert found.split(".")[0] == version("langgraph").split(".")[0]


def test_metrics_need_a_key(stranger):
    assert stranger.get("/metrics").status_code == 401


def test_metrics_as_json(raw):
    found = raw.get("/metrics", params={"format": "json"}).json()

    assert set(found) == {"queue", "workers", "api"}
    assert {"n_pending", "n_running"} <= set(found["queue"])
    assert set(found["workers"]) == {"max", "active", "available"}
    assert found["workers"]["max"] == 500
    assert found["workers"]["available"] == 500 - found["workers"]["active"]


def test_metrics_count_runs(client, raw):
    def queue():
        return raw.get("/metrics", params={"format": "json"}).json()["queue"]

    before = queue()
    thread = client.threads.create()
    run = client.runs.create(thread["thread_id"], "steps", input={"notes": []}, after_seconds=60)
    during = queue()
    client.runs.cancel(thread["thread_id"], run["run_id"])

    assert during["n_pending"] == before["n_pending"] + 1


def test_metrics_count_answers(raw):
    def requests():
        return raw.get("/metrics", params={"format": "json"}).json()["api"]["requests"]

    before = requests()
    raw.get("/info")

    assert requests() >= before + 2


def test_metrics_for_prometheus(raw):
    answer = raw.get("/metrics")

    assert answer.headers["Content-Type"].startswith("text/plain")
    for line in answer.text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+\{(\w+="[^"]*",?)+\} \S+', line), line


def test_metrics_of_another_kind(raw):
    assert raw.get("/metrics", params={"format": "xml"}).status_code == 422


def test_the_description_is_open_and_names_its_server(stranger):
    document = stranger.get("/openapi.json").json()

    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": "/agents/contract"}]


def test_the_description_has_every_call_of_the_client(stranger):
    paths = stranger.get("/openapi.json").json()["paths"]
    found = {f"{method.upper()} {path}" for path in paths for method in paths[path]}

    assert {
        "POST /assistants",
        "PATCH /assistants/{assistant_id}",
        "POST /assistants/{assistant_id}/latest",
        "GET /assistants/{assistant_id}/graph",
        "GET /assistants/{assistant_id}/subgraphs/{namespace}",
        "POST /threads/{thread_id}/state/checkpoint",
        "POST /threads/{thread_id}/history",
        "POST /threads/{thread_id}/runs/stream",
        "GET /threads/{thread_id}/runs/{run_id}/join",
        "POST /runs/batch",
        "POST /runs/cancel",
        "POST /runs/crons",
        "POST /threads/{thread_id}/runs/crons",
        "PUT /store/items",
        "POST /store/namespaces",
        "GET /info",
    } <= found


def test_a_described_answer_is_what_comes(raw):
    document = raw.get("/openapi.json").json()
    described = document["paths"]["/info"]["get"]["responses"]["200"]
    schema = described["content"]["application/json"]["schema"]

    Draft202012Validator({**schema, "components": document["components"]}).validate(
        raw.get("/info").json()
    )


def test_the_page_of_the_description_loads_nothing_from_elsewhere(stranger):
    page = stranger.get("/docs", headers={"Accept": "text/html"})

    assert page.status_code == 200
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert [source for source in sources if not source.startswith("/")] == []
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nothing", 404), ("/threads", 405), ("/threads/x", 422)],
)
def test_failures_have_one_shape(raw, path, status):
    answer = raw.get(path)

    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)


def test_a_trailing_slash_is_sent_away(raw):
    answer = raw.post("/threads/", json={})

    assert (answer.status_code, answer.headers["Location"]) == (307, "/agents/contract/threads")


def test_browsers_learn_what_they_may_read(raw):
    answer = raw.get("/info", headers={"Origin": "https://chat.example"})

    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    exposed = answer.headers["Access-Control-Expose-Headers"]
    assert {"content-location", "x-pagination-next"} <= set(exposed.split(", "))


@pytest.mark.parametrize("body", ['{"metadata": ', "NaN", '{"limit": 1e400}', '"\\ud800"', ""])
def test_bodies_that_are_no_json(raw, body):
    answer = raw.post("/assistants/search", content=body)

    assert (answer.status_code, answer.json()["detail"]) == (422, "Invalid JSON in request body")


def test_bodies_nested_without_end(raw):
    deep = "[" * 5000 + "]" * 5000

    assert raw.post("/assistants/search", content=deep).status_code == 422
    assert raw.post("/threads", content=f'{{"metadata": {{"a": {deep}}}}}').status_code == 422
