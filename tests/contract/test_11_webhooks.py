"""Section 11.2: webhooks of runs, received by a real HTTP server."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import APIStatusError

from tests.contract.deployment import WEBHOOK_TOKEN
from tests.receiver import Receiver

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
def default_client(client):
    """The client of an agent without webhook rules."""
    return client


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def thread_id(store_client):
    return store_client.threads.create()["thread_id"]


def new_namespace():
    return [f"w{uuid4().hex}"]


def wait_for_delivery(store_raw, run, *, on_thread=True):
    """Wait until the webhook of the run is delivered or given up, and return it."""
    thread_path = f"/threads/{run['thread_id']}" if on_thread else ""
    deadline = time.monotonic() + 120
    while True:
        response = store_raw.get(f"{thread_path}/runs/{run['run_id']}/webhooks")
        assert response.status_code == 200, response.text
        webhooks = response.json()
        if webhooks and webhooks[0]["status"] in {"delivered", "given_up"}:
            [webhook] = webhooks
            return webhook
        assert time.monotonic() < deadline, webhooks
        time.sleep(0.05)


# Payload


def test_a_finished_run_sends_its_values(store_client, thread_id, receiver):
    run_input = {"namespace": new_namespace(), "keep": {"k": {"text": "tea"}}}
    run = store_client.runs.create(
        thread_id, "notes", input=run_input, webhook=receiver.url, metadata={"mine": "yes"}
    )

    payload = receiver.next().json()

    ended = store_client.runs.get(thread_id, run["run_id"])
    state = store_client.threads.get_state(thread_id)
    assert payload.keys() >= RUN_FIELDS
    assert {name: payload[name] for name in RUN_FIELDS - {"updated_at"}} == {
        name: ended[name] for name in RUN_FIELDS - {"updated_at"}
    }
    assert payload["status"] == "success"
    assert payload["metadata"]["mine"] == "yes"
    assert payload["values"] == state["values"]
    assert "error" not in payload
    times = [payload[f"{name}_at"] for name in ("run_started", "run_ended", "webhook_sent")]
    assert [datetime.fromisoformat(text) for text in times] == sorted(
        datetime.fromisoformat(text) for text in times
    )


def test_an_interrupted_run_sends_success(store_client, thread_id, receiver):
    store_client.runs.create(thread_id, "ask", input={"text": "?"}, webhook=receiver.url)

    payload = receiver.next().json()

    assert (payload["status"], payload["values"]) == ("success", {"text": "?"})
    assert not {"error", "interrupts", "__interrupt__"} & payload.keys()


def test_a_failed_run_sends_its_error(store_client, thread_id, receiver):
    store_client.runs.create(thread_id, "fail", input={"text": ""}, webhook=receiver.url)

    payload = receiver.next().json()

    assert payload["status"] == "error"
    assert payload["error"] == {"error": "LookupError", "message": "no such city"}


def test_a_cancelled_run_sends_interrupted(store_client, thread_id, receiver):
    run = store_client.runs.create(thread_id, "nap", input={"text": ""}, webhook=receiver.url)
    while store_client.runs.get(thread_id, run["run_id"])["status"] != "running":
        time.sleep(0.01)

    store_client.runs.cancel(thread_id, run["run_id"], wait=True)

    payload = receiver.next().json()
    assert payload["status"] == "interrupted"
    assert payload["error"]["error"] == "UserInterrupt"


def test_a_run_cancelled_before_its_start_sends_interrupted(store_client, thread_id, receiver):
    run = store_client.runs.create(
        thread_id,
        "notes",
        input={"namespace": new_namespace()},
        webhook=receiver.url,
        after_seconds=3600,
    )

    store_client.runs.cancel(thread_id, run["run_id"])

    payload = receiver.next().json()
    assert (payload["status"], payload["run_started_at"]) == ("interrupted", None)


@pytest.mark.parametrize("method", ["wait", "stream"])
def test_a_run_with_a_waiting_client_sends_its_webhook(store_client, thread_id, receiver, method):
    options = {"input": {"namespace": new_namespace()}, "webhook": receiver.url}
    result = getattr(store_client.runs, method)(thread_id, "notes", **options)
    if method == "stream":
        list(result)

    assert receiver.next().json()["thread_id"] == thread_id


def test_a_stateless_run_sends_its_values(store_client, store_raw, receiver):
    run = store_client.runs.create(
        None,
        "notes",
        input={"namespace": new_namespace(), "keep": {"k": {"n": 1}}},
        webhook=receiver.url,
    )

    payload = receiver.next().json()

    assert payload["run_id"] == run["run_id"]
    assert payload["values"]["items"] == [["k", {"n": 1}, None]]
    assert wait_for_delivery(store_raw, run, on_thread=False)["status"] == "delivered"


def test_each_run_of_a_batch_sends_its_webhook(store_client, receiver):
    body = {
        "assistant_id": "notes",
        "input": {"namespace": new_namespace()},
        "webhook": receiver.url,
    }
    runs = store_client.runs.create_batch([body, body, body])

    run_ids = {receiver.next().json()["run_id"] for _ in runs}

    assert run_ids == {run["run_id"] for run in runs}


def test_a_run_sends_its_webhook_once(store_client, store_raw, thread_id, receiver):
    run = store_client.runs.create(
        thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
    )
    receiver.next()

    assert wait_for_delivery(store_raw, run)["attempts"] == 1
    assert receiver.count_unread == 0


# Headers


def test_a_webhook_has_the_headers_of_platform_and_agent(
    store_client, store_raw, thread_id, receiver
):
    run = store_client.runs.create(
        thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
    )

    request = receiver.next()

    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == f"Bearer {WEBHOOK_TOKEN}"
    assert request.headers["x-agent"] == "store"
    assert request.headers["webhook-id"] == wait_for_delivery(store_raw, run)["webhook_id"]
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60


@pytest.fixture
def control_plane(live):
    with httpx.Client(base_url=live.url, headers=live.headers, timeout=60) as client:
        yield client


@pytest.fixture
def secret_path(control_plane):
    page = control_plane.get("/v2/deployments", params={"name_contains": "store"}).json()
    [deployment] = [row for row in page["resources"] if row["name"] == "store"]
    return f"/v2/deployments/{deployment['id']}/webhook-secret"


def test_a_webhook_is_signed_with_the_secret(
    store_client, thread_id, receiver, control_plane, secret_path
):
    secret = control_plane.get(secret_path).json()["secret"]
    store_client.runs.create(
        thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
    )

    request = receiver.next()

    assert secret.startswith("whsec_")
    assert request.is_signed_with(secret)


def test_a_webhook_is_signed_with_the_old_secret_after_a_replacement(
    store_client, thread_id, receiver, control_plane, secret_path
):
    old = control_plane.get(secret_path).json()["secret"]
    replaced = control_plane.post(secret_path).json()
    store_client.runs.create(
        thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
    )

    request = receiver.next()

    assert replaced["secret"] != old
    assert datetime.fromisoformat(replaced["previous_signs_until"])
    assert request.is_signed_with(replaced["secret"])
    assert request.is_signed_with(old)


def test_the_secret_is_not_read_without_a_key(control_plane, secret_path):
    assert httpx.get(f"{control_plane.base_url}{secret_path}").status_code == 401


def test_a_custom_route_receives_the_webhook(store_client, store_raw, thread_id):
    mark = uuid4().hex
    run = store_client.runs.create(
        thread_id,
        "notes",
        input={"namespace": new_namespace()},
        webhook="/done",
        metadata={"mark": mark},
    )

    assert wait_for_delivery(store_raw, run)["status"] == "delivered"
    [payload] = [
        stored["body"]
        for stored in store_raw.get("/done").json()
        if stored["body"]["metadata"].get("mark") == mark
    ]
    assert payload["run_id"] == run["run_id"]


# Retries and the log


def test_a_failed_delivery_is_retried(store_client, store_raw, thread_id):
    with Receiver(500, 200) as receiver:
        run = store_client.runs.create(
            thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
        )
        first, second = receiver.next(), receiver.next()

    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    webhook = wait_for_delivery(store_raw, run)
    assert (webhook["status"], webhook["attempts"], webhook["response_status"]) == (
        "delivered",
        2,
        200,
    )
    assert [entry["status"] for entry in webhook["log"]] == [500, 200]
    assert webhook["log"][0]["error"] == "The receiver responded with status 500."


def test_redirects_are_not_followed(store_client, store_raw, thread_id, receiver):
    with Receiver(302, 410, headers={"Location": receiver.url}) as first:
        run = store_client.runs.create(
            thread_id, "notes", input={"namespace": new_namespace()}, webhook=first.url
        )
        webhook = wait_for_delivery(store_raw, run)

    assert webhook["status"] == "given_up"
    assert [entry["status"] for entry in webhook["log"]] == [302, 410]
    assert receiver.count_unread == 0


def test_the_log_names_the_next_attempt(store_client, store_raw, thread_id):
    with Receiver(503, headers={"Retry-After": "600"}) as receiver:
        run = store_client.runs.create(
            thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
        )
        receiver.next()
        deadline = time.monotonic() + 120
        while True:
            [delivery] = store_raw.get(f"/threads/{thread_id}/runs/{run['run_id']}/webhooks").json()
            if delivery["log"]:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert delivery["status"] == "due"
    assert delivery["last_error"] == "The receiver responded with status 503."
    wait = datetime.fromisoformat(delivery["next_attempt_at"]).timestamp() - time.time()
    assert 500 < wait < 800


def test_a_run_without_webhook_has_an_empty_log(store_client, store_raw, thread_id):
    store_client.runs.wait(thread_id, "notes", input={"namespace": new_namespace()})
    [run] = store_client.runs.list(thread_id)

    assert store_raw.get(f"/threads/{thread_id}/runs/{run['run_id']}/webhooks").json() == []


def test_other_agents_and_anonymous_callers_read_no_log(  # noqa: PLR0917
    store_raw, default_client, store_client, live, thread_id, receiver
):
    run = store_client.runs.create(
        thread_id, "notes", input={"namespace": new_namespace()}, webhook=receiver.url
    )
    wait_for_delivery(store_raw, run)
    path = f"/threads/{thread_id}/runs/{run['run_id']}/webhooks"
    other_url = str(default_client.http.client.base_url).rstrip("/")

    assert httpx.get(f"{other_url}{path}", headers=live.headers).json() == []
    assert httpx.get(f"{store_raw.base_url}{path[1:]}").status_code == 401


# Allowed addresses


def rejection(client, webhook, **options):
    thread_id = client.threads.create()["thread_id"]
    graph = options.pop("graph", "steps")
    with pytest.raises(APIStatusError) as caught:
        client.runs.create(thread_id, graph, input={}, webhook=webhook)
    assert client.runs.list(thread_id) == []
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
def test_a_private_or_invalid_address_is_rejected(default_client, webhook):
    assert "Webhook host blocked: " in rejection(default_client, webhook)


def test_a_private_address_is_rejected_by_every_route_that_creates_runs(default_client, live):
    base = str(default_client.http.client.base_url).rstrip("/")
    thread_id = default_client.threads.create()["thread_id"]
    body = {"assistant_id": "steps", "input": {}, "webhook": "http://127.0.0.1/x"}
    for path in (
        f"/threads/{thread_id}/runs",
        f"/threads/{thread_id}/runs/wait",
        f"/threads/{thread_id}/runs/stream",
        "/runs",
        "/runs/wait",
        "/runs/stream",
    ):
        response = httpx.post(f"{base}{path}", json=body, headers=live.headers, timeout=60)
        assert response.status_code == 422, path
        assert response.json()["detail"].startswith("Webhook host blocked: ")

    batch = httpx.post(f"{base}/runs/batch", json=[body], headers=live.headers, timeout=60)
    assert batch.status_code == 422
    cron = {**body, "schedule": "0 0 1 1 *"}
    response = httpx.post(f"{base}/runs/crons", json=cron, headers=live.headers, timeout=60)
    assert response.status_code == 422


@pytest.mark.parametrize("webhook", [5, {"url": "x"}, ["x"]])
def test_a_webhook_that_is_not_a_string_is_rejected(default_client, live, webhook):
    base = str(default_client.http.client.base_url).rstrip("/")
    body = {"assistant_id": "steps", "webhook": webhook}
    response = httpx.post(f"{base}/runs", json=body, headers=live.headers, timeout=60)

    assert response.status_code == 422


def test_a_path_outside_the_agent_is_rejected(store_client):
    assert "leads outside" in rejection(store_client, "/../contract/threads", graph="notes")
