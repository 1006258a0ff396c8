"""Section 13.1: health, info, metrics and the OpenAPI document."""

from __future__ import annotations

import re
from importlib.metadata import version

import httpx
import pytest
from jsonschema import Draft202012Validator


@pytest.fixture
def anonymous(agent_url):
    """An HTTP client without a key."""
    with httpx.Client(base_url=agent_url, timeout=60) as http:
        yield http


@pytest.mark.parametrize("path", ["/ok", "/ok?check_db=1", "/"])
def test_health_is_public(anonymous, path):
    response = anonymous.get(path)

    assert (response.status_code, response.json()) == (200, {"ok": True})


def test_info_needs_a_key(anonymous):
    assert anonymous.get("/info").status_code == 401


def test_info_names_version_flags_and_deployment(raw):
    info = raw.get("/info").json()

    assert re.fullmatch(r"\d+\.\d+\.\d+", info["version"])
    assert info["flags"]["assistants"] is True
    assert info["flags"]["crons"] is True
    assert info["host"]["deployment"] == "contract"


def test_info_names_the_langgraph_version_of_the_revision(raw):
    langgraph_version = raw.get("/info").json()["langgraph_py_version"]

    assert langgraph_version.split(".")[0] == version("langgraph").split(".")[0]


def test_metrics_need_a_key(anonymous):
    assert anonymous.get("/metrics").status_code == 401


def test_metrics_are_served_as_json(raw):
    metrics = raw.get("/metrics", params={"format": "json"}).json()

    assert set(metrics) == {"queue", "workers", "api"}
    assert {"n_pending", "n_running"} <= set(metrics["queue"])
    assert set(metrics["workers"]) == {"max", "active", "available"}
    assert metrics["workers"]["max"] == 781
    assert metrics["workers"]["available"] == 781 - metrics["workers"]["active"]


def test_metrics_count_runs(client, raw):
    def read_queue():
        return raw.get("/metrics", params={"format": "json"}).json()["queue"]

    before = read_queue()
    thread = client.threads.create()
    run = client.runs.create(thread["thread_id"], "steps", input={"notes": []}, after_seconds=60)
    during = read_queue()
    client.runs.cancel(thread["thread_id"], run["run_id"])

    assert during["n_pending"] == before["n_pending"] + 1


def test_metrics_count_requests(raw):
    def count_requests():
        return raw.get("/metrics", params={"format": "json"}).json()["api"]["requests"]

    before = count_requests()
    raw.get("/info")

    assert count_requests() >= before + 2


def test_metrics_are_served_for_prometheus(raw):
    response = raw.get("/metrics")

    assert response.headers["Content-Type"].startswith("text/plain")
    for line in response.text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+\{(\w+="[^"]*",?)+\} \S+', line), line


def test_an_unknown_metrics_format_is_rejected(raw):
    assert raw.get("/metrics", params={"format": "xml"}).status_code == 422


def test_the_openapi_document_is_public_and_names_its_server(anonymous):
    document = anonymous.get("/openapi.json").json()

    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": "/agents/contract"}]


def test_the_openapi_document_has_every_call_of_the_client(anonymous):
    paths = anonymous.get("/openapi.json").json()["paths"]
    operations = {f"{method.upper()} {path}" for path in paths for method in paths[path]}

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
    } <= operations


def test_a_response_matches_its_schema(raw):
    document = raw.get("/openapi.json").json()
    described = document["paths"]["/info"]["get"]["responses"]["200"]
    schema = described["content"]["application/json"]["schema"]

    Draft202012Validator({**schema, "components": document["components"]}).validate(
        raw.get("/info").json()
    )


def test_the_docs_page_loads_nothing_from_other_origins(anonymous):
    page = anonymous.get("/docs", headers={"Accept": "text/html"})

    assert page.status_code == 200
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert [source for source in sources if not source.startswith("/")] == []
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nothing", 404), ("/threads", 405), ("/threads/x", 422)],
)
def test_an_error_has_a_detail_string(raw, path, status):
    response = raw.get(path)

    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)


def test_a_trailing_slash_is_redirected(raw):
    response = raw.post("/threads/", json={})

    assert (response.status_code, response.headers["Location"]) == (307, "/agents/contract/threads")


def test_cors_headers_allow_any_origin_and_expose_pagination(raw):
    response = raw.get("/info", headers={"Origin": "https://chat.example"})

    assert response.headers["Access-Control-Allow-Origin"] == "*"
    exposed = response.headers["Access-Control-Expose-Headers"]
    assert {"content-location", "x-pagination-next"} <= set(exposed.split(", "))


@pytest.mark.parametrize("body", ['{"metadata": ', "NaN", '{"limit": 1e400}', '"\\ud800"', ""])
def test_a_body_that_is_not_json_is_rejected(raw, body):
    response = raw.post("/assistants/search", content=body)

    assert (response.status_code, response.json()["detail"]) == (
        422,
        "Invalid JSON in request body",
    )


def test_a_deeply_nested_body_is_rejected(raw):
    deep = "[" * 5000 + "]" * 5000

    assert raw.post("/assistants/search", content=deep).status_code == 422
    assert raw.post("/threads", content=f'{{"metadata": {{"a": {deep}}}}}').status_code == 422
