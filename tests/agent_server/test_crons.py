"""Crons: making, changing and finding them."""

from __future__ import annotations

import json
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
def noon():
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def ask(client, agent, key):
    def send(method, path, body=None, *, key=key):
        return getattr(client, method)(
            f"/agents/{agent.slug}{path}",
            data=None if body is None else json.dumps(body),
            content_type="application/json",
            headers={"X-Api-Key": key} if key else {},
        )

    return send


@pytest.fixture
def make(ask):
    def post(path="/runs/crons", **fields):
        body = {"assistant_id": "agent", "schedule": "0 * * * *", **fields}
        response = ask("post", path, body)
        assert response.status_code == 200, response.content
        return response.json()

    return post


@pytest.mark.parametrize(
    ("method", "path", "body", "for_readers"),
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
    ask, make, outsider_key, reader_key, method, path, body, for_readers
):
    path = path.format(id=make()["cron_id"])

    assert ask(method, path, body, key=None).status_code == 401
    assert ask(method, path, body, key=outsider_key).status_code == 404
    assert ask(method, path, body, key=reader_key).status_code == for_readers
    assert Cron.unscoped.filter(enabled=True).count() == 1


def test_stateless_cron_is_created(make):
    made = make(input={"a": 1}, metadata={"team": "x"}, config={"configurable": {"k": 1}})

    assert made == {
        "cron_id": made["cron_id"],
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
            "config": {"configurable": {"k": 1, "cron_id": made["cron_id"]}},
        },
        "metadata": {"team": "x"},
        "next_run_date": "2026-01-01T13:00:00.000000+00:00",
        "created_at": "2026-01-01T12:00:00.000000+00:00",
        "updated_at": "2026-01-01T12:00:00.000000+00:00",
    }


def test_cron_is_created_on_a_thread(ask, make, agent):
    thread = ThreadFactory(deployment=agent)

    made = make(f"/threads/{thread.thread_id}/runs/crons", multitask_strategy="interrupt")

    assert made["thread_id"] == str(thread.thread_id)
    assert made["on_run_completed"] is None
    assert made["payload"]["multitask_strategy"] == "interrupt"
    assert ask("get", f"/runs/crons/{made['cron_id']}").json() == made


@pytest.mark.parametrize(
    ("body", "status", "says"),
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
def test_invalid_body_is_rejected(ask, body, status, says):
    response = ask("post", "/runs/crons", body)

    assert response.status_code == status
    assert says in response.json()["detail"]
    assert Cron.unscoped.count() == 0


def test_foreign_and_missing_threads_are_indistinguishable(ask, agent):
    foreign = ThreadFactory(deployment=AgentFactory(workspace=agent.workspace))
    body = {"assistant_id": "agent", "schedule": "* * * * *"}

    for thread_id in (foreign.thread_id, uuid4()):
        response = ask("post", f"/threads/{thread_id}/runs/crons", body)
        assert (response.status_code, response.json()["code"]) == (404, "thread_not_found")
    assert ask("post", "/threads/x/runs/crons", body).status_code == 422
    assert Cron.unscoped.count() == 0


def test_cron_has_a_time_zone_and_an_end_time(make):
    made = make(
        schedule="0 9 * * *", timezone="Europe/Berlin", end_time="2026-02-01T00:00:00+01:00"
    )

    assert made["next_run_date"] == "2026-01-02T08:00:00.000000+00:00"
    assert made["end_time"] == "2026-01-31T23:00:00.000000+00:00"
    assert Cron.unscoped.get().due_at == datetime(2026, 1, 2, 8, tzinfo=UTC)


@pytest.mark.parametrize("fields", [{"end_time": "2020-01-01T00:00:00"}, {"enabled": False}])
def test_ended_or_disabled_cron_has_no_next_run(make, fields):
    made = make(**fields)

    assert made["next_run_date"] == "2026-01-01T13:00:00.000000+00:00"
    assert Cron.unscoped.get().due_at is None


def test_cron_is_changed(ask, make):
    made = make(
        input={"a": 1},
        metadata={"team": "x", "stage": 1},
        end_time="2026-02-01T00:00:00Z",
        config={"tags": ["t"], "configurable": {"k": 1}},
    )
    path = f"/runs/crons/{made['cron_id']}"

    changed = ask(
        "patch",
        path,
        {"schedule": "30 * * * *", "metadata": {"stage": 2}, "input": {"b": 2}, "config": None},
    ).json()

    assert changed == {
        **made,
        "schedule": "30 * * * *",
        "metadata": {"team": "x", "stage": 2},
        "next_run_date": "2026-01-01T12:30:00.000000+00:00",
        "payload": {
            **made["payload"],
            "schedule": "30 * * * *",
            "metadata": {"stage": 2},
            "input": {"b": 2},
        },
    }
    assert changed["end_time"] == "2026-02-01T00:00:00.000000+00:00"
    assert ask("get", path).json() == changed


def test_null_removes_the_end_time_and_absence_keeps_it(ask, make):
    made = make(end_time="2020-01-01T00:00:00Z")
    path = f"/runs/crons/{made['cron_id']}"

    kept = ask("patch", path, {"enabled": True}).json()
    cleared = ask("patch", path, {"end_time": None}).json()

    assert kept["end_time"] == "2020-01-01T00:00:00.000000+00:00"
    assert cleared["end_time"] is None
    assert "end_time" not in cleared["payload"]
    assert Cron.unscoped.get().due_at == datetime(2026, 1, 1, 13, tzinfo=UTC)


def test_context_and_configurable_replace_each_other(ask, make):
    made = make(config={"tags": ["t"], "configurable": {"k": 1}})
    path = f"/runs/crons/{made['cron_id']}"
    own = {"cron_id": made["cron_id"]}

    with_context = ask("patch", path, {"context": {"c": 1}}).json()["payload"]
    with_config = ask("patch", path, {"config": {"configurable": {"k": 2}}}).json()["payload"]

    assert with_context["context"] == {"c": 1}
    assert with_context["config"] == {"tags": ["t"], "configurable": own}
    assert "context" not in with_config
    assert with_config["config"] == {"configurable": {"k": 2, **own}}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"schedule": "nonsense"}, 422),
        ({"timezone": "Mars"}, 422),
        ({"enabled": "perhaps"}, 422),
        ({"context": {"a": 1}, "config": {"configurable": {"a": 1}}}, 400),
    ],
)
def test_rejected_change_changes_nothing(ask, make, body, status):
    made = make()
    path = f"/runs/crons/{made['cron_id']}"

    assert ask("patch", path, body).status_code == status
    assert ask("get", path).json() == made


def test_deleted_cron_is_not_found(ask, make):
    path = f"/runs/crons/{make()['cron_id']}"

    deleted, again = ask("delete", path), ask("delete", path)

    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (again.status_code, again.json()["detail"]) == (404, "Cron not found")
    assert ask("patch", path, {}).status_code == 404
    assert ask("get", "/runs/crons/x").json()["detail"] == "Invalid cron ID: must be a UUID"


def test_search_and_count_filter_crons(ask, make, agent):
    thread = ThreadFactory(deployment=agent)
    free = make(metadata={"team": {"name": "x"}})
    bound = make(f"/threads/{thread.thread_id}/runs/crons", schedule="5 * * * *")
    off = make(assistant_id="other", enabled=False)

    def ids(**body):
        return [row["cron_id"] for row in ask("post", "/runs/crons/search", body).json()]

    everything = [off["cron_id"], bound["cron_id"], free["cron_id"]]
    assert ids() == everything
    assert ids(sort_order="asc") == everything[::-1]
    assert ids(sort_by="next_run_date", sort_order="asc")[0] == bound["cron_id"]
    assert ids(thread_id=str(thread.thread_id)) == [bound["cron_id"]]
    assert ids(assistant_id=off["assistant_id"]) == [off["cron_id"]]
    assert ids(enabled=False) == [off["cron_id"]]
    assert ids(metadata={"team": {"name": "x"}}) == [free["cron_id"]]
    page = ask("post", "/runs/crons/search", {"limit": 2, "select": ["cron_id", "now"]})
    assert page.json()[0] == {
        "cron_id": off["cron_id"],
        "now": "2026-01-01T12:00:00.000000+00:00",
    }
    assert (page.headers["X-Pagination-Next"], page.headers["X-Pagination-Total"]) == ("2", "3")
    assert ask("post", "/runs/crons/search", {"assistant_id": "agent"}).status_code == 422
    assert ask("post", "/runs/crons/search", {"select": ["x"]}).status_code == 422
    assert ask("post", "/runs/crons/count", {}).json() == 3
    assert ask("post", "/runs/crons/count", {"thread_id": str(thread.thread_id)}).json() == 1


def test_search_takes_one_query(ask, make, django_assert_num_queries):
    make()
    make()
    make()
    ask("post", "/runs/crons/search", {})

    with django_assert_num_queries(1):
        ask("post", "/runs/crons/search", {"limit": 2})


def test_crons_of_another_agent_are_invisible(client, make, agent):
    made = make()
    beside = AgentFactory(workspace=agent.workspace)
    route_of(beside)
    key = key_for(agent.workspace)

    response = client.get(
        f"/agents/{beside.slug}/runs/crons/{made['cron_id']}", headers={"X-Api-Key": key}
    )

    assert response.status_code == 404


@pytest.mark.django_db(transaction=True)
def test_cron_is_deleted_with_its_thread_or_assistant(ask, make, agent):
    thread = ThreadFactory(deployment=agent)
    assistant = ask("post", "/assistants", {"graph_id": "agent"}).json()["assistant_id"]
    make(f"/threads/{thread.thread_id}/runs/crons")
    make(assistant_id=assistant)
    stays = make()

    ask("delete", f"/threads/{thread.thread_id}")
    ask("delete", f"/assistants/{assistant}")

    assert [row.pk for row in Cron.unscoped.all()] == [UUID(stays["cron_id"])]
    assert ask("get", f"/threads/{thread.thread_id}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_deleting_a_thread_row_deletes_its_crons(make, agent):
    thread = ThreadFactory(deployment=agent)
    make(f"/threads/{thread.thread_id}/runs/crons")

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_server_thread WHERE id = %s", [thread.pk])

    assert Cron.unscoped.count() == 0


def test_user_of_a_cron_is_its_creator(agent):
    route = route_of(agent)
    scope = crons.Scope(route, user={"identity": "ann", "role": "x"})

    made = crons.create(scope, crons.NewCron(assistant_id="agent", schedule="* * * * *"))

    assert Cron.unscoped.get(pk=made.pk).user_id == "ann"
    assert made.created_at == timezone.now()
