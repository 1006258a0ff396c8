"""Section 15: authentication of the agent's own, with two users over all kinds of rows."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import APIStatusError

from apps.agent_server.services.assistants import system_assistant_id
from tests.contract.deploying import deploy
from tests.response_deadline import with_deadline

AGENT = str(system_assistant_id("agent"))


@pytest.fixture(scope="module")
def url(live):
    return deploy(live, Path(__file__).parent / "auth_project", "auth")


def client_of(url, name, **headers):
    headers = {"Authorization": f"Bearer {name}", **headers}
    return with_deadline(get_sync_client(url=url, api_key=None, headers=headers, timeout=60))


@pytest.fixture(scope="module")
def ann(url):
    with client_of(url, "ann") as client:
        yield client


@pytest.fixture(scope="module")
def bob(url):
    with client_of(url, "bob") as client:
        yield client


@pytest.fixture(scope="module")
def cleo(url):
    with client_of(url, "cleo") as client:
        yield client


@pytest.fixture(scope="module")
def done(ann):
    """A thread of Ann's with a finished run."""
    thread = ann.threads.create()
    ann.runs.wait(thread["thread_id"], "agent", input={"notes": ["hers"]})
    run = ann.runs.list(thread["thread_id"])[0]
    return thread["thread_id"], run["run_id"]


def status(call, *words, **more):
    """The status with which the call is refused; None when it is not."""
    try:
        call(*words, **more)
    except (APIStatusError, httpx.HTTPStatusError) as error:
        return error.response.status_code
    return None


def said(call, *words, **more):
    with pytest.raises(APIStatusError) as caught:
        call(*words, **more)
    return caught.value.response.status_code, caught.value.response.json()["detail"]


# Who gets in


def test_nobody_without_credentials(url):
    answer = httpx.post(f"{url}/threads", json={})

    assert (answer.status_code, answer.json()["detail"]) == (401, "Who are you?")


def test_nobody_with_a_name_that_is_not_known(url):
    with client_of(url, "eve") as eve:
        assert said(eve.threads.create) == (401, "Who are you?")


def test_a_handler_that_crashes_lets_nobody_in_and_tells_nothing(url):
    with client_of(url, "crash") as crash:
        answer = said(crash.threads.create)

    assert answer == (401, "The agent's authentication failed: KeyError")


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
def test_each_door_is_shut_to_strangers(url, method, path):
    body = {"assistant_id": "agent", "namespace": ["a"], "key": "k", "value": {}}
    body = {} if path.endswith(("search", "count", "namespaces")) else body
    sent = {} if method == "GET" else {"json": body}

    answer = httpx.request(method, f"{url}{path}", **sent)

    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/ok", "/docs", "/openapi.json"])
def test_some_doors_are_open(url, path):
    assert httpx.get(f"{url}{path}").status_code == 200


def test_the_description_names_the_schemes_of_the_agent(url):
    described = httpx.get(f"{url}/openapi.json").json()

    assert described["components"]["securitySchemes"] == {
        "token": {"type": "http", "scheme": "bearer"}
    }
    assert described["security"] == [{"token": []}]


def test_a_key_of_the_platform_alone_is_nobodys(live, url):
    answer = httpx.post(f"{url}/threads", json={}, headers=live.headers)

    assert answer.status_code == 401


def test_a_key_of_the_platform_counts_where_it_is_said_to_be_one(live, url, done):
    thread_id, _ = done

    answer = httpx.get(
        f"{url}/threads/{thread_id}", headers={**live.headers, "x-auth-scheme": "langsmith"}
    )

    assert answer.status_code == 200


@pytest.mark.parametrize("key", [None, "slip_wrong", "whatever"])
def test_the_scheme_without_a_good_key_opens_nothing(url, key):
    headers = {"X-Auth-Scheme": "langsmith", **({"X-Api-Key": key} if key else {})}

    assert httpx.post(f"{url}/threads/search", json={}, headers=headers).status_code == 401


def test_the_agents_code_never_sees_a_key_of_the_platform(live, url):
    headers = {"Authorization": "Bearer ann"}
    asked = {"json": {"assistant_id": "agent", "input": {}}, "timeout": 60}

    ours = httpx.post(f"{url}/runs/wait", headers={**headers, **live.headers}, **asked)
    own = httpx.post(f"{url}/runs/wait", headers={**headers, "X-Api-Key": "hers"}, **asked)

    assert ours.json()["seen"]["mapping"]["knows_key"] is False
    assert own.json()["seen"]["mapping"]["knows_key"] is True


# Who the graph sees


def test_a_graph_sees_the_user_in_every_place(ann):
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


def test_nobody_says_who_they_are(bob):
    forged = {"langgraph_auth_user": {"identity": "ann"}, "langgraph_auth_user_id": "ann"}

    seen = bob.runs.wait(None, "agent", input={}, config={"configurable": forged})["seen"]

    assert (seen["id"], seen["attribute"]) == ("bob", "bob")


def test_an_assistants_configuration_says_for_nobody_who_they_are(bob):
    forged = {"configurable": {"langgraph_auth_user": {"identity": "ann"}}}
    assistant = bob.assistants.create("agent", config=forged)

    seen = bob.runs.wait(None, assistant["assistant_id"], input={})["seen"]

    assert seen["attribute"] == "bob"


def test_a_factory_knows_the_user(ann):
    assert ann.runs.wait(None, "made", input={})["notes"] == ["threads.create_run for ann"]


def test_the_run_keeps_its_user(ann, done):
    run = ann.runs.get(*done)

    assert run["kwargs"]["config"]["configurable"]["langgraph_auth_user_id"] == "ann"


def test_listed_headers_reach_the_graph(url):
    client = client_of(
        url, "ann", **{"X-Tenant-Name": "acme", "X-Tenant-Secret": "s", "X-Else": "e"}
    )

    assert client.runs.wait(None, "agent", input={})["seen"]["headers"] == {"x-tenant-name": "acme"}


# Threads


def test_a_rule_writes_into_what_is_made(ann):
    thread = ann.threads.create(metadata={"topic": "tea"})

    assert thread["metadata"] == {"topic": "tea", "owner": "ann", "readers": ["ann"]}


def test_a_rule_overrules_what_is_sent(bob):
    assert bob.threads.create(metadata={"owner": "ann"})["metadata"]["owner"] == "bob"


def cancelled(url, thread_id, run_id):
    """The status when Bob cancels; the SDK would leave the answer open."""
    path = f"{url}/threads/{thread_id}/runs/{run_id}/cancel"
    return httpx.post(path, headers={"Authorization": "Bearer bob"}).status_code


def test_anothers_thread_is_not_there(url, bob, done):
    thread_id, run_id = done

    answers = {
        "get": status(bob.threads.get, thread_id),
        "update": status(bob.threads.update, thread_id, metadata={"a": 1}),
        "delete": status(bob.threads.delete, thread_id),
        "state": status(bob.threads.get_state, thread_id),
        "history": status(bob.threads.get_history, thread_id),
        "update_state": status(bob.threads.update_state, thread_id, {"notes": ["x"]}),
        "copy": status(bob.threads.copy, thread_id),
        "runs": status(bob.runs.list, thread_id),
        "run": status(bob.runs.get, thread_id, run_id),
        "delete_run": status(bob.runs.delete, thread_id, run_id),
        "create": status(bob.runs.create, thread_id, "agent", input={}),
        "cancel": cancelled(url, thread_id, run_id),
    }

    assert answers == dict.fromkeys(answers, 404)


def test_nothing_of_anothers_thread_was_changed(ann, bob, done):
    thread_id, run_id = done
    for call in (bob.threads.delete, bob.threads.copy):
        assert status(call, thread_id) == 404
    status(bob.runs.delete, thread_id, run_id)

    assert ann.threads.get_state(thread_id)["values"]["notes"] == ["hers", "told"]
    assert [run["run_id"] for run in ann.runs.list(thread_id)] == [run_id]


@pytest.mark.parametrize("if_exists", ["raise", "do_nothing"])
def test_an_id_that_is_anothers_gives_nothing_away(bob, done, if_exists):
    assert status(bob.threads.create, thread_id=done[0], if_exists=if_exists) == 404


def test_a_run_that_would_make_the_thread_finds_anothers(bob, done):
    answer = status(bob.runs.create, done[0], "agent", input={}, if_not_exists="create")

    assert answer == 404


def test_a_run_that_makes_its_thread_makes_it_its_makers(ann, bob):
    thread_id = str(uuid4())

    ann.runs.wait(thread_id, "agent", input={}, if_not_exists="create")

    assert ann.threads.get(thread_id)["metadata"]["owner"] == "ann"
    assert status(bob.threads.get, thread_id) == 404


def test_searches_and_counts_leave_out_what_is_hidden(ann, bob, cleo):
    mark = uuid4().hex
    mine = ann.threads.create(metadata={"mark": mark})
    shared = ann.threads.create(metadata={"mark": mark, "share": ["cleo"]})
    bob.threads.create(metadata={"mark": mark})

    found = {
        name: sorted(row["thread_id"] for row in client.threads.search(metadata={"mark": mark}))
        for name, client in (("ann", ann), ("cleo", cleo))
    }

    assert found["ann"] == sorted([mine["thread_id"], shared["thread_id"]])
    assert found["cleo"] == [shared["thread_id"]]
    assert [c.threads.count(metadata={"mark": mark}) for c in (ann, bob, cleo)] == [2, 1, 1]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"raise": True}, (418, "Not like this.")),
        ({"crash": True}, (403, "The agent's authorization failed: RuntimeError")),
    ],
)
def test_what_a_rule_raises_is_the_answer(ann, done, metadata, expected):
    assert said(ann.threads.update, done[0], metadata=metadata) == expected


def test_a_filter_that_cannot_be_exact_shows_nothing(ann, done):
    code, detail = said(ann.threads.update, done[0], metadata={"vague": True})

    assert code == 403
    assert "`owner` has the operator `$like`" in detail


def test_joining_anothers_run_finds_nothing(url, done):
    thread_id, run_id = done
    headers = {"Authorization": "Bearer bob"}

    joined = httpx.get(f"{url}/threads/{thread_id}/runs/{run_id}/join", headers=headers)
    streamed = httpx.get(f"{url}/threads/{thread_id}/runs/{run_id}/stream", headers=headers)

    assert "hers" not in joined.text + streamed.text
    assert "Run not found" in joined.text
    assert "event: error" in streamed.text


def test_a_running_run_of_anothers_goes_on(url, ann, bob):
    thread = ann.threads.create()
    run = ann.runs.create(thread["thread_id"], "agent", input={"sleep": 0.5})

    refused = cancelled(url, thread["thread_id"], run["run_id"])
    many = status(bob.runs.cancel_many, thread_id=thread["thread_id"], run_ids=[run["run_id"]])
    values = ann.runs.join(thread["thread_id"], run["run_id"])

    assert (refused, many) == (404, 404)
    assert values["notes"] == ["told"]


def test_one_may_resume_what_one_started(ann, bob):
    thread = ann.threads.create()["thread_id"]
    ann.runs.wait(thread, "agent", input={"ask": "sure?"})

    refused = status(bob.runs.create, thread, "agent", command={"resume": "yes"})
    answer = ann.runs.wait(thread, "agent", command={"resume": "yes"})

    assert refused == 404
    assert answer["notes"] == ["told"]


def test_pruning_touches_only_what_is_visible(ann, bob):
    thread = ann.threads.create()["thread_id"]

    refused = status(bob.threads.prune, [thread])

    assert refused == 404
    assert ann.threads.get(thread)["thread_id"] == thread


# Assistants, crons, store


def test_system_assistants_are_for_everybody_whom_the_rule_lets(ann, bob):
    found = [{a["assistant_id"] for a in c.assistants.search(limit=100)} for c in (ann, bob)]

    assert AGENT in found[0] & found[1]


def test_a_rule_may_forbid_flatly(ann):
    assistant = ann.assistants.create("agent")

    assert said(ann.assistants.delete, assistant["assistant_id"]) == (403, "Forbidden")
    assert ann.assistants.get(assistant["assistant_id"])["metadata"] == {"owner": "ann"}


def test_anothers_assistant_is_not_changed(ann, bob):
    assistant = ann.assistants.create("agent", name="hers")["assistant_id"]

    assert status(bob.assistants.update, assistant, name="his") == 404
    assert ann.assistants.get(assistant)["name"] == "hers"


def test_crons_are_their_makers(ann, bob):
    cron = ann.crons.create("agent", schedule="0 0 1 1 *", input={})
    cron_id = cron["cron_id"]

    assert cron["user_id"] == "ann"
    assert [c["cron_id"] for c in ann.crons.search(limit=1000)].count(cron_id) == 1
    assert [c["cron_id"] for c in bob.crons.search(limit=1000)].count(cron_id) == 0
    assert status(bob.crons.update, cron_id, schedule="* * * * *") == 404
    assert status(bob.crons.delete, cron_id) == 404
    ann.crons.delete(cron_id)


def test_a_cron_on_anothers_thread_is_refused(bob, done):
    assert status(bob.crons.create_for_thread, done[0], "agent", schedule="0 0 1 1 *") == 404


def test_each_user_has_a_corner_of_the_store(ann, bob):
    ann.store.put_item(["notes"], "k", {"of": "ann"})
    bob.store.put_item(["notes"], "k", {"of": "bob"})

    mine, his = ann.store.get_item(["notes"], "k"), bob.store.get_item(["notes"], "k")

    assert (mine["value"], his["value"]) == ({"of": "ann"}, {"of": "bob"})
    assert mine["namespace"] == ["ann", "notes"]


def test_searching_the_store_stays_in_ones_corner(ann, bob):
    mark = uuid4().hex
    ann.store.put_item([mark], "k", {"of": "ann"})

    assert [i["value"] for i in ann.store.search_items([mark])["items"]] == [{"of": "ann"}]
    assert bob.store.search_items([mark])["items"] == []
    assert all(n[0] == "bob" for n in bob.store.list_namespaces()["namespaces"])


def test_deleting_from_the_store_stays_in_ones_corner(ann, bob):
    ann.store.put_item(["kept"], "k", {"of": "ann"})

    bob.store.delete_item(["kept"], "k")

    assert ann.store.get_item(["kept"], "k")["value"] == {"of": "ann"}
