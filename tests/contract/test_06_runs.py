"""Section 6: creating, reading and waiting for runs; what a run is (2.3)."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from langgraph_sdk.errors import APIStatusError, NotFoundError

from tests.installation import wait_until

# Test ids must be the same in every worker, so this is no random one.
NOBODY = "6f1e3d0a-0000-4000-8000-000000000000"

DONE = ["plan", "write", "review"]
RUN_FIELDS = {
    "run_id", "thread_id", "assistant_id", "created_at", "updated_at", "status", "metadata",
    "kwargs", "multitask_strategy",
}  # fmt: skip
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")


@pytest.fixture
def thread(client):
    return client.threads.create()["thread_id"]


@pytest.fixture
def agent(client):
    """The id of the assistant that the graph `pace` has by itself."""
    [found] = client.assistants.search(graph_id="pace", metadata={"created_by": "system"})
    return found["assistant_id"]


def quick(note="asked"):
    return {"notes": [note]}


def post(client, path, body):
    return client.http.client.post(path, json=body)


# 2.3 The run


def test_a_run_has_the_fields_that_clients_know(client, thread, agent):
    run = client.runs.create(thread, "pace", input=quick())

    assert set(run) >= RUN_FIELDS
    assert (run["thread_id"], run["assistant_id"]) == (thread, agent)
    assert (run["status"], run["multitask_strategy"]) == ("pending", "enqueue")
    assert all(TIME.fullmatch(run[name]) for name in ("created_at", "updated_at"))


def test_ids_of_runs_sort_by_time(client, thread):
    made = [client.runs.create(thread, "pace", input=quick())["run_id"] for _ in range(3)]

    assert made == sorted(made)
    assert {run_id[14] for run_id in made} == {"7"}


def test_kwargs_say_what_was_asked(client, thread):
    run = client.runs.create(
        thread, "pace", input=quick(), stream_mode="updates", durability="sync",
        interrupt_before=["write"], stream_subgraphs=True, stream_resumable=True,
    )  # fmt: skip

    expected = {
        "input": quick(), "command": None, "stream_mode": ["updates"], "durability": "sync",
        "interrupt_before": ["write"], "interrupt_after": None, "subgraphs": True,
        "resumable": True, "webhook": None,
    }  # fmt: skip
    assert expected.items() <= run["kwargs"].items()


def test_metadata_are_the_assistants_under_the_threads_under_the_requests(client):
    assistant = client.assistants.create("pace", metadata={"a": "assistant", "b": "assistant"})
    thread = client.threads.create(metadata={"b": "thread", "c": "thread"})

    run = client.runs.create(
        thread["thread_id"], assistant["assistant_id"], input=quick(), metadata={"c": "request"}
    )

    assert run["metadata"] == {
        "a": "assistant", "b": "thread", "c": "request", "graph_id": "pace",
        "assistant_id": assistant["assistant_id"],
    }  # fmt: skip


def test_a_run_that_stops_at_a_question_is_a_success(client, thread):
    run = client.runs.create(thread, "human", input={"notes": ["asked"]})
    client.runs.join(thread, run["run_id"])

    assert client.runs.get(thread, run["run_id"])["status"] == "success"
    assert client.threads.get(thread)["status"] == "interrupted"


# 6.1 The body


@pytest.mark.parametrize("name", ["input", "command", "context", "metadata", "webhook"])
def test_null_is_as_good_as_absent(client, thread, name):
    response = post(client, f"/threads/{thread}/runs", {"assistant_id": "pace", name: None})

    assert response.status_code == 200


def test_unknown_fields_are_ignored(client, thread):
    body = {"assistant_id": "pace", "langsmith_tracer": {}, "strict_resume": True, "news": 1}

    assert post(client, f"/threads/{thread}/runs", body).status_code == 200


def test_feedback_keys_are_taken_and_the_stream_ends_well(client, thread):
    parts = list(client.runs.stream(thread, "pace", input=quick(), feedback_keys=["quality"]))

    assert "error" not in {part.event for part in parts}
    assert parts[-2].data["notes"] == ["asked", *DONE]


def test_an_assistant_is_named_by_id_or_by_graph(client, thread, agent):
    by_name = client.runs.create(thread, "pace", input=quick())
    by_id = client.runs.create(thread, agent, input=quick())

    assert by_name["assistant_id"] == by_id["assistant_id"] == agent


@pytest.mark.parametrize(
    ("assistant", "status", "words"),
    [
        (None, 422, "assistant_id"),
        ("nobody", 422, "nobody"),
        (NOBODY, 404, "Thread or assistant not found."),
    ],
)
def test_an_assistant_that_is_not_there_is_refused(client, thread, assistant, status, words):
    body = {"assistant_id": assistant} if assistant else {"input": {}}

    response = post(client, f"/threads/{thread}/runs", body)

    assert response.status_code == status
    assert words in response.json()["detail"]


def test_no_input_on_a_fresh_thread_is_an_error_inside_the_run(client, thread):
    answer = client.runs.wait(thread, "pace", input=None, raise_error=False)

    assert answer["__error__"]["error"] == "EmptyInputError"


def test_a_command_wins_over_input(client, thread):
    client.runs.wait(thread, "human", input={"notes": ["asked"]})

    answer = client.runs.wait(thread, "human", input={"notes": ["new"]}, command={"resume": "yes"})

    assert answer["notes"] == ["asked", "draft", "answer 0: yes", "sent"]


def test_config_of_the_request_goes_over_the_assistants(client, thread):
    assistant = client.assistants.create(
        "context",
        config={"tags": ["own"], "recursion_limit": 9, "configurable": {"a": 1, "b": 1}},
    )

    answer = client.runs.wait(
        thread, assistant["assistant_id"], input={},
        config={"tags": ["new"], "configurable": {"b": 2}},
    )  # fmt: skip

    seen = answer["seen"]
    assert (seen["tags"], seen["recursion_limit"]) == (["new"], 9)
    assert {"a": 1, "b": 2}.items() <= seen["configurable"].items()


def test_config_and_context_at_once_are_refused(client, thread):
    body = {"assistant_id": "pace", "context": {"a": 1}, "config": {"configurable": {"b": 1}}}

    response = post(client, f"/threads/{thread}/runs", body)

    assert response.status_code == 400
    assert "configurable and context" in response.json()["detail"]


def test_nobody_configures_who_they_are(client, thread):
    answer = client.runs.wait(
        thread, "context", input={},
        config={"configurable": {"langgraph_auth_user_id": "root", "run_id": "mine"}},
    )  # fmt: skip

    configurable = answer["seen"]["configurable"]
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
def test_what_is_no_value_of_a_field_is_refused(client, thread, field, value):
    body = {"assistant_id": "pace", field: value}

    response = post(client, f"/threads/{thread}/runs", body)

    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)
    assert client.runs.list(thread) == []


def test_exit_stores_one_checkpoint(client, thread):
    client.runs.wait(thread, "pace", input=quick(), durability="exit")

    assert len(client.threads.get_history(thread, limit=20)) == 1


def test_checkpoint_during_false_means_exit(client, thread):
    body = {"assistant_id": "pace", "input": quick(), "checkpoint_during": False}
    post(client, f"/threads/{thread}/runs/wait", body)

    assert len(client.threads.get_history(thread, limit=20)) == 1


def test_breakpoints_stop_before_and_after(client, thread):
    before = client.runs.wait(thread, "pace", input=quick(), interrupt_before=["write"])
    after = client.runs.wait(thread, "pace", input=None, interrupt_after="*")

    assert (before["notes"], after["notes"]) == (["asked", "plan"], ["asked", "plan", "write"])
    assert client.threads.get_state(thread)["next"] == ["review"]


# 6.2 Creating


def test_a_run_says_where_it_is(client, thread):
    response = post(client, f"/threads/{thread}/runs", {"assistant_id": "pace", "input": {}})

    place = f"/threads/{thread}/runs/{response.json()['run_id']}"
    assert response.headers["content-location"] == place


def test_wait_says_where_to_come_back(client, thread):
    body = {"assistant_id": "pace", "input": quick()}
    response = post(client, f"/threads/{thread}/runs/wait", body)

    place = response.headers["content-location"]
    assert place.startswith(f"/threads/{thread}/runs/")
    assert response.headers["location"] == f"{place}/join"


def test_a_stateless_run_has_a_thread_that_nobody_sees(client):
    response = post(client, "/runs", {"assistant_id": "pace", "input": quick()})

    run = response.json()
    assert response.headers["content-location"] == f"/runs/{run['run_id']}"
    assert "graph_id" not in run["metadata"]
    with pytest.raises(NotFoundError):
        client.threads.get(run["thread_id"])


def test_a_stateless_wait_answers_the_state(client):
    assert client.runs.wait(None, "pace", input=quick())["notes"] == ["asked", *DONE]


def test_a_stateless_run_may_keep_its_thread(client):
    run = client.runs.create(None, "pace", input=quick(), on_completion="keep")
    client.runs.join(run["thread_id"], run["run_id"])

    assert client.threads.get_state(run["thread_id"])["values"]["notes"] == ["asked", *DONE]


def test_a_stateless_body_may_say_what_is_for_threads_only(client):
    body = {
        "assistant_id": "pace", "input": quick(), "multitask_strategy": "reject",
        "if_not_exists": "create",
    }  # fmt: skip

    assert post(client, "/runs/wait", body).json()["notes"] == ["asked", *DONE]


def test_a_run_for_a_missing_thread_is_refused(client):
    with pytest.raises(NotFoundError, match="Thread or assistant not found"):
        client.runs.create(str(uuid4()), "pace", input=quick())


def test_a_missing_thread_is_made_if_so_wished(client):
    thread = str(uuid4())

    answer = client.runs.wait(thread, "pace", input=quick(), if_not_exists="create")

    assert answer["notes"] == ["asked", *DONE]
    assert client.threads.get(thread)["thread_id"] == thread


def test_a_bad_id_is_a_bad_request_where_runs_are_created(client):
    response = post(client, "/threads/mine/runs", {"assistant_id": "pace"})

    assert response.status_code == 400
    assert response.json()["detail"] == "Invalid thread ID: must be a UUID"


def test_a_batch_creates_all(client):
    made = client.runs.create_batch(
        [{"assistant_id": "pace", "input": quick(str(n))} for n in range(3)]
    )

    assert [run["kwargs"]["input"] for run in made] == [quick(str(n)) for n in range(3)]
    assert len({run["thread_id"] for run in made}) == 3


def test_a_batch_may_name_threads_and_keeps_its_order_there(client, thread):
    made = client.runs.create_batch(
        [{"assistant_id": "pace", "thread_id": thread, "input": quick(str(n))} for n in range(3)]
    )
    client.runs.join(thread, made[-1]["run_id"])

    notes = client.threads.get_state(thread)["values"]["notes"]
    assert notes == [note for n in range(3) for note in (str(n), *DONE)]


def test_a_batch_with_one_bad_run_creates_none(client, thread):
    good = {"assistant_id": "pace", "thread_id": thread, "input": quick()}

    response = post(client, "/runs/batch", [good, {**good, "assistant_id": str(uuid4())}])

    assert response.status_code == 404
    assert client.runs.list(thread) == []
    assert client.threads.get(thread)["status"] == "idle"


@pytest.mark.parametrize("body", [[], {}, [{}], [1]])
def test_a_batch_of_nothing_is_refused(client, body):
    assert post(client, "/runs/batch", body).status_code == 422


def test_a_batch_may_be_written_in_camel_case(client):
    body = [{"assistant_id": "pace", "input": quick(), "streamMode": ["updates"]}]

    [made] = post(client, "/runs/batch", body).json()

    assert made["kwargs"]["stream_mode"] == ["updates"]


# 6.3 Reading and deleting


@pytest.fixture
def five(client, thread):
    """Runs of a thread that are over, oldest first."""
    made = [client.runs.create(thread, "pace", input=quick())["run_id"] for _ in range(5)]
    client.runs.join(thread, made[-1])
    return made


def test_runs_are_listed_newest_first_and_by_pages(client, thread, five):
    pages = [client.runs.list(thread, limit=2, offset=offset) for offset in (0, 2, 4)]

    assert [run["run_id"] for page in pages for run in page] == five[::-1]


def test_runs_are_listed_by_status(client, thread, five):
    later = client.runs.create(thread, "pace", input=quick(), after_seconds=60)["run_id"]

    assert [run["run_id"] for run in client.runs.list(thread, status="pending")] == [later]
    assert len(client.runs.list(thread, status="success")) == 5


def test_an_unknown_status_finds_nothing(client, thread, five):
    assert client.runs.list(thread, status="lost") == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query", ["select=run_id&select=status", 'select=["run_id","status"]', "select=run_id,status"]
)
def test_fields_are_selected_in_every_form(client, thread, five, query):
    rows = client.http.client.get(f"/threads/{thread}/runs?{query}").json()

    assert [set(row) for row in rows] == [{"run_id", "status"}] * 5


def test_an_unknown_field_is_refused(client, thread):
    with pytest.raises(APIStatusError) as refusal:
        client.runs.list(thread, select=["secrets"])  # type: ignore[list-item]

    assert refusal.value.status_code == 422


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "limit=x"])
def test_pages_have_limits(client, thread, query):
    assert client.http.client.get(f"/threads/{thread}/runs?{query}").status_code == 422


def test_the_runs_of_a_missing_thread_are_not_found(client):
    with pytest.raises(NotFoundError):
        client.runs.list(str(uuid4()))


def test_a_run_is_read_through_its_own_thread_only(client, thread, five):
    elsewhere = client.threads.create()["thread_id"]

    assert client.runs.get(thread, five[0])["status"] == "success"
    for place, run in ((elsewhere, five[0]), (thread, str(uuid4()))):
        with pytest.raises(NotFoundError):
            client.runs.get(place, run)


def test_an_id_that_is_none_is_refused(client, thread):
    response = client.http.client.get(f"/threads/{thread}/runs/first")

    assert response.status_code == 422
    assert response.json()["detail"] == "Invalid run ID: must be a UUID"


def test_a_deleted_run_is_gone_and_its_state_stays(client, thread, five):
    client.runs.delete(thread, five[0])

    with pytest.raises(NotFoundError):
        client.runs.get(thread, five[0])
    with pytest.raises(NotFoundError):
        client.runs.delete(thread, five[0])
    assert len(client.threads.get_history(thread, limit=100)) == 25


def test_a_run_under_way_stops_before_it_is_deleted(client, thread):
    given = {"notes": ["slow"], "sleep": 20, "slow": "write"}
    run = client.runs.create(thread, "pace", input=given)["run_id"]
    wait_until(
        lambda: client.threads.get_state(thread)["next"] == ["write"], "the slow node", seconds=15
    )

    client.runs.delete(thread, run)

    left = client.threads.get(thread)
    assert (left["status"], left["values"]["notes"]) == ("interrupted", ["slow", "plan"])
    assert client.runs.list(thread) == []


def test_deleting_a_run_that_waits_frees_the_thread(client, thread):
    run = client.runs.create(thread, "pace", input=quick(), after_seconds=60)["run_id"]

    client.runs.delete(thread, run)

    assert client.threads.get(thread)["status"] == "idle"


# 6.4 What wait and join answer


def test_wait_answers_the_state(client, thread):
    answer = client.runs.wait(thread, "steps", input={"notes": ["asked"]})

    assert answer["notes"] == ["asked", *DONE]
    assert answer["count"] == 3


def test_join_answers_the_threads_values_after_later_runs_as_well(client, thread, five):
    assert client.runs.join(thread, five[0])["notes"] == ["asked", *DONE] * 5


def test_wait_answers_a_question_beside_the_values(client, thread):
    answer = client.runs.wait(thread, "human", input={"notes": ["asked"]})

    assert answer["notes"] == ["asked", "draft"]
    [question] = answer["__interrupt__"]
    assert question["value"] == {"approve": "send it? (0)"}
    assert set(question) == {"value", "id", "response_schema"}


def test_join_answers_a_question_of_a_finished_run_without_values(client, thread):
    run = client.runs.create(thread, "human", input={"notes": ["asked"]})["run_id"]
    client.runs.join(thread, run)

    answer = client.runs.join(thread, run)

    assert set(answer) == {"__interrupt__"}
    assert [set(question) for question in answer["__interrupt__"]] == [{"id", "value"}]


def test_a_breakpoint_leaves_no_marker(client, thread):
    answer = client.runs.wait(thread, "pace", input=quick(), interrupt_before=["write"])

    assert "__interrupt__" not in answer


@pytest.mark.parametrize("how", ["wait", "join"])
def test_a_failure_is_answered_alone_with_status_200(client, thread, how):
    body = {"assistant_id": "faults", "input": {"kind": "value"}}
    response = post(client, f"/threads/{thread}/runs/wait", body)
    if how == "join":
        response = client.http.client.get(response.headers["location"])

    expected = {"__error__": {"error": "ValueError", "message": "no such city"}}
    assert (response.status_code, response.json()) == (200, expected)


def test_a_failure_shows_on_run_and_thread_until_the_next_good_run(client, thread):
    run = client.runs.create(thread, "faults", input={"kind": "value"})["run_id"]
    client.runs.join(thread, run)
    failed = client.threads.get(thread)
    client.runs.wait(thread, "faults", input={"kind": ""})
    healed = client.threads.get(thread)

    assert client.runs.get(thread, run)["status"] == failed["status"] == "error"
    assert failed["error"] == {"error": "ValueError", "message": "no such city"}
    assert (healed["status"], healed["error"]) == ("idle", None)


def test_an_authors_own_error_keeps_its_name(client, thread):
    answer = client.runs.wait(thread, "faults", input={"kind": "own"}, raise_error=False)

    assert answer["__error__"]["error"] == "OutOfPaper"


def test_joining_a_run_that_is_not_there_is_an_error_inside(client, thread):
    response = client.http.client.get(f"/threads/{thread}/runs/{uuid4()}/join")

    expected = {"__error__": {"error": "HTTPException", "message": "404: Run not found"}}
    assert (response.status_code, response.json()) == (200, expected)
