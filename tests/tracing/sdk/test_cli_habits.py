"""What the command line's own calls send and read, beside the Go client that it is built on."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.tracing.sdk.raw import CLI, run, speaking, told

pytestmark = pytest.mark.xdist_group("sdk-cli")
WINDOW = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}


@pytest.fixture(scope="module")
def cli(live):
    with speaking(live, CLI | {"x-tenant-id": live.workspace_id}) as client:
        yield client


def turn(project, minutes, said, heard, version):
    history = [{"role": "user", "content": said}]
    metadata = {"thread_id": "talk/1", "LANGSMITH_AGENT_VERSION": version}
    return run(
        project,
        minutes,
        inputs={"messages": history},
        outputs={"messages": [*history, heard]},
        extra={"metadata": metadata},
    )


@pytest.fixture(scope="module")
def project(cli):
    """Its id; in it a thread of three turns by two versions of an agent."""
    name = f"cli {uuid.uuid4()}"
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    turns = [
        turn(name, 3, "first?", {"role": "assistant", "content": "one"}, "aaa"),
        turn(name, 2, "second?", {"role": "assistant", "content": "", "tool_calls": [call]}, "aaa"),
        turn(name, 1, "third?", {"role": "assistant", "content": "three"}, "bbb"),
    ]
    told(cli.post("/runs/batch", json={"post": turns}), 202)
    (found,) = told(cli.get("/api/v1/sessions", params={"limit": 1, "name": name}))
    return found["id"]


def events(answer):
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for event in answer.text.strip().split("\n\n"):
        name, data = event.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def messages(cli, project, **asked):
    return events(
        cli.get(
            "/v2/threads/talk%2F1/messages",
            params={"project_id": project} | asked,
            headers={"Accept": "text/event-stream"},
        )
    )


def test_the_messages_of_a_thread_come_turn_by_turn(cli, project):
    *groups, last = messages(cli, project)

    kinds = [group["type"] for _, group in groups]
    assert kinds == [
        *("turn_boundary", "message", "message"),
        *("turn_boundary", "message", "tool_interaction"),
        *("turn_boundary", "message", "message"),
    ]
    assert [groups[at][1]["turnBoundary"]["turn_index"] for at in (0, 3, 6)] == [0, 1, 2]
    asked, answered = groups[1][1]["message"], groups[2][1]["message"]
    assert (asked["role"], asked["content"]) == ("human", "first?")
    assert (answered["role"], answered["content"]) == ("ai", "one")
    (call,) = groups[5][1]["toolCalls"]
    assert (call["name"], groups[5][1]["aiMessage"]["role"]) == ("look_up", "ai")
    assert last == ("metadata", {"next_cursor": None, "prev_cursor": None})


def test_pages_of_turns_lead_on_and_back(cli, project):
    def turns(found):
        return [one["turnBoundary"] for _, one in found[:-1] if one["type"] == "turn_boundary"]

    first = messages(cli, project, limit=2)
    second = messages(cli, project, limit=2, cursor=first[-1][1]["next_cursor"])
    back = messages(cli, project, limit=2, cursor=second[-1][1]["prev_cursor"])
    from_second = messages(cli, project, trace_id=turns(first)[1]["trace_id"])

    assert [one["turn_index"] for one in turns(first) + turns(second)] == [0, 1, 2]
    assert turns(back) == turns(first)
    assert [one["turn_index"] for one in turns(from_second)] == [1, 2]


def test_an_error_before_the_stream_is_json(cli, project):
    answer = cli.get(
        "/v2/threads/none/messages",
        params={"project_id": project},
        headers={"Accept": "text/event-stream"},
    )

    assert isinstance(told(answer, 404)["error"], str)


def test_versions_of_the_agent_are_listed_the_newest_first(cli, project):
    found = told(cli.get(f"/v1/platform/sessions/{project}/agent-versions"))

    assert [one["commit_sha"] for one in found] == ["bbb", "aaa"]
    assert found[0]["first_seen_at"] > found[1]["first_seen_at"]


def test_rules_are_listed(cli, project):
    assert told(cli.get("/runs/rules")) == []
    assert told(cli.get("/api/v1/runs/rules", params={"session_id": project})) == []


def test_a_dashboard_is_made_read_changed_and_deleted(cli, project):
    title = f"cli {uuid.uuid4()}"
    made = told(cli.post("/api/v1/charts/section", json={"title": title}))
    path = f"/api/v1/charts/section/{made['id']}"
    chart = {
        "title": "Runs",
        "chart_type": "line",
        "section_id": made["id"],
        "series": [{"name": "runs", "metric": "run_count", "filters": {"session": [project]}}],
    }
    added = told(cli.post("/api/v1/charts/create", json=chart))

    listed = told(cli.get("/api/v1/charts/section", params={"title_contains": title, "limit": 20}))
    read = told(cli.post(path, json=WINDOW | {"omit_data": True}))
    with_data = told(cli.post(path, json=WINDOW | {"stride": {"hours": 12}}))
    renamed = told(cli.patch(path, json={"description": "said"}))

    assert [(one["id"], one["chart_count"]) for one in listed] == [(made["id"], 1)]
    assert [(one["id"], one["data"]) for one in read["charts"]] == [(added["id"], [])]
    assert [point["value"] for point in with_data["charts"][0]["data"]] == [0, 0]
    assert (renamed["title"], renamed["description"]) == (title, "said")
    assert cli.delete(f"/api/v1/charts/{added['id']}").status_code in {200, 204}
    assert cli.delete(path).status_code in {200, 204}
    assert told(cli.get("/api/v1/charts/section", params={"title_contains": title})) == []


def test_a_chart_is_computed_without_being_kept(cli, project):
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

    found = told(cli.post("/api/v1/charts/preview", json=body))

    assert [(one["series_id"], one["value"], one["group"]) for one in found["data"]] == [
        ("preview-0", 0, None)
    ]


def test_threads_are_made_of_the_roots_of_the_last_day(cli, project):
    query = {"session": [project], "is_root": True, "limit": 100, "start_time": "2026-01-01T00:00Z"}

    found = told(cli.post("/api/v1/runs/query", json=query))
    of_one = told(
        cli.post("/api/v1/runs/query", json=query | {"filter": 'eq(thread_id, "talk/1")'})
    )

    assert {one["thread_id"] for one in found["runs"]} == {"talk/1"}
    assert len(of_one["runs"]) == 3


def test_a_trace_is_read_by_its_id_alone(cli, project):
    (newest, *_) = told(cli.post("/api/v1/runs/query", json={"session": [project]}))["runs"]

    body = {"trace": newest["trace_id"], "select": ["id", "name", "inputs", "trace_id"]}

    found = told(cli.post("/api/v1/runs/query", json=body))["runs"]
    assert [one["id"] for one in found] == [newest["id"]]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/charts/preview", {"chart": {}, "bucket_info": {}}, 422),
        ("/api/v1/runs/query", {"session": [str(uuid.UUID(int=1))], "filter": "eq("}, 400),
        ("/api/v1/charts/section", {}, 422),
    ],
)
def test_a_refusal_names_the_field_in_words(cli, path, body, status):
    assert isinstance(told(cli.post(path, json=body), status)["detail"], str)
