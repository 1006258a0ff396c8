"""Making, changing, versioning and deleting assistants."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from django.db import connections

from apps.agent_server.models import AgentRun, Assistant, AssistantVersion, Thread
from apps.agent_server.schemas.assistants import AssistantChanges
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistant_changes, assistants
from apps.deployments import routes
from apps.deployments.models import Revision, RevisionGraph
from tests.factories.agent_server import AgentFactory, AgentRunFactory, ThreadFactory, route_of
from tests.factories.api_keys import key_for

AGENT_ID = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


@pytest.fixture
def ask(client, agent, key):
    def send(method, path, body=None, *, key=key):
        return getattr(client, method)(
            f"/agents/{agent.slug}/assistants{path}",
            data=None if body is None else json.dumps(body),
            content_type="application/json",
            headers={"X-Api-Key": key} if key else {},
        )

    return send


@pytest.fixture
def make(ask):
    def post(**fields):
        response = ask("post", "", {"graph_id": "agent", **fields})
        assert response.status_code == 200, response.content
        return response.json()

    return post


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "", {"graph_id": "agent"}),
        ("patch", "/{id}", {"name": "x"}),
        ("delete", "/{id}", None),
        ("post", "/{id}/latest", {"version": 1}),
    ],
)
def test_outsiders_change_nothing(ask, make, outsider_key, reader_key, method, path, body):  # noqa: PLR0917
    made = make()
    path = path.format(id=made["assistant_id"])

    assert ask(method, path, body, key=None).status_code == 401
    assert ask(method, path, body, key=outsider_key).status_code == 404
    assert ask(method, path, body, key=reader_key).status_code == 403
    assert ask("get", f"/{made['assistant_id']}").json() == made


def test_new_assistant_has_defaults(make):
    made = make()

    assert UUID(made["assistant_id"]).version == 4
    assert {**made, "assistant_id": "", "created_at": "", "updated_at": ""} == {
        "assistant_id": "",
        "graph_id": "agent",
        "name": "Untitled",
        "description": None,
        "config": {},
        "context": {},
        "metadata": {},
        "version": 1,
        "created_at": "",
        "updated_at": "",
    }


@pytest.mark.parametrize(
    ("fields", "config", "context"),
    [
        ({"config": {"configurable": {"a": 1}}}, {"configurable": {"a": 1}}, {"a": 1}),
        ({"context": {"a": 1}}, {"configurable": {"a": 1}}, {"a": 1}),
        (
            {"config": {"tags": ["t"], "recursion_limit": 9}, "context": {"a": 1}},
            {"tags": ["t"], "recursion_limit": 9, "configurable": {"a": 1}},
            {"a": 1},
        ),
        ({"config": {"configurable": {}}, "context": {}}, {}, {}),
        ({"config": None, "context": None}, {}, {}),
    ],
)
def test_config_and_context_mirror_each_other(make, fields, config, context):
    made = make(**fields)

    assert (made["config"], made["context"]) == (config, context)


def test_config_and_context_together_are_rejected(ask, make):
    both = {"config": {"configurable": {"a": 1}}, "context": {"a": 1}}
    made = make()

    created = ask("post", "", {"graph_id": "agent", **both})
    changed = ask("patch", f"/{made['assistant_id']}", both)

    assert (created.status_code, created.json()["code"]) == (400, "config_and_context")
    assert (changed.status_code, changed.json()["code"]) == (400, "config_and_context")
    assert Assistant.unscoped.filter(version__gt=1).count() == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"graph_id": "nothing"}, 404),
        ({"graph_id": "agent", "assistant_id": "x"}, 422),
        ({"graph_id": "agent", "if_exists": "perhaps"}, 422),
        ({"graph_id": "agent", "metadata": []}, 422),
        ({"graph_id": "agent", "name": "n" * 256}, 422),
        ({"graph_id": "agent", "config": {"recursion_limit": 0}}, 422),
        ({"graph_id": "agent", "config": {"configurable": 1}}, 422),
        ([], 422),
    ],
)
def test_invalid_body_is_rejected(ask, agent, body, status):
    route_of(agent)

    response = ask("post", "", body)

    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)
    assert Assistant.unscoped.count() == 2


def test_unknown_graph_is_rejected_with_the_known_graphs(ask):
    response = ask("post", "", {"graph_id": "nothing"})

    assert response.json()["detail"] == (
        "Graph 'nothing' not found. The deployed graphs are: agent, other"
    )


def test_characters_that_postgresql_rejects_are_replaced(make):
    made = make(name="a\0b", metadata={"k\0": "v\0"})

    assert made["name"] == "a\ufffdb"
    assert made["metadata"] == {"k\ufffd": "v\ufffd"}


def test_repeated_assistant_id_is_a_conflict(ask, make):
    given = str(uuid4())
    first = make(assistant_id=given, name="first")

    again = ask("post", "", {"graph_id": "agent", "assistant_id": given, "name": "second"})
    kept = make(assistant_id=given, name="second", if_exists="do_nothing")

    assert (again.status_code, again.json()["detail"]) == (409, f"Assistant {given} already exists")
    assert kept == first
    assert AssistantVersion.unscoped.filter(assistant__assistant_id=given).count() == 1


def test_id_of_a_hidden_assistant_is_a_conflict(agent):
    route = route_of(agent)
    hidden = Scope(route, visible='{"owner": "ann"}')
    body = assistant_changes.NewAssistant(
        graph_id="agent", assistant_id=UUID(AGENT_ID), if_exists="do_nothing"
    )

    with pytest.raises(assistant_changes.errors.AssistantExists):
        assistant_changes.create(hidden, body)


def test_each_change_creates_a_version(ask, make):
    made = make(name="one", description="d", metadata={"a": 1, "b": 1}, context={"x": 1})
    path = f"/{made['assistant_id']}"

    changed = ask(
        "patch", path, {"name": "two", "metadata": {"b": 2}, "config": {"tags": ["t"]}}
    ).json()
    again = ask("patch", path, {"graph_id": "other", "context": {"y": 2}}).json()

    assert changed == {
        **made,
        "name": "two",
        "metadata": {"a": 1, "b": 2},
        "config": {"tags": ["t"]},
        "context": {},
        "version": 2,
        "updated_at": changed["updated_at"],
    }
    assert changed["updated_at"] > made["updated_at"]
    assert again == {
        **changed,
        "graph_id": "other",
        "config": {"tags": ["t"], "configurable": {"y": 2}},
        "context": {"y": 2},
        "version": 3,
        "updated_at": again["updated_at"],
    }
    assert ask("get", path).json() == again


def test_activating_an_old_version_restores_all_fields(ask, make):
    made = make(name="one", context={"x": 1}, metadata={"a": 1})
    path = f"/{made['assistant_id']}"
    ask(
        "patch", path, {"graph_id": "other", "name": "two", "context": {"x": 2}, "description": "d"}
    )

    back = ask("post", f"{path}/latest", {"version": 1}).json()
    after = ask("patch", path, {"name": "three"}).json()

    assert back == {**made, "updated_at": back["updated_at"]}
    assert (after["version"], after["name"], after["context"]) == (3, "three", {"x": 1})
    versions = ask("post", f"{path}/versions", {}).json()
    assert [(row["version"], row["name"], row["graph_id"]) for row in versions] == [
        (3, "three", "agent"),
        (2, "two", "other"),
        (1, "one", "agent"),
    ]


def test_versions_are_filtered_by_metadata_and_paginated(ask, make):
    made = make(metadata={"stage": "draft"})
    path = f"/{made['assistant_id']}"
    ask("patch", path, {"metadata": {"stage": "final"}})

    def numbers(**body):
        return [row["version"] for row in ask("post", f"{path}/versions", body).json()]

    assert numbers() == [2, 1]
    assert numbers(limit=1) == [2]
    assert numbers(limit=1, offset=1) == [1]
    assert numbers(metadata={"stage": "draft"}) == [1]
    assert ask("post", f"/{uuid4()}/versions", {}).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"), [({"version": 7}, 404), ({}, 422), ({"version": "x"}, 422)]
)
def test_activating_an_unknown_version_changes_nothing(ask, make, body, status):
    made = make()

    assert ask("post", f"/{made['assistant_id']}/latest", body).status_code == status
    assert ask("get", f"/{made['assistant_id']}").json() == made


@pytest.mark.django_db(transaction=True)
def test_concurrent_changes_create_one_version_each(agent):
    scope = Scope(route_of(agent))
    assistant_id = UUID(AGENT_ID)

    def change(number):
        try:
            body = AssistantChanges(metadata={f"key{number}": number})
            return assistant_changes.update(scope, assistant_id, body).version
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(change, range(12)))

    assert sorted(versions) == list(range(2, 14))
    newest = assistants.get(scope, assistant_id)
    assert newest.version == 13
    assert newest.metadata == {"created_by": "system", **{f"key{n}": n for n in range(12)}}


def threads_left():
    """What the purge of temporary threads will not take."""
    return set(Thread.unscoped.filter(temporary=False).values_list("pk", flat=True))


def test_deletion_removes_the_versions_and_keeps_the_threads(ask, make, agent):
    made = make()
    thread = ThreadFactory(deployment=agent, metadata={"assistant_id": made["assistant_id"]})

    deleted = ask("delete", f"/{made['assistant_id']}?delete_threads=false")
    again = ask("delete", f"/{made['assistant_id']}")

    assert (deleted.status_code, deleted.content, again.status_code) == (204, b"", 404)
    assert not AssistantVersion.unscoped.filter(
        assistant__assistant_id=made["assistant_id"]
    ).exists()
    assert Thread.unscoped.filter(pk=thread.pk).exists()


def test_deletion_with_threads_keeps_threads_of_other_assistants(ask, make, agent):
    made = make()
    mark = {"assistant_id": made["assistant_id"]}
    thread = ThreadFactory(deployment=agent, metadata=mark)
    AgentRunFactory(thread=thread)
    other = ThreadFactory(deployment=agent, metadata={"assistant_id": AGENT_ID})
    foreign = ThreadFactory(deployment=AgentFactory(), metadata=mark)

    response = ask("delete", f"/{made['assistant_id']}?delete_threads=true")

    assert response.status_code == 204
    assert threads_left() == {other.pk, foreign.pk}
    assert AgentRun.unscoped.count() == 0


def test_deletion_with_threads_keeps_threads_hidden_from_the_caller(agent, make):
    made = make()
    mark = {"assistant_id": made["assistant_id"]}
    hers = ThreadFactory(deployment=agent, metadata={**mark, "owner": "ann"})
    ThreadFactory(deployment=agent, metadata={**mark, "owner": "bob"})
    scope = Scope(route_of(agent))

    assistant_changes.delete(
        scope,
        UUID(made["assistant_id"]),
        threads_of=Scope(scope.route, visible='{"owner": "bob"}'),
    )

    assert threads_left() == {hers.pk}


def test_system_assistant_cannot_be_deleted(ask, agent):
    route_of(agent)

    deleted = ask("delete", f"/{AGENT_ID}?delete_threads=true")
    moved = ask("patch", f"/{AGENT_ID}", {"graph_id": "other"})
    changed = ask("patch", f"/{AGENT_ID}", {"name": "mine", "graph_id": "agent"})

    assert (deleted.status_code, deleted.json()["code"]) == (409, "system_assistant")
    assert (moved.status_code, moved.json()["code"]) == (409, "system_assistant")
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert changed.json()["metadata"] == {"created_by": "system"}


def _next_revision(agent, /, **graphs):
    revision = Revision.unscoped.create(
        workspace=agent.workspace, deployment=agent, number=2, config_path="langgraph.json"
    )
    for name, description in graphs.items():
        RevisionGraph.unscoped.create(
            workspace=agent.workspace, revision=revision, graph_id=name, description=description
        )
    agent.active_revision = revision
    agent.save()
    routes.clear_cache()


def test_revision_without_the_graph_hides_its_system_assistant(ask, agent):
    route_of(agent)
    before = agent.active_revision
    _next_revision(agent, other="Otherwise", third="")

    found = ask("post", "/search", {"sort_by": "name", "sort_order": "asc"}).json()
    one = ask("get", f"/{AGENT_ID}")
    deleted = ask("delete", f"/{AGENT_ID}")
    agent.active_revision = before
    agent.save()
    routes.clear_cache()

    assert [(row["name"], row["description"]) for row in found] == [
        ("other", "Otherwise"),
        ("third", None),
    ]
    assert (one.status_code, deleted.status_code) == (404, 404)
    assert ask("get", f"/{AGENT_ID}").status_code == 200


def test_edited_description_survives_a_new_revision(ask, agent):
    mine = {"description": "mine"}
    ask("patch", f"/{AGENT_ID}", mine)

    _next_revision(agent, agent="Otherwise")

    assert ask("get", f"/{AGENT_ID}").json()["description"] == "mine"


def test_assistant_of_a_removed_graph_can_be_read_and_changed(ask, make, agent):
    made = make()
    _next_revision(agent, other="")

    assert ask("get", f"/{made['assistant_id']}").json() == made
    changed = ask("patch", f"/{made['assistant_id']}", {"name": "x"})
    assert (changed.status_code, changed.json()["graph_id"]) == (200, "agent")


def test_assistants_are_invisible_to_another_agent_of_the_workspace(client, make, agent):
    made = make()
    beside = AgentFactory(workspace=agent.workspace)
    key = key_for(agent.workspace)

    path = f"/agents/{beside.slug}/assistants/{made['assistant_id']}"

    assert client.get(path, headers={"X-Api-Key": key}).status_code == 404
    assert client.delete(path, headers={"X-Api-Key": key}).status_code == 404


def test_search_takes_the_same_queries_for_any_number_of_rows(ask, make, django_assert_num_queries):
    for number in range(3):
        make(name=f"n{number}")
    ask("post", "/search", {})

    with django_assert_num_queries(1):
        few = ask("post", "/search", {"limit": 2})
    with django_assert_num_queries(1):
        all_of_them = ask("post", "/search", {"limit": 100})

    assert (len(few.json()), len(all_of_them.json())) == (2, 5)
    assert (few.headers["X-Pagination-Next"], few.headers["X-Pagination-Total"]) == ("2", "3")
    assert "X-Pagination-Next" not in all_of_them.headers
