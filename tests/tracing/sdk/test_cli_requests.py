"""Requests of the command line client that the Go client, on which it is built, does not send."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.tracing.sdk.raw_clients import CLI, build_run, open_client, read_json

pytestmark = pytest.mark.xdist_group("sdk-cli")
WINDOW = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}


@pytest.fixture(scope="module")
def cli(live):
    with open_client(live, CLI | {"x-tenant-id": live.workspace_id}) as client:
        yield client


def build_turn(project, minutes, question, reply, version):
    history = [{"role": "user", "content": question}]
    metadata = {"thread_id": "talk/1", "LANGSMITH_AGENT_VERSION": version}
    return build_run(
        project,
        minutes,
        inputs={"messages": history},
        outputs={"messages": [*history, reply]},
        extra={"metadata": metadata},
    )


@pytest.fixture(scope="module")
def project(cli):
    """The id of a project with a thread of three turns by two versions of an agent."""
    name = f"cli {uuid.uuid4()}"
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    turns = [
        build_turn(name, 3, "first?", {"role": "assistant", "content": "one"}, "aaa"),
        build_turn(
            name, 2, "second?", {"role": "assistant", "content": "", "tool_calls": [call]}, "aaa"
        ),
        build_turn(name, 1, "third?", {"role": "assistant", "content": "three"}, "bbb"),
    ]
    read_json(cli.post("/runs/batch", json={"post": turns}), 202)
    (row,) = read_json(cli.get("/api/v1/sessions", params={"limit": 1, "name": name}))
    return row["id"]


def read_events(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for event in response.text.strip().split("\n\n"):
        name, data = event.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def read_messages(cli, project, **params):
    return read_events(
        cli.get(
            "/v2/threads/talk%2F1/messages",
            params={"project_id": project} | params,
            headers={"Accept": "text/event-stream"},
        )
    )


def test_the_messages_of_a_thread_are_streamed_by_turn(cli, project):
    *groups, last = read_messages(cli, project)

    kinds = [group["type"] for _, group in groups]
    assert kinds == [
        *("turn_boundary", "message", "message"),
        *("turn_boundary", "message", "tool_interaction"),
        *("turn_boundary", "message", "message"),
    ]
    assert [groups[at][1]["turnBoundary"]["turn_index"] for at in (0, 3, 6)] == [0, 1, 2]
    question, reply = groups[1][1]["message"], groups[2][1]["message"]
    assert (question["role"], question["content"]) == ("human", "first?")
    assert (reply["role"], reply["content"]) == ("ai", "one")
    (call,) = groups[5][1]["toolCalls"]
    assert (call["name"], groups[5][1]["aiMessage"]["role"]) == ("look_up", "ai")
    assert last == ("metadata", {"next_cursor": None, "prev_cursor": None})


def test_cursors_page_the_turns_forward_and_back(cli, project):
    def boundaries(events):
        return [data["turnBoundary"] for _, data in events[:-1] if data["type"] == "turn_boundary"]

    first = read_messages(cli, project, limit=2)
    second = read_messages(cli, project, limit=2, cursor=first[-1][1]["next_cursor"])
    back = read_messages(cli, project, limit=2, cursor=second[-1][1]["prev_cursor"])
    from_second = read_messages(cli, project, trace_id=boundaries(first)[1]["trace_id"])

    assert [boundary["turn_index"] for boundary in boundaries(first) + boundaries(second)] == [
        0,
        1,
        2,
    ]
    assert boundaries(back) == boundaries(first)
    assert [boundary["turn_index"] for boundary in boundaries(from_second)] == [1, 2]


def test_an_error_before_the_stream_is_json(cli, project):
    response = cli.get(
        "/v2/threads/none/messages",
        params={"project_id": project},
        headers={"Accept": "text/event-stream"},
    )

    assert isinstance(read_json(response, 404)["error"], str)


def test_versions_of_the_agent_are_listed_the_newest_first(cli, project):
    versions = read_json(cli.get(f"/v1/platform/sessions/{project}/agent-versions"))

    assert [version["commit_sha"] for version in versions] == ["bbb", "aaa"]
    assert versions[0]["first_seen_at"] > versions[1]["first_seen_at"]


def test_rules_are_listed(cli, project):
    assert read_json(cli.get("/runs/rules")) == []
    assert read_json(cli.get("/api/v1/runs/rules", params={"session_id": project})) == []


def test_a_dashboard_is_created_read_changed_and_deleted(cli, project):
    title = f"cli {uuid.uuid4()}"
    section = read_json(cli.post("/api/v1/charts/section", json={"title": title}))
    path = f"/api/v1/charts/section/{section['id']}"
    chart = {
        "title": "Runs",
        "chart_type": "line",
        "section_id": section["id"],
        "series": [{"name": "runs", "metric": "run_count", "filters": {"session": [project]}}],
    }
    created_chart = read_json(cli.post("/api/v1/charts/create", json=chart))

    listed = read_json(
        cli.get("/api/v1/charts/section", params={"title_contains": title, "limit": 20})
    )
    read = read_json(cli.post(path, json=WINDOW | {"omit_data": True}))
    with_data = read_json(cli.post(path, json=WINDOW | {"stride": {"hours": 12}}))
    renamed = read_json(cli.patch(path, json={"description": "a description"}))

    assert [(row["id"], row["chart_count"]) for row in listed] == [(section["id"], 1)]
    assert [(chart["id"], chart["data"]) for chart in read["charts"]] == [(created_chart["id"], [])]
    assert [point["value"] for point in with_data["charts"][0]["data"]] == [0, 0]
    assert (renamed["title"], renamed["description"]) == (title, "a description")
    assert cli.delete(f"/api/v1/charts/{created_chart['id']}").status_code in {200, 204}
    assert cli.delete(path).status_code in {200, 204}
    assert read_json(cli.get("/api/v1/charts/section", params={"title_contains": title})) == []


def test_a_chart_preview_is_computed_and_not_stored(cli, project):
    series = [
        {
            "id": "preview-0",
            "name": "runs",
            "metric": "run_count",
            "filters": {"session": [project]},
        }
    ]
    body = {
        "chart": {"series": series},
        "bucket_info": WINDOW | {"stride": {"days": 1}, "timezone": "UTC"},
    }

    preview = read_json(cli.post("/api/v1/charts/preview", json=body))

    assert [(point["series_id"], point["value"], point["group"]) for point in preview["data"]] == [
        ("preview-0", 0, None)
    ]


def test_root_runs_are_listed_with_their_thread_id(cli, project):
    query = {"session": [project], "is_root": True, "limit": 100, "start_time": "2026-01-01T00:00Z"}

    roots = read_json(cli.post("/api/v1/runs/query", json=query))
    thread_roots = read_json(
        cli.post("/api/v1/runs/query", json=query | {"filter": 'eq(thread_id, "talk/1")'})
    )

    assert {run["thread_id"] for run in roots["runs"]} == {"talk/1"}
    assert len(thread_roots["runs"]) == 3


def test_a_trace_is_queried_by_its_id_without_a_project(cli, project):
    (newest, *_) = read_json(cli.post("/api/v1/runs/query", json={"session": [project]}))["runs"]

    body = {"trace": newest["trace_id"], "select": ["id", "name", "inputs", "trace_id"]}

    runs = read_json(cli.post("/api/v1/runs/query", json=body))["runs"]
    assert [run["id"] for run in runs] == [newest["id"]]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/charts/preview", {"chart": {}, "bucket_info": {}}, 422),
        ("/api/v1/runs/query", {"session": [str(uuid.UUID(int=1))], "filter": "eq("}, 400),
        ("/api/v1/charts/section", {}, 422),
    ],
)
def test_the_detail_of_an_error_is_a_string(cli, path, body, status):
    assert isinstance(read_json(cli.post(path, json=body), status)["detail"], str)
