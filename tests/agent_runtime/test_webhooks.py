"""Webhooks, from the end of a run to a real receiver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from apps.agent_server import run_state_sql
from apps.agent_server.models import AgentRun, WebhookDelivery, WebhookSecret
from apps.agent_server.run_state_sql import End
from apps.agent_server.services import deliveries, webhooks
from apps.agent_server.services.cancel_runs import _execute_all as perform
from apps.agent_server.webhooks import delivery_worker
from apps.core import secrets
from apps.deployments.models import EnvironmentVariable
from apps.deployments.services.environment import encrypt_variables
from tests.agent_runtime.factories import make_run, make_thread
from tests.installation import wait_until
from tests.receiver import Receiver

ITEM = {"items": ["first"]}
OPEN = {"webhooks": {"url": {"disable_loopback": False}}}


@pytest.fixture(autouse=True)
def posted(settings, monkeypatch, transactional_db) -> Iterator[None]:
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
def ended(revision, configure) -> Callable[..., AgentRun]:
    """Ends a run, as services do, whose webhook goes to the address."""

    def ended(url: str, **fields: Any) -> AgentRun:
        thread = make_thread(revision)
        run = make_run(thread, "collect", kwargs={"webhook": url, "input": ITEM}, **fields)
        end = End(run.pk, 0, "pending", "interrupted", run_state_sql.CANCELLED, "interrupted")
        perform(run_state_sql.end([end]))
        return run

    return ended


def settled(run: AgentRun) -> WebhookDelivery:
    """The delivery, once nothing more happens to it."""

    def is_settled() -> bool:
        delivery_worker.wake()
        row = WebhookDelivery.unscoped.get(run_id=run.pk)
        return row.status in {"delivered", "given_up"}

    wait_until(is_settled, "the end of a webhook", seconds=30)
    return WebhookDelivery.unscoped.get(run_id=run.pk)


def test_a_run_tells_its_end_with_everything_about_it(
    engine, revision, configure, receiver, listen
):
    thread = make_thread(revision)
    kwargs = {"input": ITEM, "webhook": receiver.url}
    run = make_run(thread, "collect", kwargs=kwargs, metadata={"a": "b"})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    got = receiver.next()

    run.refresh_from_db()
    told = got.json()
    assert got.path == "/hook"
    assert got.headers["content-type"] == "application/json"
    assert told.pop("webhook_sent_at") >= told["run_ended_at"]
    assert told == {
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
    row = settled(run)
    assert (row.status, row.attempts, row.response_status) == ("delivered", 1, 200)
    assert row.payload is None


def test_a_failed_run_tells_its_error(engine, revision, configure, receiver):
    thread = make_thread(revision)
    kwargs = {"input": {"answer": "?"}, "webhook": receiver.url}
    make_run(thread, "fail", kwargs=kwargs)

    engine.call(engine.engine.claim_or_queue, thread.pk)

    told = receiver.next().json()
    assert told["status"] == "error"
    assert told["error"] == {"error": "LookupError", "message": "no such city"}


def test_a_run_that_asks_is_a_success_without_its_questions(engine, revision, configure, receiver):
    thread = make_thread(revision)
    make_run(thread, "ask", kwargs={"input": {"answer": ""}, "webhook": receiver.url})

    engine.call(engine.engine.claim_or_queue, thread.pk)

    told = receiver.next().json()
    assert told["status"] == "success"
    assert told["values"] == {"answer": ""}
    assert not {"error", "interrupts"} & told.keys()


def test_a_run_cancelled_while_it_waits_tells_so(ended, receiver):
    run = ended(receiver.url)

    row = settled(run)

    told = receiver.next().json()
    assert row.status == "delivered"
    assert (told["status"], told["run_started_at"], told["values"]) == ("interrupted", None, None)
    assert told["error"] == {"error": "UserInterrupt", "message": "The run was cancelled."}


def test_values_are_those_of_the_end_whatever_happens_later(ended, receiver, revision):
    thread = make_thread(revision, values={"then": 1})
    run = make_run(thread, "collect", kwargs={"webhook": receiver.url})
    perform(run_state_sql.end([End(run.pk, 0, "pending", "success", None, "idle")]))
    type(thread).unscoped.update(values={"later": 2})
    run.delete()

    delivery_worker.wake()

    assert receiver.next().json()["values"] == {"then": 1}


def test_a_run_without_webhook_leaves_nothing(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs={"input": {"items": ['"webhook": "http://x"']}})

    engine.call(engine.engine.claim_or_queue, thread.pk)
    list(listen(run.pk))

    assert not WebhookDelivery.unscoped.exists()


def test_telling_twice_of_one_end_makes_one_webhook(ended, receiver):
    run = ended(receiver.url)

    webhooks.add_due([run.pk])

    assert WebhookDelivery.unscoped.filter(run_id=run.pk).count() == 1


def test_signatures_are_those_of_the_standard(ended, receiver, revision):
    run = ended(receiver.url)
    row = settled(run)

    got = receiver.next()
    assert got.headers["webhook-id"] == f"msg_{row.pk}"
    assert got.is_signed_with(webhooks.get_secret(revision.deployment).text)
    assert not got.is_signed_with("whsec_" + "A" * 43 + "=")
    kept = WebhookSecret.unscoped.get().secret
    assert b"whsec_" not in bytes(kept)
    assert secrets.decrypt(kept).startswith("whsec_")


def test_a_replaced_secret_signs_for_a_day_more(ended, receiver, revision):
    deployment = revision.deployment
    old = webhooks.get_secret(deployment)
    new = webhooks.replace_secret(deployment=deployment)
    settled(ended(receiver.url))

    got = receiver.next()
    assert got.is_signed_with(old.text)
    assert got.is_signed_with(new.text)

    WebhookSecret.unscoped.update(replaced_at=F("replaced_at") - timedelta(days=1, seconds=1))
    settled(ended(receiver.url))
    got = receiver.next()
    assert not got.is_signed_with(old.text)
    assert got.is_signed_with(new.text)


def test_what_fails_is_sent_again_under_the_same_id(ended):
    with Receiver(500, 429, 302, 200) as receiver:
        run = ended(receiver.url)
        row = settled(run)
        got = [receiver.next() for _ in range(4)]

    assert {one.headers["webhook-id"] for one in got} == {f"msg_{row.pk}"}
    assert (row.status, row.attempts, row.response_status) == ("delivered", 4, 200)
    assert [(entry["status"], entry["error"]) for entry in row.log] == [
        (500, "The answer was 500."),
        (429, "The answer was 429."),
        (302, "The answer was 302: redirects are not followed."),
        (200, None),
    ]


def test_a_receiver_that_never_takes_it_is_given_up(ended):
    with Receiver(503) as receiver:
        row = settled(ended(receiver.url))
        assert receiver.count_unread == 9

    assert (row.status, row.attempts, row.last_error) == ("given_up", 9, "The answer was 503.")
    assert row.payload is None


def test_a_receiver_that_is_gone_is_asked_once(ended):
    with Receiver(410) as receiver:
        row = settled(ended(receiver.url))

    assert (row.status, row.attempts, row.response_status) == ("given_up", 1, 410)


def test_pauses_grow_and_heed_the_receiver(ended, monkeypatch):
    monkeypatch.setattr(deliveries, "RETRY_SECONDS", (1, 5, 30))
    with Receiver(503, headers={"Retry-After": "120"}) as receiver:
        run = ended(receiver.url)
        before = timezone.now()
        delivery_worker.wake()
        receiver.next()
        rows = WebhookDelivery.unscoped.filter(run_id=run.pk)
        wait_until(lambda: rows.filter(status="due", attempts=1).exists(), "the first attempt")

    assert timedelta(seconds=119) < rows.get().due_at - before < timedelta(seconds=150)


def test_nobody_at_the_address(ended):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    row = settled(ended(f"http://127.0.0.1:{port}/"))

    assert (row.status, row.response_status) == ("given_up", None)
    assert row.last_error == "No connection: Connection refused."


def test_who_answers_no_http_is_told_apart(ended):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            # It waits for more connections than come, until the server is closed.
            with suppress(OSError):
                for _ in range(9):
                    connection, _ = server.accept()
                    with connection:
                        connection.settimeout(30)
                        connection.recv(65_536)
                        connection.sendall(b"SSH-2.0-x\r\n")

        server.settimeout(30)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        row = settled(ended(f"http://127.0.0.1:{server.getsockname()[1]}/"))
        thread.join(10)

    assert row.last_error.startswith("The answer is not HTTP:")


def test_rules_are_asked_again_when_it_is_sent(ended, receiver, configure):
    run = ended(receiver.url)
    configure(webhooks={})

    row = settled(run)

    assert (row.status, row.attempts, receiver.count_unread) == ("given_up", 1, 0)
    assert row.last_error == (
        "Webhook host blocked: 127.0.0.1 is on this machine or on a private network."
    )


def test_a_name_that_leads_inside_by_now_is_not_followed(ended, receiver, configure, monkeypatch):
    run = ended(f"http://rebound.example:{receiver.port}/")
    configure(webhooks={})
    real = socket.getaddrinfo

    def look_up(host, *args, **more):
        return real("127.0.0.1" if host == "rebound.example" else host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    row = settled(run)

    assert (row.status, receiver.count_unread) == ("given_up", 0)
    assert "rebound.example is on this machine" in row.last_error


def test_an_agent_that_switched_webhooks_off_sends_none(ended, receiver, configure):
    run = ended(receiver.url)
    configure(http={"disable_webhooks": True})

    row = settled(run)

    assert (row.status, receiver.count_unread) == ("given_up", 0)
    assert row.last_error == deliveries.WEBHOOKS_DISABLED


def test_headers_of_the_agent_with_its_variables(ended, receiver, configure, revision):
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
    row = settled(ended(receiver.url))

    got = receiver.next().headers
    assert got["authorization"] == "Bearer s3cret"
    assert got["x-where"] == "here!"
    assert got["x-none"] == ""
    assert got["content-type"] == "application/json"
    assert got["webhook-id"] == f"msg_{row.pk}"


def test_a_sender_that_dies_leaves_it_to_others(ended, receiver):
    run = ended(receiver.url)
    [taken] = deliveries.claim(10)
    assert deliveries.claim(10) == []

    WebhookDelivery.unscoped.update(due_at=timezone.now())
    [again] = deliveries.claim(10)

    assert (taken.id, taken.attempt, again.attempt) == (again.id, 1, 2)
    outcome = deliveries.DeliveryResult(500, "The answer was 500.")
    deliveries.record(taken, outcome, 0.1)
    row = WebhookDelivery.unscoped.get(run_id=run.pk)
    assert (row.status, row.log) == ("sending", [])
    deliveries.record(again, deliveries.DeliveryResult(200), 0.1)
    assert settled(run).status == "delivered"


def test_an_agent_with_slow_receivers_leaves_places_to_others(ended, receiver, monkeypatch):
    monkeypatch.setattr(delivery_worker, "MAX_CONCURRENT_PER_AGENT", 3)
    monkeypatch.setattr(delivery_worker, "BATCH_SIZE", 3)
    gate = threading.Event()
    with Receiver() as slow:
        slow.hold = lambda: gate.wait(30) or None
        for _ in range(6):
            ended(slow.url)
        delivery_worker.wake()
        for _ in range(3):
            slow.next()

        claimed = deliveries.claim(10, [WebhookDelivery.unscoped.first().deployment_id])
        assert claimed == []
        assert slow.count_unread == 0
        gate.set()
        for _ in range(3):
            slow.next()


def test_the_log_is_forgotten_after_a_while(ended, receiver, settings):
    settled(ended(receiver.url))
    assert deliveries.delete_old() == 0

    old = timezone.now() - timedelta(days=settings.WEBHOOK_LOG_DAYS, seconds=1)
    WebhookDelivery.unscoped.update(created_at=old)

    assert deliveries.delete_old() == 1
    assert not WebhookDelivery.unscoped.exists()
