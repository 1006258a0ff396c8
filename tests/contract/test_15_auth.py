"""Section 15: custom authentication, with several users and all kinds of rows."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import APIStatusError

from apps.agent_server.services.assistants import system_assistant_id
from tests.contract.deployment import deploy_shared
from tests.contract.sdk_calls import rejection

AGENT = str(system_assistant_id("agent"))


@pytest.fixture(scope="module")
def url(live):
    return deploy_shared(live, "auth")


def connect_as(url, name, **headers):
    return get_sync_client(
        url=url, api_key=None, headers={"Authorization": f"Bearer {name}", **headers}, timeout=60
    )


@pytest.fixture(scope="module")
def ann(url):
    with connect_as(url, "ann") as client:
        yield client


@pytest.fixture(scope="module")
def bob(url):
    with connect_as(url, "bob") as client:
        yield client


@pytest.fixture(scope="module")
def cleo(url):
    with connect_as(url, "cleo") as client:
        yield client


@pytest.fixture(scope="module")
def finished_run(ann):
    """The ids of a thread of Ann and of its finished run."""
    thread = ann.threads.create()
    ann.runs.wait(thread["thread_id"], "agent", input={"notes": ["hers"]})
    run = ann.runs.list(thread["thread_id"])[0]
    return thread["thread_id"], run["run_id"]


def rejection_status(call, *arguments, **options):
    """Return the status with which the call is rejected, or None."""
    try:
        call(*arguments, **options)
    except (APIStatusError, httpx.HTTPStatusError) as error:
        return error.response.status_code
    return None


# Authentication


def test_a_request_without_credentials_is_rejected(url):
    response = httpx.post(f"{url}/threads", json={})

    assert (response.status_code, response.json()["detail"]) == (401, "Who are you?")


def test_an_unknown_user_is_rejected(url):
    with connect_as(url, "eve") as eve:
        assert rejection(eve.threads.create) == (401, "Who are you?")


def test_a_crashing_authentication_handler_rejects_without_details(url):
    with connect_as(url, "crash") as crash:
        result = rejection(crash.threads.create)

    assert result == (401, "The agent's authentication failed: KeyError")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/info"),
        ("POST", "/assistants/search"),
        ("POST", "/assistants/count"),
        ("GET", f"/assistants/{AGENT}"),
        ("GET", f"/assistants/{AGENT}/graph"),
        ("GET", f"/assistants/{AGENT}/schemas"),
        ("GET", f"/assistants/{AGENT}/subgraphs"),
        ("POST", "/threads"),
        ("POST", "/threads/search"),
        ("POST", "/threads/count"),
        ("POST", "/runs"),
        ("POST", "/runs/wait"),
        ("POST", "/runs/stream"),
        ("POST", "/runs/crons/search"),
        ("PUT", "/store/items"),
        ("POST", "/store/items/search"),
        ("POST", "/store/namespaces"),
    ],
)
def test_every_route_rejects_anonymous_callers(url, method, path):
    body = {"assistant_id": "agent", "namespace": ["a"], "key": "k", "value": {}}
    body = {} if path.endswith(("search", "count", "namespaces")) else body
    options = {} if method == "GET" else {"json": body}

    response = httpx.request(method, f"{url}{path}", **options)

    assert response.status_code == 401


@pytest.mark.parametrize("path", ["/ok", "/docs", "/openapi.json"])
def test_health_and_documentation_are_public(url, path):
    assert httpx.get(f"{url}{path}").status_code == 200


def test_the_openapi_document_names_the_security_schemes_of_the_agent(url):
    document = httpx.get(f"{url}/openapi.json").json()

    assert document["components"]["securitySchemes"] == {
        "token": {"type": "http", "scheme": "bearer"}
    }
    assert document["security"] == [{"token": []}]


def test_a_platform_key_without_the_scheme_header_is_rejected(live, url):
    response = httpx.post(f"{url}/threads", json={}, headers=live.headers)

    assert response.status_code == 401


def test_a_platform_key_with_the_scheme_header_is_accepted(live, url, finished_run):
    thread_id, _ = finished_run

    response = httpx.get(
        f"{url}/threads/{thread_id}", headers={**live.headers, "x-auth-scheme": "langsmith"}
    )

    assert response.status_code == 200


@pytest.mark.parametrize("key", [None, "slip_wrong", "unknown"])
def test_the_scheme_header_without_a_valid_key_is_rejected(url, key):
    headers = {"X-Auth-Scheme": "langsmith", **({"X-Api-Key": key} if key else {})}

    assert httpx.post(f"{url}/threads/search", json={}, headers=headers).status_code == 401


def test_the_platform_key_is_hidden_from_the_code_of_the_agent(live, url):
    headers = {"Authorization": "Bearer ann"}
    options = {"json": {"assistant_id": "agent", "input": {}}, "timeout": 60}

    platform_response = httpx.post(
        f"{url}/runs/wait", headers={**headers, **live.headers}, **options
    )
    own_response = httpx.post(
        f"{url}/runs/wait", headers={**headers, "X-Api-Key": "hers"}, **options
    )

    assert platform_response.json()["seen"]["mapping"]["knows_key"] is False
    assert own_response.json()["seen"]["mapping"]["knows_key"] is True


# The user in the graph


def test_a_graph_reads_the_user_from_config_and_runtime(ann):
    seen = ann.runs.wait(None, "agent", input={})["seen"]

    assert seen["mapping"] == {
        "identity": "ann",
        "display_name": "ann",
        "is_authenticated": True,
        "permissions": ["threads"],
        "team": "red",
        "knows_key": False,
    }
    assert (seen["attribute"], seen["id"], seen["user_id"], seen["runtime"]) == ("ann",) * 4
    assert seen["permissions"] == ["threads"]


def test_a_user_in_the_config_of_a_run_is_ignored(bob):
    forged = {"langgraph_auth_user": {"identity": "ann"}, "langgraph_auth_user_id": "ann"}

    seen = bob.runs.wait(None, "agent", input={}, config={"configurable": forged})["seen"]

    assert (seen["id"], seen["attribute"]) == ("bob", "bob")


def test_a_user_in_the_config_of_an_assistant_is_ignored(bob):
    forged = {"configurable": {"langgraph_auth_user": {"identity": "ann"}}}
    assistant = bob.assistants.create("agent", config=forged)

    seen = bob.runs.wait(None, assistant["assistant_id"], input={})["seen"]

    assert seen["attribute"] == "bob"


def test_a_graph_factory_reads_the_user(ann):
    assert ann.runs.wait(None, "made", input={})["notes"] == ["threads.create_run for ann"]


def test_a_run_stores_its_user(ann, finished_run):
    run = ann.runs.get(*finished_run)

    assert run["kwargs"]["config"]["configurable"]["langgraph_auth_user_id"] == "ann"


def test_a_graph_reads_the_listed_headers(url):
    client = connect_as(
        url, "ann", **{"X-Tenant-Name": "acme", "X-Tenant-Secret": "s", "X-Else": "e"}
    )

    assert client.runs.wait(None, "agent", input={})["seen"]["headers"] == {"x-tenant-name": "acme"}


# Threads


def test_an_authorization_rule_adds_metadata_to_a_new_thread(ann):
    thread = ann.threads.create(metadata={"topic": "tea"})

    assert thread["metadata"] == {"topic": "tea", "owner": "ann", "readers": ["ann"]}


def test_an_authorization_rule_overrides_sent_metadata(bob):
    assert bob.threads.create(metadata={"owner": "ann"})["metadata"]["owner"] == "bob"


def cancel_as_bob(url, thread_id, run_id):
    """Cancel the run as Bob and return the status; the SDK would leave the response open."""
    path = f"{url}/threads/{thread_id}/runs/{run_id}/cancel"
    return httpx.post(path, headers={"Authorization": "Bearer bob"}).status_code


def test_a_foreign_thread_is_not_found(url, bob, finished_run):
    thread_id, run_id = finished_run

    statuses = {
        "get": rejection_status(bob.threads.get, thread_id),
        "update": rejection_status(bob.threads.update, thread_id, metadata={"a": 1}),
        "delete": rejection_status(bob.threads.delete, thread_id),
        "state": rejection_status(bob.threads.get_state, thread_id),
        "history": rejection_status(bob.threads.get_history, thread_id),
        "update_state": rejection_status(bob.threads.update_state, thread_id, {"notes": ["x"]}),
        "copy": rejection_status(bob.threads.copy, thread_id),
        "runs": rejection_status(bob.runs.list, thread_id),
        "run": rejection_status(bob.runs.get, thread_id, run_id),
        "delete_run": rejection_status(bob.runs.delete, thread_id, run_id),
        "create": rejection_status(bob.runs.create, thread_id, "agent", input={}),
        "cancel": cancel_as_bob(url, thread_id, run_id),
    }

    assert statuses == dict.fromkeys(statuses, 404)


def test_rejected_calls_do_not_change_a_foreign_thread(ann, bob, finished_run):
    thread_id, run_id = finished_run
    for call in (bob.threads.delete, bob.threads.copy):
        assert rejection_status(call, thread_id) == 404
    rejection_status(bob.runs.delete, thread_id, run_id)

    assert ann.threads.get_state(thread_id)["values"]["notes"] == ["hers", "reported"]
    assert [run["run_id"] for run in ann.runs.list(thread_id)] == [run_id]


@pytest.mark.parametrize("if_exists", ["raise", "do_nothing"])
def test_creating_a_thread_with_a_foreign_id_is_not_found(bob, finished_run, if_exists):
    assert (
        rejection_status(bob.threads.create, thread_id=finished_run[0], if_exists=if_exists) == 404
    )


def test_a_run_that_would_create_a_foreign_thread_is_not_found(bob, finished_run):
    result = rejection_status(
        bob.runs.create, finished_run[0], "agent", input={}, if_not_exists="create"
    )

    assert result == 404


def test_a_thread_created_by_a_run_belongs_to_the_user_of_the_run(ann, bob):
    thread_id = str(uuid4())

    ann.runs.wait(thread_id, "agent", input={}, if_not_exists="create")

    assert ann.threads.get(thread_id)["metadata"]["owner"] == "ann"
    assert rejection_status(bob.threads.get, thread_id) == 404


def test_searches_and_counts_exclude_hidden_threads(ann, bob, cleo):
    mark = uuid4().hex
    own_thread = ann.threads.create(metadata={"mark": mark})
    shared_thread = ann.threads.create(metadata={"mark": mark, "share": ["cleo"]})
    bob.threads.create(metadata={"mark": mark})

    ids_by_user = {
        name: sorted(row["thread_id"] for row in client.threads.search(metadata={"mark": mark}))
        for name, client in (("ann", ann), ("cleo", cleo))
    }

    assert ids_by_user["ann"] == sorted([own_thread["thread_id"], shared_thread["thread_id"]])
    assert ids_by_user["cleo"] == [shared_thread["thread_id"]]
    assert [client.threads.count(metadata={"mark": mark}) for client in (ann, bob, cleo)] == [
        2,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"raise": True}, (418, "Not like this.")),
        ({"crash": True}, (403, "The agent's authorization failed: RuntimeError")),
    ],
)
def test_an_exception_of_a_rule_is_the_response(ann, finished_run, metadata, expected):
    assert rejection(ann.threads.update, finished_run[0], metadata=metadata) == expected


def test_an_unsupported_filter_of_a_rule_is_forbidden(ann, finished_run):
    code, detail = rejection(ann.threads.update, finished_run[0], metadata={"vague": True})

    assert code == 403
    assert "`owner` has the operator `$like`" in detail


def test_joining_a_foreign_run_is_not_found(url, finished_run):
    thread_id, run_id = finished_run
    headers = {"Authorization": "Bearer bob"}

    joined = httpx.get(f"{url}/threads/{thread_id}/runs/{run_id}/join", headers=headers)
    streamed = httpx.get(f"{url}/threads/{thread_id}/runs/{run_id}/stream", headers=headers)

    assert "hers" not in joined.text + streamed.text
    assert "Run not found" in joined.text
    assert "event: error" in streamed.text


def test_a_foreign_run_cannot_be_cancelled(url, ann, bob):
    thread = ann.threads.create()
    run = ann.runs.create(thread["thread_id"], "agent", input={"sleep": 0.5})

    cancel_status = cancel_as_bob(url, thread["thread_id"], run["run_id"])
    bulk_cancel_status = rejection_status(
        bob.runs.cancel_many, thread_id=thread["thread_id"], run_ids=[run["run_id"]]
    )
    values = ann.runs.join(thread["thread_id"], run["run_id"])

    assert (cancel_status, bulk_cancel_status) == (404, 404)
    assert values["notes"] == ["reported"]


def test_only_the_owner_resumes_a_run(ann, bob):
    thread = ann.threads.create()["thread_id"]
    ann.runs.wait(thread, "agent", input={"ask": "sure?"})

    foreign_status = rejection_status(bob.runs.create, thread, "agent", command={"resume": "yes"})
    values = ann.runs.wait(thread, "agent", command={"resume": "yes"})

    assert foreign_status == 404
    assert values["notes"] == ["reported"]


def test_pruning_a_foreign_thread_is_not_found(ann, bob):
    thread = ann.threads.create()["thread_id"]

    foreign_status = rejection_status(bob.threads.prune, [thread])

    assert foreign_status == 404
    assert ann.threads.get(thread)["thread_id"] == thread


# Assistants, crons, store


def test_system_assistants_are_visible_to_all_users(ann, bob):
    visible_ids = [
        {assistant["assistant_id"] for assistant in client.assistants.search(limit=100)}
        for client in (ann, bob)
    ]

    assert AGENT in visible_ids[0] & visible_ids[1]


def test_a_rule_that_returns_false_forbids_the_call(ann):
    assistant = ann.assistants.create("agent")

    assert rejection(ann.assistants.delete, assistant["assistant_id"]) == (403, "Forbidden")
    assert ann.assistants.get(assistant["assistant_id"])["metadata"] == {"owner": "ann"}


def test_a_foreign_assistant_is_not_changed(ann, bob):
    assistant = ann.assistants.create("agent", name="hers")["assistant_id"]

    assert rejection_status(bob.assistants.update, assistant, name="his") == 404
    assert ann.assistants.get(assistant)["name"] == "hers"


def test_crons_belong_to_their_creator(ann, bob):
    cron = ann.crons.create("agent", schedule="0 0 1 1 *", input={})
    cron_id = cron["cron_id"]

    assert cron["user_id"] == "ann"
    assert [cron_row["cron_id"] for cron_row in ann.crons.search(limit=1000)].count(cron_id) == 1
    assert [cron_row["cron_id"] for cron_row in bob.crons.search(limit=1000)].count(cron_id) == 0
    assert rejection_status(bob.crons.update, cron_id, schedule="* * * * *") == 404
    assert rejection_status(bob.crons.delete, cron_id) == 404
    ann.crons.delete(cron_id)


def test_a_cron_on_a_foreign_thread_is_not_found(bob, finished_run):
    assert (
        rejection_status(
            bob.crons.create_for_thread, finished_run[0], "agent", schedule="0 0 1 1 *"
        )
        == 404
    )


def test_each_user_has_a_namespace_of_the_store(ann, bob):
    ann.store.put_item(["notes"], "k", {"of": "ann"})
    bob.store.put_item(["notes"], "k", {"of": "bob"})

    ann_item, bob_item = ann.store.get_item(["notes"], "k"), bob.store.get_item(["notes"], "k")

    assert (ann_item["value"], bob_item["value"]) == ({"of": "ann"}, {"of": "bob"})
    assert ann_item["namespace"] == ["ann", "notes"]


def test_searching_the_store_is_limited_to_the_namespace_of_the_user(ann, bob):
    mark = uuid4().hex
    ann.store.put_item([mark], "k", {"of": "ann"})

    assert [item["value"] for item in ann.store.search_items([mark])["items"]] == [{"of": "ann"}]
    assert bob.store.search_items([mark])["items"] == []
    assert all(namespace[0] == "bob" for namespace in bob.store.list_namespaces()["namespaces"])


def test_deleting_from_the_store_is_limited_to_the_namespace_of_the_user(ann, bob):
    ann.store.put_item(["kept"], "k", {"of": "ann"})

    bob.store.delete_item(["kept"], "k")

    assert ann.store.get_item(["kept"], "k")["value"] == {"of": "ann"}
