"""Creating, changing, versioning and deleting assistants."""

from __future__ import annotations

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
def send(send):
    """Send a request to the assistants of the agent."""
    return lambda method, path, *body, **options: send(
        method, f"/assistants{path}", *body, **options
    )


@pytest.fixture
def create_assistant(send):
    def post(**fields):
        response = send("post", "", {"graph_id": "agent", **fields})
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
def test_outsiders_change_nothing(  # noqa: PLR0917
    send, create_assistant, outsider_key, reader_key, method, path, body
):
    assistant = create_assistant()
    path = path.format(id=assistant["assistant_id"])

    assert send(method, path, body, key=None).status_code == 401
    assert send(method, path, body, key=outsider_key).status_code == 404
    assert send(method, path, body, key=reader_key).status_code == 403
    assert send("get", f"/{assistant['assistant_id']}").json() == assistant


def test_new_assistant_has_defaults(create_assistant):
    assistant = create_assistant()

    assert UUID(assistant["assistant_id"]).version == 4
    assert {**assistant, "assistant_id": "", "created_at": "", "updated_at": ""} == {
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
def test_config_and_context_mirror_each_other(create_assistant, fields, config, context):
    assistant = create_assistant(**fields)

    assert (assistant["config"], assistant["context"]) == (config, context)


def test_config_and_context_together_are_rejected(send, create_assistant):
    conflicting = {"config": {"configurable": {"a": 1}}, "context": {"a": 1}}
    assistant = create_assistant()

    created = send("post", "", {"graph_id": "agent", **conflicting})
    updated = send("patch", f"/{assistant['assistant_id']}", conflicting)

    assert (created.status_code, created.json()["code"]) == (400, "config_and_context")
    assert (updated.status_code, updated.json()["code"]) == (400, "config_and_context")
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
def test_invalid_body_is_rejected(send, agent, body, status):
    route_of(agent)

    response = send("post", "", body)

    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)
    assert Assistant.unscoped.count() == 2


def test_unknown_graph_is_rejected_with_the_known_graphs(send):
    response = send("post", "", {"graph_id": "nothing"})

    assert response.json()["detail"] == (
        "Graph 'nothing' not found. The deployed graphs are: agent, other"
    )


def test_characters_that_postgresql_rejects_are_replaced(create_assistant):
    assistant = create_assistant(name="a\0b", metadata={"k\0": "v\0"})

    assert assistant["name"] == "a\ufffdb"
    assert assistant["metadata"] == {"k\ufffd": "v\ufffd"}


def test_repeated_assistant_id_is_a_conflict(send, create_assistant):
    assistant_id = str(uuid4())
    first = create_assistant(assistant_id=assistant_id, name="first")

    repeated = send(
        "post", "", {"graph_id": "agent", "assistant_id": assistant_id, "name": "second"}
    )
    existing = create_assistant(assistant_id=assistant_id, name="second", if_exists="do_nothing")

    assert (repeated.status_code, repeated.json()["detail"]) == (
        409,
        f"Assistant {assistant_id} already exists",
    )
    assert existing == first
    assert AssistantVersion.unscoped.filter(assistant__assistant_id=assistant_id).count() == 1


def test_id_of_a_hidden_assistant_is_a_conflict(agent):
    route = route_of(agent)
    hidden = Scope(route, visible='{"owner": "ann"}')
    body = assistant_changes.NewAssistant(
        graph_id="agent", assistant_id=UUID(AGENT_ID), if_exists="do_nothing"
    )

    with pytest.raises(assistant_changes.errors.AssistantExists):
        assistant_changes.create(hidden, body)


def test_each_change_creates_a_version(send, create_assistant):
    created = create_assistant(
        name="one", description="d", metadata={"a": 1, "b": 1}, context={"x": 1}
    )
    path = f"/{created['assistant_id']}"

    second = send(
        "patch", path, {"name": "two", "metadata": {"b": 2}, "config": {"tags": ["t"]}}
    ).json()
    third = send("patch", path, {"graph_id": "other", "context": {"y": 2}}).json()

    assert second == {
        **created,
        "name": "two",
        "metadata": {"a": 1, "b": 2},
        "config": {"tags": ["t"]},
        "context": {},
        "version": 2,
        "updated_at": second["updated_at"],
    }
    assert second["updated_at"] > created["updated_at"]
    assert third == {
        **second,
        "graph_id": "other",
        "config": {"tags": ["t"], "configurable": {"y": 2}},
        "context": {"y": 2},
        "version": 3,
        "updated_at": third["updated_at"],
    }
    assert send("get", path).json() == third


def test_activating_an_old_version_restores_all_fields(send, create_assistant):
    created = create_assistant(name="one", context={"x": 1}, metadata={"a": 1})
    path = f"/{created['assistant_id']}"
    send(
        "patch", path, {"graph_id": "other", "name": "two", "context": {"x": 2}, "description": "d"}
    )

    restored = send("post", f"{path}/latest", {"version": 1}).json()
    changed = send("patch", path, {"name": "three"}).json()

    assert restored == {**created, "updated_at": restored["updated_at"]}
    assert (changed["version"], changed["name"], changed["context"]) == (3, "three", {"x": 1})
    versions = send("post", f"{path}/versions", {}).json()
    assert [(row["version"], row["name"], row["graph_id"]) for row in versions] == [
        (3, "three", "agent"),
        (2, "two", "other"),
        (1, "one", "agent"),
    ]


def test_versions_are_filtered_by_metadata_and_paginated(send, create_assistant):
    assistant = create_assistant(metadata={"stage": "draft"})
    path = f"/{assistant['assistant_id']}"
    send("patch", path, {"metadata": {"stage": "final"}})

    def list_versions(**body):
        return [row["version"] for row in send("post", f"{path}/versions", body).json()]

    assert list_versions() == [2, 1]
    assert list_versions(limit=1) == [2]
    assert list_versions(limit=1, offset=1) == [1]
    assert list_versions(metadata={"stage": "draft"}) == [1]
    assert send("post", f"/{uuid4()}/versions", {}).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"), [({"version": 7}, 404), ({}, 422), ({"version": "x"}, 422)]
)
def test_activating_an_unknown_version_changes_nothing(send, create_assistant, body, status):
    assistant = create_assistant()

    assert send("post", f"/{assistant['assistant_id']}/latest", body).status_code == status
    assert send("get", f"/{assistant['assistant_id']}").json() == assistant


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


def list_visible_threads():
    """The threads that are not marked for deletion."""
    return set(Thread.unscoped.filter(temporary=False).values_list("pk", flat=True))


def test_deletion_removes_the_versions_and_keeps_the_threads(send, create_assistant, agent):
    assistant = create_assistant()
    thread = ThreadFactory(deployment=agent, metadata={"assistant_id": assistant["assistant_id"]})

    deleted = send("delete", f"/{assistant['assistant_id']}?delete_threads=false")
    repeated = send("delete", f"/{assistant['assistant_id']}")

    assert (deleted.status_code, deleted.content, repeated.status_code) == (204, b"", 404)
    assert not AssistantVersion.unscoped.filter(
        assistant__assistant_id=assistant["assistant_id"]
    ).exists()
    assert Thread.unscoped.filter(pk=thread.pk).exists()


def test_deletion_with_threads_keeps_threads_of_other_assistants(send, create_assistant, agent):
    assistant = create_assistant()
    metadata = {"assistant_id": assistant["assistant_id"]}
    thread = ThreadFactory(deployment=agent, metadata=metadata)
    AgentRunFactory(thread=thread)
    other = ThreadFactory(deployment=agent, metadata={"assistant_id": AGENT_ID})
    foreign = ThreadFactory(deployment=AgentFactory(), metadata=metadata)

    response = send("delete", f"/{assistant['assistant_id']}?delete_threads=true")

    assert response.status_code == 204
    assert list_visible_threads() == {other.pk, foreign.pk}
    assert AgentRun.unscoped.count() == 0


def test_deletion_with_threads_keeps_threads_hidden_from_the_caller(agent, create_assistant):
    assistant = create_assistant()
    metadata = {"assistant_id": assistant["assistant_id"]}
    hidden_thread = ThreadFactory(deployment=agent, metadata={**metadata, "owner": "ann"})
    ThreadFactory(deployment=agent, metadata={**metadata, "owner": "bob"})
    scope = Scope(route_of(agent))

    assistant_changes.delete(
        scope,
        UUID(assistant["assistant_id"]),
        threads_scope=Scope(scope.route, visible='{"owner": "bob"}'),
    )

    assert list_visible_threads() == {hidden_thread.pk}


def test_system_assistant_cannot_be_deleted(send, agent):
    route_of(agent)

    deleted = send("delete", f"/{AGENT_ID}?delete_threads=true")
    moved = send("patch", f"/{AGENT_ID}", {"graph_id": "other"})
    changed = send("patch", f"/{AGENT_ID}", {"name": "mine", "graph_id": "agent"})

    assert (deleted.status_code, deleted.json()["code"]) == (409, "system_assistant")
    assert (moved.status_code, moved.json()["code"]) == (409, "system_assistant")
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert changed.json()["metadata"] == {"created_by": "system"}


def _activate_revision(agent, /, **graphs):
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


def test_revision_without_the_graph_hides_its_system_assistant(send, agent):
    route_of(agent)
    first_revision = agent.active_revision
    _activate_revision(agent, other="Otherwise", third="")

    listed = send("post", "/search", {"sort_by": "name", "sort_order": "asc"}).json()
    hidden = send("get", f"/{AGENT_ID}")
    deleted = send("delete", f"/{AGENT_ID}")
    agent.active_revision = first_revision
    agent.save()
    routes.clear_cache()

    assert [(row["name"], row["description"]) for row in listed] == [
        ("other", "Otherwise"),
        ("third", None),
    ]
    assert (hidden.status_code, deleted.status_code) == (404, 404)
    assert send("get", f"/{AGENT_ID}").status_code == 200


def test_edited_description_survives_a_new_revision(send, agent):
    changes = {"description": "mine"}
    send("patch", f"/{AGENT_ID}", changes)

    _activate_revision(agent, agent="Otherwise")

    assert send("get", f"/{AGENT_ID}").json()["description"] == "mine"


def test_assistant_of_a_removed_graph_can_be_read_and_changed(send, create_assistant, agent):
    assistant = create_assistant()
    _activate_revision(agent, other="")

    assert send("get", f"/{assistant['assistant_id']}").json() == assistant
    changed = send("patch", f"/{assistant['assistant_id']}", {"name": "x"})
    assert (changed.status_code, changed.json()["graph_id"]) == (200, "agent")


def test_assistants_are_invisible_to_another_agent_of_the_workspace(
    client, create_assistant, agent
):
    assistant = create_assistant()
    sibling = AgentFactory(workspace=agent.workspace)
    key = key_for(agent.workspace)

    path = f"/agents/{sibling.slug}/assistants/{assistant['assistant_id']}"

    assert client.get(path, headers={"X-Api-Key": key}).status_code == 404
    assert client.delete(path, headers={"X-Api-Key": key}).status_code == 404


def test_search_takes_the_same_queries_for_any_number_of_rows(
    send, create_assistant, django_assert_num_queries
):
    for number in range(3):
        create_assistant(name=f"n{number}")
    send("post", "/search", {})

    with django_assert_num_queries(1):
        small_page = send("post", "/search", {"limit": 2})
    with django_assert_num_queries(1):
        large_page = send("post", "/search", {"limit": 100})

    assert (len(small_page.json()), len(large_page.json())) == (2, 5)
    assert (small_page.headers["X-Pagination-Next"], small_page.headers["X-Pagination-Total"]) == (
        "2",
        "3",
    )
    assert "X-Pagination-Next" not in large_page.headers
