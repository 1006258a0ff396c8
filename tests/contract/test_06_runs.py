"""Section 6: creating, reading and waiting for runs; the fields of a run (2.3)."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from langgraph_sdk.errors import APIStatusError, NotFoundError

from tests.installation import wait_until

# A fixed id, because test ids must be the same in every worker.
UNKNOWN_ID = "6f1e3d0a-0000-4000-8000-000000000000"

DONE = ["plan", "write", "review"]
RUN_FIELDS = {
    "run_id", "thread_id", "assistant_id", "created_at", "updated_at", "status", "metadata",
    "kwargs", "multitask_strategy",
}  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")


@pytest.fixture
def assistant_id(client):
    """The id of the system assistant of the graph `pace`."""
    [assistant] = client.assistants.search(graph_id="pace", metadata={"created_by": "system"})
    return assistant["assistant_id"]


def build_input(note="start"):
    return {"notes": [note]}


def post(client, path, body):
    return client.http.client.post(path, json=body)


# 2.3 The run


def test_a_run_has_the_fields_that_clients_know(client, thread_id, assistant_id):
    run = client.runs.create(thread_id, "pace", input=build_input())

    assert set(run) >= RUN_FIELDS
    assert (run["thread_id"], run["assistant_id"]) == (thread_id, assistant_id)
    assert (run["status"], run["multitask_strategy"]) == ("pending", "enqueue")
    assert all(TIME.fullmatch(run[name]) for name in ("created_at", "updated_at"))


def test_ids_of_runs_sort_by_time(client, thread_id):
    run_ids = [
        client.runs.create(thread_id, "pace", input=build_input())["run_id"] for _ in range(3)
    ]

    assert run_ids == sorted(run_ids)
    assert {run_id[14] for run_id in run_ids} == {"7"}


def test_kwargs_contain_the_options_of_the_request(client, thread_id):
    run = client.runs.create(
        thread_id, "pace", input=build_input(), stream_mode="updates", durability="sync",
        interrupt_before=["write"], stream_subgraphs=True, stream_resumable=True,
    )  # fmt: skip

    expected = {
        "input": build_input(), "command": None, "stream_mode": ["updates"], "durability": "sync",
        "interrupt_before": ["write"], "interrupt_after": None, "subgraphs": True,
        "resumable": True, "webhook": None,
    }  # fmt: skip
    assert expected.items() <= run["kwargs"].items()


def test_metadata_of_the_request_override_those_of_thread_and_assistant(client):
    assistant = client.assistants.create("pace", metadata={"a": "assistant", "b": "assistant"})
    thread = client.threads.create(metadata={"b": "thread", "c": "thread"})

    run = client.runs.create(
        thread["thread_id"],
        assistant["assistant_id"],
        input=build_input(),
        metadata={"c": "request"},
    )

    assert run["metadata"] == {
        "a": "assistant", "b": "thread", "c": "request", "graph_id": "pace",
        "assistant_id": assistant["assistant_id"],
    }  # fmt: skip


def test_an_interrupted_run_is_a_success(client, thread_id):
    run = client.runs.create(thread_id, "human", input={"notes": ["start"]})
    client.runs.join(thread_id, run["run_id"])

    assert client.runs.get(thread_id, run["run_id"])["status"] == "success"
    assert client.threads.get(thread_id)["status"] == "interrupted"


# 6.1 The body


@pytest.mark.parametrize("name", ["input", "command", "context", "metadata", "webhook"])
def test_a_null_field_is_treated_as_absent(client, thread_id, name):
    response = post(client, f"/threads/{thread_id}/runs", {"assistant_id": "pace", name: None})

    assert response.status_code == 200


def test_unknown_fields_are_ignored(client, thread_id):
    body = {"assistant_id": "pace", "langsmith_tracer": {}, "strict_resume": True, "news": 1}

    assert post(client, f"/threads/{thread_id}/runs", body).status_code == 200


def test_feedback_keys_are_accepted_in_a_stream(client, thread_id):
    parts = list(
        client.runs.stream(thread_id, "pace", input=build_input(), feedback_keys=["quality"])
    )

    assert "error" not in {part.event for part in parts}
    assert parts[-2].data["notes"] == ["start", *DONE]


def test_a_run_names_its_assistant_by_id_or_by_graph(client, thread_id, assistant_id):
    by_name = client.runs.create(thread_id, "pace", input=build_input())
    by_id = client.runs.create(thread_id, assistant_id, input=build_input())

    assert by_name["assistant_id"] == by_id["assistant_id"] == assistant_id


@pytest.mark.parametrize(
    ("assistant", "status", "message"),
    [
        (None, 422, "assistant_id"),
        ("missing", 422, "missing"),
        (UNKNOWN_ID, 404, "Thread or assistant not found."),
    ],
)
def test_an_unknown_assistant_is_rejected(client, thread_id, assistant, status, message):
    body = {"assistant_id": assistant} if assistant else {"input": {}}

    response = post(client, f"/threads/{thread_id}/runs", body)

    assert response.status_code == status
    assert message in response.json()["detail"]


def test_a_run_without_input_on_a_new_thread_fails(client, thread_id):
    result = client.runs.wait(thread_id, "pace", input=None, raise_error=False)

    assert result["__error__"]["error"] == "EmptyInputError"


def test_a_command_overrides_the_input(client, thread_id):
    client.runs.wait(thread_id, "human", input={"notes": ["start"]})

    result = client.runs.wait(
        thread_id, "human", input={"notes": ["new"]}, command={"resume": "yes"}
    )

    assert result["notes"] == ["start", "draft", "answer 0: yes", "sent"]


def test_config_of_the_request_overrides_that_of_the_assistant(client, thread_id):
    assistant = client.assistants.create(
        "context",
        config={"tags": ["own"], "recursion_limit": 9, "configurable": {"a": 1, "b": 1}},
    )

    result = client.runs.wait(
        thread_id, assistant["assistant_id"], input={},
        config={"tags": ["new"], "configurable": {"b": 2}},
    )  # fmt: skip

    seen = result["seen"]
    assert (seen["tags"], seen["recursion_limit"]) == (["new"], 9)
    assert {"a": 1, "b": 2}.items() <= seen["configurable"].items()


def test_config_and_context_together_are_rejected(client, thread_id):
    body = {"assistant_id": "pace", "context": {"a": 1}, "config": {"configurable": {"b": 1}}}

    response = post(client, f"/threads/{thread_id}/runs", body)

    assert response.status_code == 400
    assert "configurable and context" in response.json()["detail"]


def test_the_identity_in_the_config_is_ignored(client, thread_id):
    result = client.runs.wait(
        thread_id, "context", input={},
        config={"configurable": {"langgraph_auth_user_id": "root", "run_id": "mine"}},
    )  # fmt: skip

    configurable = result["seen"]["configurable"]
    assert configurable.get("langgraph_auth_user_id") != "root"
    assert configurable["run_id"] != "mine"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stream_mode", "thoughts"),
        ("multitask_strategy", "hope"),
        ("durability", "none"),
        ("on_disconnect", "cry"),
        ("on_completion", "burn"),
        ("if_not_exists", "maybe"),
        ("after_seconds", -1),
        ("checkpoint_id", "first"),
        ("metadata", []),
        ("config", "x"),
        ("webhook", 7),
        ("webhook", "http://127.0.0.1/hook"),
    ],
)
def test_an_invalid_value_of_a_field_is_rejected(client, thread_id, field, value):
    body = {"assistant_id": "pace", field: value}

    response = post(client, f"/threads/{thread_id}/runs", body)

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)
    assert client.runs.list(thread_id) == []


def test_exit_stores_one_checkpoint(client, thread_id):
    client.runs.wait(thread_id, "pace", input=build_input(), durability="exit")

    assert len(client.threads.get_history(thread_id, limit=20)) == 1


def test_checkpoint_during_false_means_exit(client, thread_id):
    body = {"assistant_id": "pace", "input": build_input(), "checkpoint_during": False}
    post(client, f"/threads/{thread_id}/runs/wait", body)

    assert len(client.threads.get_history(thread_id, limit=20)) == 1


def test_breakpoints_stop_before_and_after_nodes(client, thread_id):
    before = client.runs.wait(thread_id, "pace", input=build_input(), interrupt_before=["write"])
    after = client.runs.wait(thread_id, "pace", input=None, interrupt_after="*")

    assert (before["notes"], after["notes"]) == (["start", "plan"], ["start", "plan", "write"])
    assert client.threads.get_state(thread_id)["next"] == ["review"]


# 6.2 Creating


def test_a_run_response_names_the_location_of_the_run(client, thread_id):
    response = post(client, f"/threads/{thread_id}/runs", {"assistant_id": "pace", "input": {}})

    location = f"/threads/{thread_id}/runs/{response.json()['run_id']}"
    assert response.headers["content-location"] == location


def test_wait_names_the_location_to_join_the_run(client, thread_id):
    body = {"assistant_id": "pace", "input": build_input()}
    response = post(client, f"/threads/{thread_id}/runs/wait", body)

    location = response.headers["content-location"]
    assert location.startswith(f"/threads/{thread_id}/runs/")
    assert response.headers["location"] == f"{location}/join"


def test_the_thread_of_a_stateless_run_is_hidden(client):
    response = post(client, "/runs", {"assistant_id": "pace", "input": build_input()})

    run = response.json()
    assert response.headers["content-location"] == f"/runs/{run['run_id']}"
    assert "graph_id" not in run["metadata"]
    with pytest.raises(NotFoundError):
        client.threads.get(run["thread_id"])


def test_a_stateless_wait_returns_the_state(client):
    assert client.runs.wait(None, "pace", input=build_input())["notes"] == ["start", *DONE]


def test_a_stateless_run_may_keep_its_thread(client):
    run = client.runs.create(None, "pace", input=build_input(), on_completion="keep")
    client.runs.join(run["thread_id"], run["run_id"])

    assert client.threads.get_state(run["thread_id"])["values"]["notes"] == ["start", *DONE]


def test_thread_options_are_ignored_in_a_stateless_run(client):
    body = {
        "assistant_id": "pace", "input": build_input(), "multitask_strategy": "reject",
        "if_not_exists": "create",
    }  # fmt: skip

    assert post(client, "/runs/wait", body).json()["notes"] == ["start", *DONE]


def test_a_run_on_a_missing_thread_is_not_found(client):
    with pytest.raises(NotFoundError, match="Thread or assistant not found"):
        client.runs.create(str(uuid4()), "pace", input=build_input())


def test_a_missing_thread_is_created_on_request(client):
    new_thread_id = str(uuid4())

    result = client.runs.wait(new_thread_id, "pace", input=build_input(), if_not_exists="create")

    assert result["notes"] == ["start", *DONE]
    assert client.threads.get(new_thread_id)["thread_id"] == new_thread_id


def test_a_run_on_a_malformed_thread_id_is_rejected(client):
    response = post(client, "/threads/mine/runs", {"assistant_id": "pace"})

    assert response.status_code == 400
    assert response.json()["detail"] == "Invalid thread ID: must be a UUID"


def test_a_batch_creates_all_runs(client):
    runs = client.runs.create_batch(
        [{"assistant_id": "pace", "input": build_input(str(n))} for n in range(3)]
    )

    assert [run["kwargs"]["input"] for run in runs] == [build_input(str(n)) for n in range(3)]
    assert len({run["thread_id"] for run in runs}) == 3


def test_a_batch_on_one_thread_runs_in_order(client, thread_id):
    runs = client.runs.create_batch(
        [
            {"assistant_id": "pace", "thread_id": thread_id, "input": build_input(str(n))}
            for n in range(3)
        ]
    )
    client.runs.join(thread_id, runs[-1]["run_id"])

    notes = client.threads.get_state(thread_id)["values"]["notes"]
    assert notes == [note for n in range(3) for note in (str(n), *DONE)]


def test_a_batch_with_one_invalid_run_creates_none(client, thread_id):
    good = {"assistant_id": "pace", "thread_id": thread_id, "input": build_input()}

    response = post(client, "/runs/batch", [good, {**good, "assistant_id": str(uuid4())}])

    assert response.status_code == 404
    assert client.runs.list(thread_id) == []
    assert client.threads.get(thread_id)["status"] == "idle"


@pytest.mark.parametrize("body", [[], {}, [{}], [1]])
def test_an_empty_or_malformed_batch_is_rejected(client, body):
    assert post(client, "/runs/batch", body).status_code == 422


def test_a_batch_is_accepted_in_camel_case(client):
    body = [{"assistant_id": "pace", "input": build_input(), "streamMode": ["updates"]}]

    [run] = post(client, "/runs/batch", body).json()

    assert run["kwargs"]["stream_mode"] == ["updates"]


# 6.3 Reading and deleting


@pytest.fixture
def run_ids(client, thread_id):
    """The ids of five finished runs of the thread, oldest first."""
    created = [
        client.runs.create(thread_id, "pace", input=build_input())["run_id"] for _ in range(5)
    ]
    client.runs.join(thread_id, created[-1])
    return created


def test_runs_are_listed_newest_first_in_pages(client, thread_id, run_ids):
    pages = [client.runs.list(thread_id, limit=2, offset=offset) for offset in (0, 2, 4)]

    assert [run["run_id"] for page in pages for run in page] == run_ids[::-1]


def test_runs_are_listed_by_status(client, thread_id, run_ids):
    delayed = client.runs.create(thread_id, "pace", input=build_input(), after_seconds=60)["run_id"]

    assert [run["run_id"] for run in client.runs.list(thread_id, status="pending")] == [delayed]
    assert len(client.runs.list(thread_id, status="success")) == 5


def test_an_unknown_status_finds_nothing(client, thread_id, run_ids):
    assert client.runs.list(thread_id, status="lost") == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query", ["select=run_id&select=status", 'select=["run_id","status"]', "select=run_id,status"]
)
def test_fields_are_selected_in_every_form(client, thread_id, run_ids, query):
    rows = client.http.client.get(f"/threads/{thread_id}/runs?{query}").json()

    assert [set(row) for row in rows] == [{"run_id", "status"}] * 5


def test_an_unknown_field_is_rejected(client, thread_id):
    with pytest.raises(APIStatusError) as caught:
        client.runs.list(thread_id, select=["secrets"])  # type: ignore[list-item]

    assert caught.value.status_code == 422


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "limit=x"])
def test_an_invalid_page_is_rejected(client, thread_id, query):
    assert client.http.client.get(f"/threads/{thread_id}/runs?{query}").status_code == 422


def test_the_runs_of_a_missing_thread_are_not_found(client):
    with pytest.raises(NotFoundError):
        client.runs.list(str(uuid4()))


def test_a_run_is_found_only_under_its_own_thread(client, thread_id, run_ids):
    foreign_thread_id = client.threads.create()["thread_id"]

    assert client.runs.get(thread_id, run_ids[0])["status"] == "success"
    for other_thread_id, run in ((foreign_thread_id, run_ids[0]), (thread_id, str(uuid4()))):
        with pytest.raises(NotFoundError):
            client.runs.get(other_thread_id, run)


def test_a_malformed_run_id_is_rejected(client, thread_id):
    response = client.http.client.get(f"/threads/{thread_id}/runs/first")

    assert response.status_code == 422
    assert response.json()["detail"] == "Invalid run ID: must be a UUID"


def test_a_deleted_run_keeps_its_checkpoints(client, thread_id, run_ids):
    client.runs.delete(thread_id, run_ids[0])

    with pytest.raises(NotFoundError):
        client.runs.get(thread_id, run_ids[0])
    with pytest.raises(NotFoundError):
        client.runs.delete(thread_id, run_ids[0])
    assert len(client.threads.get_history(thread_id, limit=100)) == 25


def test_a_running_run_stops_before_it_is_deleted(client, thread_id):
    run_input = {"notes": ["slow"], "sleep": 100, "slow": "write"}
    run = client.runs.create(thread_id, "pace", input=run_input)["run_id"]
    wait_until(lambda: client.threads.get_state(thread_id)["next"] == ["write"], "the slow node")

    client.runs.delete(thread_id, run)

    stopped = client.threads.get(thread_id)
    assert (stopped["status"], stopped["values"]["notes"]) == ("interrupted", ["slow", "plan"])
    assert client.runs.list(thread_id) == []


def test_deleting_a_delayed_run_makes_the_thread_idle(client, thread_id):
    run = client.runs.create(thread_id, "pace", input=build_input(), after_seconds=60)["run_id"]

    client.runs.delete(thread_id, run)

    assert client.threads.get(thread_id)["status"] == "idle"


# 6.4 Responses of wait and join


def test_wait_returns_the_state(client, thread_id):
    result = client.runs.wait(thread_id, "steps", input={"notes": ["start"]})

    assert result["notes"] == ["start", *DONE]
    assert result["count"] == 3


def test_join_returns_the_latest_values_of_the_thread(client, thread_id, run_ids):
    assert client.runs.join(thread_id, run_ids[0])["notes"] == ["start", *DONE] * 5


def test_wait_returns_an_interrupt_with_the_values(client, thread_id):
    result = client.runs.wait(thread_id, "human", input={"notes": ["start"]})

    assert result["notes"] == ["start", "draft"]
    [question] = result["__interrupt__"]
    assert question["value"] == {"approve": "send it? (0)"}
    assert set(question) == {"value", "id", "response_schema"}


def test_join_of_a_finished_run_returns_its_interrupt_without_values(client, thread_id):
    run = client.runs.create(thread_id, "human", input={"notes": ["start"]})["run_id"]
    client.runs.join(thread_id, run)

    result = client.runs.join(thread_id, run)

    assert set(result) == {"__interrupt__"}
    assert [set(question) for question in result["__interrupt__"]] == [{"id", "value"}]


def test_a_breakpoint_returns_no_interrupt(client, thread_id):
    result = client.runs.wait(thread_id, "pace", input=build_input(), interrupt_before=["write"])

    assert "__interrupt__" not in result


@pytest.mark.parametrize("method", ["wait", "join"])
def test_an_error_is_returned_alone_with_status_200(client, thread_id, method):
    body = {"assistant_id": "faults", "input": {"kind": "value"}}
    response = post(client, f"/threads/{thread_id}/runs/wait", body)
    if method == "join":
        response = client.http.client.get(response.headers["location"])

    expected = {"__error__": {"error": "ValueError", "message": "no such city"}}
    assert (response.status_code, response.json()) == (200, expected)


def test_an_error_is_shown_on_run_and_thread_until_the_next_success(client, thread_id):
    run = client.runs.create(thread_id, "faults", input={"kind": "value"})["run_id"]
    client.runs.join(thread_id, run)
    failed = client.threads.get(thread_id)
    client.runs.wait(thread_id, "faults", input={"kind": ""})
    recovered = client.threads.get(thread_id)

    assert client.runs.get(thread_id, run)["status"] == failed["status"] == "error"
    assert failed["error"] == {"error": "ValueError", "message": "no such city"}
    assert (recovered["status"], recovered["error"]) == ("idle", None)


def test_a_custom_exception_keeps_its_name(client, thread_id):
    result = client.runs.wait(thread_id, "faults", input={"kind": "own"}, raise_error=False)

    assert result["__error__"]["error"] == "OutOfPaper"


def test_joining_a_missing_run_returns_an_error_body(client, thread_id):
    response = client.http.client.get(f"/threads/{thread_id}/runs/{uuid4()}/join")

    expected = {"__error__": {"error": "HTTPException", "message": "404: Run not found"}}
    assert (response.status_code, response.json()) == (200, expected)
