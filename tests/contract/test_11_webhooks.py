"""Section 11.2: webhooks of runs, got by a real receiver."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import APIStatusError

from tests.contract.memory import TOKEN, deployed
from tests.installation import wait_until
from tests.receiver import Receiver
from tests.response_deadline import with_deadline

RUN_FIELDS = {
    "run_id",
    "thread_id",
    "assistant_id",
    "created_at",
    "updated_at",
    "status",
    "metadata",
    "kwargs",
    "multitask_strategy",
}


@pytest.fixture(scope="module")
def url(live):
    return deployed(live)


@pytest.fixture(scope="module")
def sdk(live, url):
    with with_deadline(get_sync_client(url=url, api_key=live.api_key, timeout=60)) as client:
        yield client


@pytest.fixture(scope="module")
def strict(client):
    """The client of an agent that has no rules for webhooks of its own."""
    return client


@pytest.fixture(scope="module")
def raw(live, url):
    with httpx.Client(base_url=url, headers=live.headers, timeout=60) as client:
        yield client


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def thread(sdk):
    return sdk.threads.create()["thread_id"]


def place():
    return [f"w{uuid4().hex}"]


def settled(raw, run, *, on_thread=True):
    """The run's webhook, once nothing more happens to it."""
    thread = f"/threads/{run['thread_id']}" if on_thread else ""
    deadline = time.monotonic() + 60
    while True:
        answer = raw.get(f"{thread}/runs/{run['run_id']}/webhooks")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        if found and found[0]["status"] in {"delivered", "given_up"}:
            [one] = found
            return one
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


# What is told


def test_a_run_tells_its_end(sdk, thread, receiver):
    asked = {"place": place(), "keep": {"k": {"text": "tea"}}}
    run = sdk.runs.create(
        thread, "notes", input=asked, webhook=receiver.url, metadata={"mine": "yes"}
    )

    told = receiver.next().json()

    ended = sdk.runs.get(thread, run["run_id"])
    state = sdk.threads.get_state(thread)
    assert told.keys() >= RUN_FIELDS
    assert {name: told[name] for name in RUN_FIELDS - {"updated_at"}} == {
        name: ended[name] for name in RUN_FIELDS - {"updated_at"}
    }
    assert told["status"] == "success"
    assert told["metadata"]["mine"] == "yes"
    assert told["values"] == state["values"]
    assert "error" not in told
    times = [told[f"{name}_at"] for name in ("run_started", "run_ended", "webhook_sent")]
    assert [datetime.fromisoformat(text) for text in times] == sorted(
        datetime.fromisoformat(text) for text in times
    )


def test_a_run_that_waits_for_an_answer_is_a_success(sdk, thread, receiver):
    sdk.runs.create(thread, "ask", input={"text": "?"}, webhook=receiver.url)

    told = receiver.next().json()

    assert (told["status"], told["values"]) == ("success", {"text": "?"})
    assert not {"error", "interrupts", "__interrupt__"} & told.keys()


def test_a_failed_run_tells_its_error(sdk, thread, receiver):
    sdk.runs.create(thread, "fail", input={"text": ""}, webhook=receiver.url)

    told = receiver.next().json()

    assert told["status"] == "error"
    assert told["error"] == {"error": "LookupError", "message": "no such city"}


def test_a_cancelled_run_tells_so(sdk, thread, receiver):
    run = sdk.runs.create(thread, "nap", input={"text": ""}, webhook=receiver.url)

    def is_running() -> bool:
        status = sdk.runs.get(thread, run["run_id"])["status"]
        assert status in {"pending", "running"}
        return status == "running"

    wait_until(is_running, "the start of the run", 60)
    sdk.runs.cancel(thread, run["run_id"], wait=True)

    told = receiver.next().json()
    assert told["status"] == "interrupted"
    assert told["error"]["error"] == "UserInterrupt"


def test_a_run_cancelled_before_it_began_tells_so(sdk, thread, receiver):
    run = sdk.runs.create(
        thread, "notes", input={"place": place()}, webhook=receiver.url, after_seconds=3600
    )

    sdk.runs.cancel(thread, run["run_id"])

    told = receiver.next().json()
    assert (told["status"], told["run_started_at"]) == ("interrupted", None)


@pytest.mark.parametrize("way", ["wait", "stream"])
def test_whoever_waits_for_the_run_the_webhook_is_told_too(sdk, thread, receiver, way):
    more = {"input": {"place": place()}, "webhook": receiver.url}
    answer = getattr(sdk.runs, way)(thread, "notes", **more)
    if way == "stream":
        list(answer)

    assert receiver.next().json()["thread_id"] == thread


def test_a_stateless_run_tells_its_end_with_values(sdk, raw, receiver):
    run = sdk.runs.create(
        None, "notes", input={"place": place(), "keep": {"k": {"n": 1}}}, webhook=receiver.url
    )

    told = receiver.next().json()

    assert told["run_id"] == run["run_id"]
    assert told["values"]["found"] == [["k", {"n": 1}, None]]
    assert settled(raw, run, on_thread=False)["status"] == "delivered"


def test_runs_of_a_batch_tell_each_their_own(sdk, receiver):
    body = {"assistant_id": "notes", "input": {"place": place()}, "webhook": receiver.url}
    runs = sdk.runs.create_batch([body, body, body])

    told = {receiver.next().json()["run_id"] for _ in runs}

    assert told == {run["run_id"] for run in runs}


def test_one_post_per_run(sdk, raw, thread, receiver):
    run = sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)
    receiver.next()

    assert settled(raw, run)["attempts"] == 1
    assert receiver.count_unread == 0


# How it is told


def test_headers_of_the_platform_and_of_the_agent(sdk, raw, thread, receiver):
    run = sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)

    got = receiver.next()

    assert got.headers["content-type"] == "application/json"
    assert got.headers["authorization"] == f"Bearer {TOKEN}"
    assert got.headers["x-agent"] == "store"
    assert got.headers["webhook-id"] == settled(raw, run)["webhook_id"]
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60


@pytest.fixture
def control(live):
    with httpx.Client(base_url=live.url, headers=live.headers, timeout=60) as client:
        yield client


@pytest.fixture
def secret_path(control):
    found = control.get("/v2/deployments", params={"name_contains": "store"}).json()
    [deployment] = [one for one in found["resources"] if one["name"] == "store"]
    return f"/v2/deployments/{deployment['id']}/webhook-secret"


def test_signatures_can_be_checked(sdk, thread, receiver, control, secret_path):
    secret = control.get(secret_path).json()["secret"]
    sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)

    got = receiver.next()

    assert secret.startswith("whsec_")
    assert got.is_signed_with(secret)


def test_a_new_secret_and_the_old_one_sign_together_at_first(
    sdk, thread, receiver, control, secret_path
):
    old = control.get(secret_path).json()["secret"]
    replaced = control.post(secret_path).json()
    sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)

    got = receiver.next()

    assert replaced["secret"] != old
    assert datetime.fromisoformat(replaced["previous_signs_until"])
    assert got.is_signed_with(replaced["secret"])
    assert got.is_signed_with(old)


def test_the_secret_is_not_for_everybody(control, secret_path):
    assert httpx.get(f"{control.base_url}{secret_path}").status_code == 401


def test_an_own_route_gets_it_too(sdk, raw, thread):
    mark = uuid4().hex
    run = sdk.runs.create(
        thread, "notes", input={"place": place()}, webhook="/done", metadata={"mark": mark}
    )

    assert settled(raw, run)["status"] == "delivered"
    [told] = [
        kept["body"]
        for kept in raw.get("/done").json()
        if kept["body"]["metadata"].get("mark") == mark
    ]
    assert told["run_id"] == run["run_id"]


# Retries and the log


def test_what_fails_is_sent_again(sdk, raw, thread):
    with Receiver(500, 200) as receiver:
        run = sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)
        first, second = receiver.next(), receiver.next()

    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    found = settled(raw, run)
    assert (found["status"], found["attempts"], found["response_status"]) == ("delivered", 2, 200)
    assert [entry["status"] for entry in found["log"]] == [500, 200]
    assert found["log"][0]["error"] == "The answer was 500."


def test_redirects_are_not_followed(sdk, raw, thread, receiver):
    with Receiver(302, 410, headers={"Location": receiver.url}) as first:
        run = sdk.runs.create(thread, "notes", input={"place": place()}, webhook=first.url)
        found = settled(raw, run)

    assert found["status"] == "given_up"
    assert [entry["status"] for entry in found["log"]] == [302, 410]
    assert receiver.count_unread == 0


def test_the_log_says_what_is_next(sdk, raw, thread):
    with Receiver(503, headers={"Retry-After": "600"}) as receiver:
        run = sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)
        receiver.next()
        deadline = time.monotonic() + 60
        while True:
            [found] = raw.get(f"/threads/{thread}/runs/{run['run_id']}/webhooks").json()
            if found["log"]:
                break
            assert time.monotonic() < deadline

    assert found["status"] == "due"
    assert found["last_error"] == "The answer was 503."
    wait = datetime.fromisoformat(found["next_attempt_at"]).timestamp() - time.time()
    assert 500 < wait < 800


def test_a_run_without_webhook_has_an_empty_log(sdk, raw, thread):
    sdk.runs.wait(thread, "notes", input={"place": place()})
    [run] = sdk.runs.list(thread)

    assert raw.get(f"/threads/{thread}/runs/{run['run_id']}/webhooks").json() == []


def test_the_log_is_not_for_other_agents(  # noqa: PLR0917
    raw, strict, sdk, live, thread, receiver
):
    run = sdk.runs.create(thread, "notes", input={"place": place()}, webhook=receiver.url)
    settled(raw, run)
    path = f"/threads/{thread}/runs/{run['run_id']}/webhooks"
    other = str(strict.http.client.base_url).rstrip("/")

    assert httpx.get(f"{other}{path}", headers=live.headers).json() == []
    assert httpx.get(f"{raw.base_url}{path[1:]}").status_code == 401


# Where it may go


def refused(client, webhook, **more):
    thread = client.threads.create()["thread_id"]
    graph = more.pop("graph", "steps")
    with pytest.raises(APIStatusError) as caught:
        client.runs.create(thread, graph, input={}, webhook=webhook)
    assert client.runs.list(thread) == []
    assert caught.value.status_code == 422
    return str(caught.value)


@pytest.mark.parametrize(
    "webhook",
    [
        "http://127.0.0.1:8000/x",
        "http://localhost/x",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://0x7f000001/",
        "/done",
        "ftp://example.com/",
        "not an address",
        "",
    ],
)
def test_addresses_that_are_refused(strict, webhook):
    assert "Webhook host blocked: " in refused(strict, webhook)


def test_refused_wherever_runs_are_made(strict, live):
    base = str(strict.http.client.base_url).rstrip("/")
    thread = strict.threads.create()["thread_id"]
    body = {"assistant_id": "steps", "input": {}, "webhook": "http://127.0.0.1/x"}
    for path in (
        f"/threads/{thread}/runs",
        f"/threads/{thread}/runs/wait",
        f"/threads/{thread}/runs/stream",
        "/runs",
        "/runs/wait",
        "/runs/stream",
    ):
        answer = httpx.post(f"{base}{path}", json=body, headers=live.headers, timeout=60)
        assert answer.status_code == 422, path
        assert answer.json()["detail"].startswith("Webhook host blocked: ")

    batch = httpx.post(f"{base}/runs/batch", json=[body], headers=live.headers, timeout=60)
    assert batch.status_code == 422
    cron = {**body, "schedule": "0 0 1 1 *"}
    answer = httpx.post(f"{base}/runs/crons", json=cron, headers=live.headers, timeout=60)
    assert answer.status_code == 422


@pytest.mark.parametrize("webhook", [5, {"url": "x"}, ["x"]])
def test_what_is_no_text_is_refused(strict, live, webhook):
    base = str(strict.http.client.base_url).rstrip("/")
    body = {"assistant_id": "steps", "webhook": webhook}
    answer = httpx.post(f"{base}/runs", json=body, headers=live.headers, timeout=60)

    assert answer.status_code == 422


def test_own_routes_do_not_lead_out_of_the_agent(sdk):
    assert "leads out" in refused(sdk, "/../contract/threads", graph="notes")
