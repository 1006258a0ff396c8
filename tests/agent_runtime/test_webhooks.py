"""Webhooks, from the end of a run to the request at a real receiver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone
from psycopg import AsyncConnection, OperationalError

from apps.agent_server import recovery, run_state_sql
from apps.agent_server.a2a import statements as a2a_statements
from apps.agent_server.a2a.statements import TASK_KEY
from apps.agent_server.models import (
    A2APushConfig,
    A2ATask,
    AgentRun,
    WebhookDelivery,
    WebhookSecret,
)
from apps.agent_server.run_state_sql import End
from apps.agent_server.services import deliveries, webhooks
from apps.agent_server.services.cancel_runs import _execute_all as execute_all
from apps.agent_server.webhooks import delivery_worker, statements
from apps.core import secrets
from apps.core.ids import uuid7
from apps.deployments.models import EnvironmentVariable
from apps.deployments.services.environment import encrypt_variables
from apps.webhooks import delivery_request
from apps.webhooks import delivery_worker as shared_worker
from apps.webhooks.tasks import delivery_worker as push_worker
from tests.agent_runtime.factories import make_run, make_thread
from tests.installation import wait_until
from tests.receiver import Receiver

ITEM = {"items": ["first"]}
OPEN = {"webhooks": {"url": {"disable_loopback": False}}}


@pytest.fixture(autouse=True)
def fast_deliveries(settings, monkeypatch, transactional_db) -> Iterator[None]:
    settings.ALLOW_LOCAL_WEBHOOKS = True
    monkeypatch.setattr(deliveries, "RETRY_SECONDS", (0.01,) * 8)
    yield
    delivery_worker.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def configure(revision) -> Callable[..., None]:
    def configure(**config: Any) -> None:
        revision.config = {**OPEN, **config}
        revision.save()

    configure()
    return configure


@pytest.fixture
def end_run(revision, configure) -> Callable[..., AgentRun]:
    """Return a function that creates a run with this webhook URL and ends it."""

    def end_run(url: str, **fields: Any) -> AgentRun:
        thread = make_thread(revision)
        run = make_run(thread, "collect", kwargs={"webhook": url, "input": ITEM}, **fields)
        end = End(run.pk, 0, "pending", "interrupted", run_state_sql.CANCELLED_ERROR, "interrupted")
        execute_all(run_state_sql.end([end]))
        return run

    return end_run


def wait_for_delivery(run: AgentRun) -> WebhookDelivery:
    """Wait until the delivery is delivered or given up, and return its row."""

    def is_finished() -> bool:
        delivery_worker.wake()
        row = WebhookDelivery.unscoped.get(run_id=run.pk)
        return row.status in {"delivered", "given_up"}

    wait_until(is_finished, "the end of a webhook")
    return WebhookDelivery.unscoped.get(run_id=run.pk)


def test_the_webhook_of_a_finished_run_has_all_its_fields(
    engine, revision, configure, receiver, listen
):
    thread = make_thread(revision)
    kwargs = {"input": ITEM, "webhook": receiver.url}
    run = make_run(thread, "collect", kwargs=kwargs, metadata={"a": "b"})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    delivered = receiver.next()

    run.refresh_from_db()
    payload = delivered.json()
    assert delivered.path == "/hook"
    assert delivered.headers["content-type"] == "application/json"
    assert payload.pop("webhook_sent_at") >= payload["run_ended_at"]
    assert payload == {
        "run_id": str(run.pk),
        "thread_id": str(thread.thread_id),
        "assistant_id": str(run.assistant_id),
        "status": "success",
        "metadata": {"a": "b"},
        "kwargs": run.kwargs,
        "multitask_strategy": "enqueue",
        "values": ITEM,
        "created_at": run.created_at.isoformat(timespec="microseconds"),
        "updated_at": run.ended_at.isoformat(timespec="microseconds"),
        "run_started_at": run.started_at.isoformat(timespec="microseconds"),
        "run_ended_at": run.ended_at.isoformat(timespec="microseconds"),
    }
    row = wait_for_delivery(run)
    assert (row.status, row.attempts, row.response_status) == ("delivered", 1, 200)
    assert row.payload is None


def test_the_webhook_of_a_failed_run_has_its_error(engine, revision, configure, receiver):
    thread = make_thread(revision)
    kwargs = {"input": {"answer": "?"}, "webhook": receiver.url}
    make_run(thread, "fail", kwargs=kwargs)

    engine.call(engine.engine.claim_or_queue, thread.pk)

    payload = receiver.next().json()
    assert payload["status"] == "error"
    assert payload["error"] == {"error": "LookupError", "message": "no such city"}


def test_the_webhook_of_an_interrupted_run_is_a_success_without_interrupts(
    engine, revision, configure, receiver
):
    thread = make_thread(revision)
    make_run(thread, "ask", kwargs={"input": {"answer": ""}, "webhook": receiver.url})

    engine.call(engine.engine.claim_or_queue, thread.pk)

    payload = receiver.next().json()
    assert payload["status"] == "success"
    assert payload["values"] == {"answer": ""}
    assert not {"error", "interrupts"} & payload.keys()


def test_webhook_of_a_cancelled_pending_run_has_status_interrupted(end_run, receiver):
    run = end_run(receiver.url)

    row = wait_for_delivery(run)

    payload = receiver.next().json()
    assert row.status == "delivered"
    assert (payload["status"], payload["run_started_at"], payload["values"]) == (
        "interrupted",
        None,
        None,
    )
    assert payload["error"] == {"error": "UserInterrupt", "message": "The run was cancelled."}


def test_the_webhook_has_the_values_at_the_end_of_the_run(end_run, receiver, revision):
    thread = make_thread(revision, values={"then": 1})
    run = make_run(thread, "collect", kwargs={"webhook": receiver.url})
    execute_all(run_state_sql.end([End(run.pk, 0, "pending", "success", None, "idle")]))
    type(thread).unscoped.update(values={"later": 2})
    run.delete()

    delivery_worker.wake()

    assert receiver.next().json()["values"] == {"then": 1}


def test_a_run_without_webhook_creates_no_delivery(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs={"input": {"items": ['"webhook": "http://x"']}})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    list(listen(run.pk))

    assert not WebhookDelivery.unscoped.exists()


def test_adding_a_due_webhook_twice_creates_one_delivery(end_run, receiver):
    run = end_run(receiver.url)

    with connection.cursor() as cursor:
        cursor.execute(statements.ADD_DUE, [[run.pk]])

    assert WebhookDelivery.unscoped.filter(run_id=run.pk).count() == 1


def test_signatures_follow_the_standard_webhooks_specification(end_run, receiver, revision):
    run = end_run(receiver.url)
    row = wait_for_delivery(run)

    delivered = receiver.next()
    assert delivered.headers["webhook-id"] == f"msg_{row.pk}"
    assert delivered.is_signed_with(webhooks.create_secret(revision.deployment).text)
    assert not delivered.is_signed_with("whsec_" + "A" * 43 + "=")
    ciphertext = WebhookSecret.unscoped.get().secret
    assert b"whsec_" not in bytes(ciphertext)
    assert secrets.decrypt(ciphertext).startswith("whsec_")


def test_a_replaced_secret_signs_for_another_day(end_run, receiver, revision):
    deployment = revision.deployment
    old = webhooks.create_secret(deployment)
    new = webhooks.replace_secret(deployment=deployment)
    wait_for_delivery(end_run(receiver.url))

    delivered = receiver.next()
    assert delivered.is_signed_with(old.text)
    assert delivered.is_signed_with(new.text)

    WebhookSecret.unscoped.update(replaced_at=F("replaced_at") - timedelta(days=1, seconds=1))
    wait_for_delivery(end_run(receiver.url))
    delivered = receiver.next()
    assert not delivered.is_signed_with(old.text)
    assert delivered.is_signed_with(new.text)


def test_reading_the_secret_does_not_create_one(revision):
    deployment = revision.deployment
    assert webhooks.get_secret(deployment) == webhooks.create_secret(deployment)
    WebhookSecret.unscoped.all().delete()

    assert webhooks.get_secret(deployment) is None
    assert not WebhookSecret.unscoped.exists()


def test_a_failed_delivery_is_retried_with_the_same_id(end_run):
    with Receiver(500, 429, 302, 200) as receiver:
        run = end_run(receiver.url)
        row = wait_for_delivery(run)
        attempts = [receiver.next() for _ in range(4)]

    assert {attempt.headers["webhook-id"] for attempt in attempts} == {f"msg_{row.pk}"}
    assert (row.status, row.attempts, row.response_status) == ("delivered", 4, 200)
    assert [(entry["status"], entry["error"]) for entry in row.log] == [
        (500, "The receiver responded with status 500."),
        (429, "The receiver responded with status 429."),
        (302, "The receiver responded with status 302; redirects are not followed."),
        (200, None),
    ]


def test_a_delivery_is_given_up_after_nine_failed_attempts(end_run):
    with Receiver(503) as receiver:
        row = wait_for_delivery(end_run(receiver.url))
        assert receiver.count_unread == 9

    assert (row.status, row.attempts, row.last_error) == (
        "given_up",
        9,
        "The receiver responded with status 503.",
    )
    assert row.payload is None


def test_a_receiver_that_answers_gone_gets_one_attempt(end_run):
    with Receiver(410) as receiver:
        row = wait_for_delivery(end_run(receiver.url))

    assert (row.status, row.attempts, row.response_status) == ("given_up", 1, 410)


def test_the_retry_pause_follows_the_retry_after_header(end_run, monkeypatch):
    monkeypatch.setattr(deliveries, "RETRY_SECONDS", (1, 5, 30))
    with Receiver(503, headers={"Retry-After": "120"}) as receiver:
        run = end_run(receiver.url)
        before = timezone.now()
        delivery_worker.wake()
        receiver.next()
        rows = WebhookDelivery.unscoped.filter(run_id=run.pk)
        wait_until(lambda: rows.filter(status="due", attempts=1).exists(), "the first attempt")

    assert timedelta(seconds=119) < rows.get().due_at - before < timedelta(seconds=150)


def test_a_refused_connection_is_recorded_as_the_last_error(end_run):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    row = wait_for_delivery(end_run(f"http://127.0.0.1:{port}/"))

    assert (row.status, row.response_status) == ("given_up", None)
    assert row.last_error == "No connection: Connection refused."


def test_an_answer_that_is_not_http_is_recorded_as_the_last_error(end_run):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(9):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"SSH-2.0-x\r\n")
                    connection.shutdown(socket.SHUT_WR)
                    # Closed with unread parts of the request, the connection would be reset.
                    while connection.recv(65_536):
                        pass

        server.settimeout(30)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        row = wait_for_delivery(end_run(f"http://127.0.0.1:{server.getsockname()[1]}/"))
        thread.join(60)

    assert row.last_error.startswith("The response is not HTTP:")


def test_url_rules_are_checked_again_before_sending(end_run, receiver, configure):
    run = end_run(receiver.url)
    configure(webhooks={})

    row = wait_for_delivery(run)

    assert (row.status, row.attempts, receiver.count_unread) == ("given_up", 1, 0)
    assert row.last_error == (
        "Webhook host blocked: 127.0.0.1 is on this machine or on a private network."
    )


def test_a_host_name_that_now_resolves_to_a_private_address_is_blocked(
    end_run, receiver, configure, monkeypatch
):
    run = end_run(f"http://rebound.example:{receiver.port}/")
    configure(webhooks={})
    real = socket.getaddrinfo

    def resolve_to_loopback(host, *args, **options):
        return real("127.0.0.1" if host == "rebound.example" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_to_loopback)

    row = wait_for_delivery(run)

    assert (row.status, receiver.count_unread) == ("given_up", 0)
    assert "rebound.example is on this machine" in row.last_error


def test_an_agent_with_disabled_webhooks_sends_none(end_run, receiver, configure):
    run = end_run(receiver.url)
    configure(http={"disable_webhooks": True})

    row = wait_for_delivery(run)

    assert (row.status, receiver.count_unread) == ("given_up", 0)
    assert row.last_error == deliveries.WEBHOOKS_DISABLED


def test_configured_headers_get_environment_variables_of_the_agent(
    end_run, receiver, configure, revision
):
    EnvironmentVariable.unscoped.create(
        workspace=revision.workspace,
        deployment=revision.deployment,
        name="LG_WEBHOOK_TOKEN",
        value=secrets.encrypt("s3cret"),
    )
    revision.environment = encrypt_variables(revision.deployment)
    headers = {
        "Authorization": "Bearer ${{ env.LG_WEBHOOK_TOKEN }}",
        "X-Where": "${{ env.LG_WEBHOOK_PLACE }}!",
        "X-None": "${{env.LG_WEBHOOK_NONE}}",
        "Content-Type": "text/plain",
        "Webhook-Id": "mine",
    }
    configure(webhooks={**OPEN["webhooks"], "headers": headers}, env={"LG_WEBHOOK_PLACE": "here"})
    row = wait_for_delivery(end_run(receiver.url))

    sent_headers = receiver.next().headers
    assert sent_headers["authorization"] == "Bearer s3cret"
    assert sent_headers["x-where"] == "here!"
    assert sent_headers["x-none"] == ""
    assert sent_headers["content-type"] == "application/json"
    assert sent_headers["webhook-id"] == f"msg_{row.pk}"


def test_a_delivery_whose_sender_died_is_claimed_again(end_run, receiver):
    run = end_run(receiver.url)
    [first_claim] = deliveries.claim(10)
    assert deliveries.claim(10) == []

    WebhookDelivery.unscoped.update(due_at=timezone.now())
    [second_claim] = deliveries.claim(10)

    assert (first_claim.id, first_claim.attempt, second_claim.attempt) == (second_claim.id, 1, 2)
    result = deliveries.DeliveryResult(500, "The receiver responded with status 500.")
    deliveries.record(first_claim, result, 0.1)
    row = WebhookDelivery.unscoped.get(run_id=run.pk)
    assert (row.status, row.log) == ("sending", [])
    deliveries.record(second_claim, deliveries.DeliveryResult(200), 0.1)
    assert wait_for_delivery(run).status == "delivered"


def test_an_agent_with_slow_receivers_is_limited_to_its_concurrency(end_run, receiver, monkeypatch):
    monkeypatch.setattr(shared_worker, "MAX_CONCURRENT_PER_GROUP", 3)
    monkeypatch.setattr(shared_worker, "BATCH_SIZE", 3)
    gate = threading.Event()
    with Receiver() as slow:
        slow.hold = lambda: gate.wait(120) or None
        for _ in range(6):
            end_run(slow.url)
        delivery_worker.wake()
        for _ in range(3):
            slow.next()

        claimed = deliveries.claim(10, [WebhookDelivery.unscoped.first().deployment_id])
        assert claimed == []
        assert slow.count_unread == 0
        gate.set()
        for _ in range(3):
            slow.next()


def test_an_organization_with_slow_receivers_is_limited_over_all_its_agents(
    end_run, receiver, monkeypatch
):
    monkeypatch.setattr(shared_worker, "MAX_CONCURRENT_PER_OWNER", 3)
    monkeypatch.setattr(shared_worker, "BATCH_SIZE", 3)
    gate = threading.Event()
    with Receiver() as slow:
        slow.hold = lambda: gate.wait(120) or None
        for _ in range(6):
            end_run(slow.url)
        delivery_worker.wake()
        for _ in range(3):
            slow.next()

        organization_id = WebhookDelivery.unscoped.first().workspace.organization_id
        assert deliveries.claim(10, [organization_id]) == []
        assert slow.count_unread == 0
        gate.set()
        for _ in range(3):
            slow.next()


def test_old_deliveries_are_deleted_after_the_retention_period(end_run, receiver, settings):
    wait_for_delivery(end_run(receiver.url))
    assert deliveries.delete_old() == 0

    old = timezone.now() - timedelta(days=settings.WEBHOOK_LOG_DAYS, seconds=1)
    WebhookDelivery.unscoped.update(created_at=old)

    assert deliveries.delete_old() == 1
    assert not WebhookDelivery.unscoped.exists()


@pytest.mark.parametrize("answer", ["9" * 5000, "0" * 5000 + "7200", "99999"])
def test_long_retry_after_delays_the_next_attempt_by_an_hour(end_run, answer):
    with Receiver(503, headers={"Retry-After": answer}) as busy:
        started_at = timezone.now()
        run = end_run(busy.url)
        delivery_worker.wake()
        busy.next()
        rows = WebhookDelivery.unscoped.filter(run_id=run.pk)
        wait_until(lambda: rows.filter(status="due", attempts=1).exists(), "the first attempt")

        row = rows.get()
        assert (row.attempts, row.log[0]["status"]) == (1, 503)
        assert timedelta(minutes=59) < row.due_at - started_at < timedelta(minutes=61)
        assert busy.count_unread == 0


def test_unexpected_failures_of_sending_count_as_attempts(end_run, receiver, monkeypatch):
    async def fail(*_, **__):
        raise RuntimeError("unexpected")

    monkeypatch.setattr(delivery_request, "send", fail)

    row = wait_for_delivery(end_run(receiver.url))

    assert (row.status, row.attempts) == ("given_up", 9)
    assert {entry["error"] for entry in row.log} == {"The webhook could not be sent."}


@pytest.fixture
def make_task(revision, configure, receiver) -> Callable[..., AgentRun]:
    """Return a function that creates a run of an A2A task that the receiver is told of."""

    def make_task(**fields: Any) -> AgentRun:
        thread, task_id = make_thread(revision), uuid7()
        metadata = {TASK_KEY: str(task_id)}
        run = make_run(thread, "collect", kwargs={"input": ITEM}, metadata=metadata, **fields)
        task = A2ATask(
            id=task_id, workspace=thread.workspace, deployment=thread.deployment, thread=thread,
            assistant_id=run.assistant_id, context_id="c", run_id=run.pk,
        )  # fmt: skip
        task.save()
        config = A2APushConfig(
            workspace=thread.workspace, task=task, config_id="p", url=receiver.url
        )
        config.secrets = {"token": "t0ken", "scheme": "", "credentials": ""}
        config.save()
        return run

    return make_task


def receive_updates(receiver: Receiver) -> list[tuple[str, Any]]:
    """The kinds and contents of the notices of a task: two states and an artifact."""
    received = [receiver.next() for _ in range(3)]
    push_worker.stop()
    assert {request.headers["x-a2a-notification-token"] for request in received} == {"t0ken"}
    return [next(iter(request.json().items())) for request in received]


def states_of(updates: list[tuple[str, Any]]) -> set[str]:
    return {update["status"]["state"] for kind, update in updates if kind == "statusUpdate"}


ALL_STATES = {"TASK_STATE_WORKING", "TASK_STATE_COMPLETED"}


def test_the_engine_notifies_clients_of_a2a(engine, make_task, receiver):
    run = make_task()

    engine.call(engine.engine.claim_or_queue, run.thread_id)
    updates = receive_updates(receiver)

    assert states_of(updates) == ALL_STATES
    [artifact] = [update["artifact"] for kind, update in updates if kind == "artifactUpdate"]
    assert artifact["parts"] == [{"data": ITEM}]
    assert {update["taskId"] for _, update in updates} == {run.metadata[TASK_KEY]}


def test_the_notice_of_a_start_survives_a_lost_database_connection(
    engine, make_task, receiver, monkeypatch
):
    run = make_task()
    execute, failures = AsyncConnection.execute, []

    async def fail_once(self: Any, query: Any, *args: Any, **how: Any) -> Any:
        if query == a2a_statements.ADD_PUSHES_OF_STARTED.encode() and not failures:
            failures.append(query)
            await self.close()
            raise OperationalError("the connection is closed")
        return await execute(self, query, *args, **how)

    monkeypatch.setattr(AsyncConnection, "execute", fail_once)
    engine.call(engine.engine.claim_or_queue, run.thread_id)

    assert states_of(receive_updates(receiver)) == ALL_STATES
    assert failures


def test_the_notice_of_a_start_survives_the_engine(engine, make_task, receiver):
    """The engine that claimed the run died before it notified anyone."""
    run = make_task(
        status="running",
        attempt=1,
        lease_owner="dead",
        lease_expires_at=timezone.now() - timedelta(seconds=1),
    )

    recovery.requeue_lost_runs()
    engine.call(engine.engine.claim_or_queue, run.thread_id)

    assert states_of(receive_updates(receiver)) == ALL_STATES
