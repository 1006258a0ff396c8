"""Crons: creating, changing and searching them."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from apps.agent_server.models import Cron
from apps.agent_server.services import crons
from tests.factories.agent_server import AgentFactory, ThreadFactory, route_of
from tests.factories.api_keys import key_for

AGENT_ID = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def freeze_time():
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def create_cron(send):
    def post(path="/runs/crons", **fields):
        body = {"assistant_id": "agent", "schedule": "0 * * * *", **fields}
        response = send("post", path, body)
        assert response.status_code == 200, response.content
        return response.json()

    return post


@pytest.mark.parametrize(
    ("method", "path", "body", "reader_status"),
    [
        ("post", "/runs/crons", {"assistant_id": "agent", "schedule": "* * * * *"}, 403),
        ("get", "/runs/crons/{id}", None, 200),
        ("patch", "/runs/crons/{id}", {"enabled": False}, 403),
        ("delete", "/runs/crons/{id}", None, 403),
        ("post", "/runs/crons/search", {}, 200),
        ("post", "/runs/crons/count", {}, 200),
    ],
)
def test_anonymous_and_outside_callers_are_rejected(  # noqa: PLR0917
    send, create_cron, outsider_key, reader_key, method, path, body, reader_status
):
    path = path.format(id=create_cron()["cron_id"])

    assert send(method, path, body, key=None).status_code == 401
    assert send(method, path, body, key=outsider_key).status_code == 404
    assert send(method, path, body, key=reader_key).status_code == reader_status
    assert Cron.unscoped.filter(enabled=True).count() == 1


def test_stateless_cron_is_created(create_cron):
    cron = create_cron(input={"a": 1}, metadata={"team": "x"}, config={"configurable": {"k": 1}})

    assert cron == {
        "cron_id": cron["cron_id"],
        "assistant_id": AGENT_ID,
        "thread_id": None,
        "user_id": None,
        "schedule": "0 * * * *",
        "timezone": None,
        "end_time": None,
        "enabled": True,
        "on_run_completed": "delete",
        "payload": {
            "assistant_id": AGENT_ID,
            "schedule": "0 * * * *",
            "input": {"a": 1},
            "metadata": {"team": "x"},
            "config": {"configurable": {"k": 1, "cron_id": cron["cron_id"]}},
        },
        "metadata": {"team": "x"},
        "next_run_date": "2026-01-01T13:00:00.000000+00:00",
        "created_at": "2026-01-01T12:00:00.000000+00:00",
        "updated_at": "2026-01-01T12:00:00.000000+00:00",
    }


def test_cron_is_created_on_a_thread(send, create_cron, agent):
    thread = ThreadFactory(deployment=agent)

    cron = create_cron(f"/threads/{thread.thread_id}/runs/crons", multitask_strategy="interrupt")

    assert cron["thread_id"] == str(thread.thread_id)
    assert cron["on_run_completed"] is None
    assert cron["payload"]["multitask_strategy"] == "interrupt"
    assert send("get", f"/runs/crons/{cron['cron_id']}").json() == cron


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 422, "assistant_id"),
        ({"assistant_id": "agent"}, 422, "schedule"),
        ({"schedule": "* * * * *"}, 422, "assistant_id"),
        ({"assistant_id": "agent", "schedule": "61 * * * *"}, 422, "Bad minute"),
        ({"assistant_id": "agent", "schedule": "* * * * *", "timezone": "Mars"}, 422, "Mars"),
        ({"assistant_id": "agent", "schedule": "* * * * *", "end_time": "soon"}, 422, "end_time"),
        ({"assistant_id": "agent", "schedule": "* * * * *", "end_time": 1e300}, 422, "end_time"),
        ({"assistant_id": "nothing", "schedule": "* * * * *"}, 422, "nothing"),
        ({"assistant_id": str(UUID(int=7)), "schedule": "* * * * *"}, 404, "Not Found"),
        (
            {"assistant_id": "agent", "schedule": "* * * * *", "on_run_completed": "burn"},
            422,
            "on_run_completed",
        ),
        (
            {
                "assistant_id": "agent",
                "schedule": "* * * * *",
                "context": {"a": 1},
                "config": {"configurable": {"a": 1}},
            },
            400,
            "context",
        ),
    ],
)
def test_invalid_body_is_rejected(send, body, status, message):
    response = send("post", "/runs/crons", body)

    assert response.status_code == status
    assert message in response.json()["detail"]
    assert Cron.unscoped.count() == 0


def test_foreign_and_missing_threads_are_indistinguishable(send, agent):
    foreign = ThreadFactory(deployment=AgentFactory(workspace=agent.workspace))
    body = {"assistant_id": "agent", "schedule": "* * * * *"}

    for thread_id in (foreign.thread_id, uuid4()):
        response = send("post", f"/threads/{thread_id}/runs/crons", body)
        assert (response.status_code, response.json()["code"]) == (404, "thread_not_found")
    assert send("post", "/threads/x/runs/crons", body).status_code == 422
    assert Cron.unscoped.count() == 0


def test_cron_has_a_time_zone_and_an_end_time(create_cron):
    cron = create_cron(
        schedule="0 9 * * *", timezone="Europe/Berlin", end_time="2026-02-01T00:00:00+01:00"
    )

    assert cron["next_run_date"] == "2026-01-02T08:00:00.000000+00:00"
    assert cron["end_time"] == "2026-01-31T23:00:00.000000+00:00"
    assert Cron.unscoped.get().due_at == datetime(2026, 1, 2, 8, tzinfo=UTC)


@pytest.mark.parametrize("fields", [{"end_time": "2020-01-01T00:00:00"}, {"enabled": False}])
def test_ended_or_disabled_cron_has_no_next_run(create_cron, fields):
    cron = create_cron(**fields)

    assert cron["next_run_date"] == "2026-01-01T13:00:00.000000+00:00"
    assert Cron.unscoped.get().due_at is None


def test_cron_is_changed(send, create_cron):
    cron = create_cron(
        input={"a": 1},
        metadata={"team": "x", "stage": 1},
        end_time="2026-02-01T00:00:00Z",
        config={"tags": ["t"], "configurable": {"k": 1}},
    )
    path = f"/runs/crons/{cron['cron_id']}"

    changed = send(
        "patch",
        path,
        {"schedule": "30 * * * *", "metadata": {"stage": 2}, "input": {"b": 2}, "config": None},
    ).json()

    assert changed == {
        **cron,
        "schedule": "30 * * * *",
        "metadata": {"team": "x", "stage": 2},
        "next_run_date": "2026-01-01T12:30:00.000000+00:00",
        "payload": {
            **cron["payload"],
            "schedule": "30 * * * *",
            "metadata": {"stage": 2},
            "input": {"b": 2},
        },
    }
    assert changed["end_time"] == "2026-02-01T00:00:00.000000+00:00"
    assert send("get", path).json() == changed


def test_null_removes_the_end_time_and_absence_keeps_it(send, create_cron):
    cron = create_cron(end_time="2020-01-01T00:00:00Z")
    path = f"/runs/crons/{cron['cron_id']}"

    unchanged = send("patch", path, {"enabled": True}).json()
    cleared = send("patch", path, {"end_time": None}).json()

    assert unchanged["end_time"] == "2020-01-01T00:00:00.000000+00:00"
    assert cleared["end_time"] is None
    assert "end_time" not in cleared["payload"]
    assert Cron.unscoped.get().due_at == datetime(2026, 1, 1, 13, tzinfo=UTC)


def test_context_and_configurable_replace_each_other(send, create_cron):
    cron = create_cron(config={"tags": ["t"], "configurable": {"k": 1}})
    path = f"/runs/crons/{cron['cron_id']}"
    cron_configurable = {"cron_id": cron["cron_id"]}

    with_context = send("patch", path, {"context": {"c": 1}}).json()["payload"]
    with_config = send("patch", path, {"config": {"configurable": {"k": 2}}}).json()["payload"]

    assert with_context["context"] == {"c": 1}
    assert with_context["config"] == {"tags": ["t"], "configurable": cron_configurable}
    assert "context" not in with_config
    assert with_config["config"] == {"configurable": {"k": 2, **cron_configurable}}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"schedule": "nonsense"}, 422),
        ({"timezone": "Mars"}, 422),
        ({"enabled": "perhaps"}, 422),
        ({"context": {"a": 1}, "config": {"configurable": {"a": 1}}}, 400),
    ],
)
def test_rejected_change_changes_nothing(send, create_cron, body, status):
    cron = create_cron()
    path = f"/runs/crons/{cron['cron_id']}"

    assert send("patch", path, body).status_code == status
    assert send("get", path).json() == cron


def test_change_moves_the_cron_to_another_assistant(send, create_cron):
    cron = create_cron()
    path = f"/runs/crons/{cron['cron_id']}"

    changed = send("patch", path, {"assistant_id": "other"}).json()

    assert changed["assistant_id"] == create_cron(assistant_id="other")["assistant_id"]
    assert changed["assistant_id"] != cron["assistant_id"]
    assert changed["payload"]["assistant_id"] == changed["assistant_id"]
    assert send("get", path).json() == changed


@pytest.mark.parametrize(("assistant_id", "status"), [(str(uuid4()), 404), ("nobody", 422)])
def test_change_to_an_unknown_assistant_is_refused_as_at_the_creation(
    send, create_cron, assistant_id, status
):
    cron = create_cron()
    path = f"/runs/crons/{cron['cron_id']}"
    new = {"schedule": "0 * * * *", "assistant_id": assistant_id}

    assert send("post", "/runs/crons", new).status_code == status
    assert send("patch", path, {"assistant_id": assistant_id}).status_code == status
    assert send("get", path).json() == cron


def test_deleted_cron_is_not_found(send, create_cron):
    path = f"/runs/crons/{create_cron()['cron_id']}"

    deleted, repeated = send("delete", path), send("delete", path)

    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (repeated.status_code, repeated.json()["detail"]) == (404, "Cron not found")
    assert send("patch", path, {}).status_code == 404
    assert send("get", "/runs/crons/x").json()["detail"] == "Invalid cron ID: must be a UUID"


def test_search_and_count_filter_crons(send, create_cron, agent):
    thread = ThreadFactory(deployment=agent)
    stateless = create_cron(metadata={"team": {"name": "x"}})
    on_thread = create_cron(f"/threads/{thread.thread_id}/runs/crons", schedule="5 * * * *")
    disabled = create_cron(assistant_id="other", enabled=False)

    def search_ids(**body):
        return [row["cron_id"] for row in send("post", "/runs/crons/search", body).json()]

    everything = [disabled["cron_id"], on_thread["cron_id"], stateless["cron_id"]]
    assert search_ids() == everything
    assert search_ids(sort_order="asc") == everything[::-1]
    assert search_ids(sort_by="next_run_date", sort_order="asc")[0] == on_thread["cron_id"]
    assert search_ids(thread_id=str(thread.thread_id)) == [on_thread["cron_id"]]
    assert search_ids(assistant_id=disabled["assistant_id"]) == [disabled["cron_id"]]
    assert search_ids(enabled=False) == [disabled["cron_id"]]
    assert search_ids(metadata={"team": {"name": "x"}}) == [stateless["cron_id"]]
    page = send("post", "/runs/crons/search", {"limit": 2, "select": ["cron_id", "now"]})
    assert page.json()[0] == {
        "cron_id": disabled["cron_id"],
        "now": "2026-01-01T12:00:00.000000+00:00",
    }
    assert (page.headers["X-Pagination-Next"], page.headers["X-Pagination-Total"]) == ("2", "3")
    assert send("post", "/runs/crons/search", {"assistant_id": "agent"}).status_code == 422
    assert send("post", "/runs/crons/search", {"select": ["x"]}).status_code == 422
    assert send("post", "/runs/crons/count", {}).json() == 3
    assert send("post", "/runs/crons/count", {"thread_id": str(thread.thread_id)}).json() == 1


def test_search_takes_one_query(send, create_cron, django_assert_num_queries):
    create_cron()
    create_cron()
    create_cron()
    send("post", "/runs/crons/search", {})

    with django_assert_num_queries(1):
        send("post", "/runs/crons/search", {"limit": 2})


def test_crons_of_another_agent_are_invisible(client, create_cron, agent):
    cron = create_cron()
    sibling = AgentFactory(workspace=agent.workspace)
    route_of(sibling)
    key = key_for(agent.workspace)

    response = client.get(
        f"/agents/{sibling.slug}/runs/crons/{cron['cron_id']}", headers={"X-Api-Key": key}
    )

    assert response.status_code == 404


@pytest.mark.django_db(transaction=True)
def test_cron_is_deleted_with_its_thread_or_assistant(send, create_cron, agent):
    thread = ThreadFactory(deployment=agent)
    assistant = send("post", "/assistants", {"graph_id": "agent"}).json()["assistant_id"]
    create_cron(f"/threads/{thread.thread_id}/runs/crons")
    create_cron(assistant_id=assistant)
    remaining = create_cron()

    send("delete", f"/threads/{thread.thread_id}")
    send("delete", f"/assistants/{assistant}")

    assert [row.pk for row in Cron.unscoped.all()] == [UUID(remaining["cron_id"])]
    assert send("get", f"/threads/{thread.thread_id}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_deleting_a_thread_row_deletes_its_crons(create_cron, agent):
    thread = ThreadFactory(deployment=agent)
    create_cron(f"/threads/{thread.thread_id}/runs/crons")

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_server_thread WHERE id = %s", [thread.pk])

    assert Cron.unscoped.count() == 0


def test_user_of_a_cron_is_its_creator(agent):
    route = route_of(agent)
    scope = crons.Scope(route, user={"identity": "ann", "role": "x"})

    cron = crons.create(scope, crons.NewCron(assistant_id="agent", schedule="* * * * *"))

    assert Cron.unscoped.get(pk=cron.pk).user_id == "ann"
    assert cron.created_at == timezone.now()
