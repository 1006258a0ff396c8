"""Crons fire once, with concurrent sweeps and after crashes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import DatabaseError, connections, transaction

from apps.agent_server.models import AgentRun, Cron, Thread
from apps.agent_server.schemas.crons import CronChanges, NewCron
from apps.agent_server.scope import Scope
from apps.agent_server.services import cron_firing, crons, delete_threads
from apps.agent_server.services.cron_firing import fire_due
from apps.deployments import routes
from tests.factories.agent_server import AgentRunFactory, ThreadFactory, route_of
from tests.installation import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock():
    with time_machine.travel(NOON, tick=False) as clock:
        yield clock


@pytest.fixture
def scope(agent):
    return Scope(route_of(agent), user={"identity": "ann", "permissions": ["read"]})


def create_cron(scope, schedule="* * * * *", **fields):
    body = NewCron.check({"assistant_id": "agent", "schedule": schedule, **fields})
    return crons.create(scope, body)


def create_thread_cron(scope, thread, **fields):
    body = NewCron.check({"assistant_id": "agent", "schedule": "* * * * *", **fields})
    return crons.create_on_thread(scope, scope, thread.thread_id, body)


def test_cron_does_not_fire_before_its_time(scope, clock):
    cron = create_cron(scope)

    clock.shift(59)

    assert fire_due() == 0
    assert AgentRun.unscoped.count() == 0
    cron.refresh_from_db()
    assert cron.next_run_date == NOON + timedelta(minutes=1)


def test_firing_creates_the_configured_run(scope, clock):
    cron = create_cron(
        scope,
        input={"text": "hi"},
        metadata={"team": "x"},
        config={"tags": ["t"], "configurable": {"k": 1}},
        stream_mode="updates",
        durability="sync",
        interrupt_before=["node"],
    )

    clock.shift(60)
    fired = fire_due()

    run = AgentRun.unscoped.select_related("thread").get()
    assert fired == 1
    assert run.kwargs["input"] == {"text": "hi"}
    assert run.kwargs["stream_mode"] == ["updates"]
    assert run.kwargs["durability"] == "sync"
    assert run.kwargs["interrupt_before"] == ["node"]
    assert run.kwargs["config"]["tags"] == ["t"]
    assert run.kwargs["config"]["configurable"]["k"] == 1
    assert run.kwargs["config"]["configurable"]["cron_id"] == str(cron.pk)
    assert run.kwargs["config"]["configurable"]["langgraph_auth_user_id"] == "ann"
    assert run.metadata["team"] == run.thread.metadata["team"] == "x"
    assert run.thread.metadata["graph_id"] == "agent"
    assert (run.thread.temporary, run.on_completion) == (True, "delete")
    cron.refresh_from_db()
    assert cron.due_at == cron.next_run_date == NOON + timedelta(minutes=2)


def test_cron_id_is_configured_next_to_a_context(scope, clock):
    cron = create_cron(scope, context={"c": 1})

    clock.shift(60)
    fire_due()

    kwargs = AgentRun.unscoped.get().kwargs
    assert kwargs["context"] == {"c": 1}
    assert kwargs["config"]["configurable"]["cron_id"] == str(cron.pk)
    assert kwargs["config"]["configurable"]["c"] == 1


def test_each_firing_has_its_own_thread_and_keeps_it_on_request(scope, clock):
    create_cron(scope, on_run_completed="keep")

    for _ in range(2):
        clock.shift(60)
        fire_due()

    assert Thread.unscoped.filter(temporary=False).count() == 2
    assert AgentRun.unscoped.filter(on_completion="keep").count() == 2


def test_firing_on_a_thread_is_queued_on_it(scope, clock, agent):
    thread = ThreadFactory(deployment=agent, metadata={"mine": 1})
    create_thread_cron(scope, thread, metadata={"team": "x"})

    for _ in range(2):
        clock.shift(60)
        fire_due()

    runs = AgentRun.unscoped.filter(thread=thread).order_by("sequence")
    assert [run.sequence for run in runs] == [1, 2]
    assert [run.metadata["team"] for run in runs] == ["x", "x"]
    thread.refresh_from_db()
    assert thread.metadata["mine"] == 1
    assert "team" not in thread.metadata


def test_next_run_has_the_changed_metadata(scope, clock):
    cron = create_cron(scope, metadata={"team": "x", "stage": 1})
    crons.update(scope, cron.pk, parse_changes({"metadata": {"stage": 2}}))

    clock.shift(60)
    fire_due()

    metadata = AgentRun.unscoped.get().metadata
    assert (metadata["team"], metadata["stage"]) == ("x", 2)


def parse_changes(fields):
    return CronChanges.check(fields)


def test_missed_firings_create_one_run(scope, clock):
    """As after a restart: only the row remains."""
    cron = create_cron(scope)

    clock.shift(3600 * 24)
    routes.clear_cache()
    fired = [fire_due(), fire_due()]

    assert fired == [1, 0]
    cron.refresh_from_db()
    assert cron.due_at == NOON + timedelta(days=1, minutes=1)


def test_cron_does_not_fire_after_its_end_time(scope, clock):
    cron = create_cron(scope, end_time=(NOON + timedelta(seconds=90)).isoformat())

    clock.shift(60)
    first = fire_due()
    clock.shift(60)
    second = fire_due()

    cron.refresh_from_db()
    assert (first, second, cron.due_at) == (1, 0, None)


def test_missed_firing_before_the_end_time_is_made_up(scope, clock):
    create_cron(scope, end_time=(NOON + timedelta(seconds=90)).isoformat())

    clock.shift(3600)

    assert [fire_due(), fire_due()] == [1, 0]


def test_disabled_cron_does_not_fire_or_make_up_missed_firings(scope, clock):
    cron = create_cron(scope)
    crons.update(scope, cron.pk, parse_changes({"enabled": False}))
    clock.shift(600)
    fired_while_disabled = fire_due()

    crons.update(scope, cron.pk, parse_changes({"enabled": True}))

    assert (fired_while_disabled, fire_due()) == (0, 0)
    clock.shift(60)
    assert fire_due() == 1


def test_firing_rejected_by_a_busy_thread_is_not_retried(scope, clock, agent):
    thread = ThreadFactory(deployment=agent, status="busy")
    AgentRunFactory(thread=thread, status="running")
    cron = create_thread_cron(scope, thread, multitask_strategy="reject")
    free = create_cron(scope)

    clock.shift(60)
    fired = fire_due()

    assert fired == 2
    assert AgentRun.unscoped.filter(thread=thread).count() == 1
    cron.refresh_from_db()
    free.refresh_from_db()
    assert cron.due_at == free.due_at == NOON + timedelta(minutes=2)


def test_cron_of_a_removed_graph_does_not_block_others(scope, clock, agent):
    removed, remaining = create_cron(scope), create_cron(scope, assistant_id="other")
    agent.active_revision.graphs.filter(graph_id="agent").delete()
    routes.clear_cache()

    clock.shift(60)
    fire_due()

    assert AgentRun.unscoped.get().graph_id == "other"
    for cron in (removed, remaining):
        cron.refresh_from_db()
        assert cron.due_at == NOON + timedelta(minutes=2)


def test_failed_firing_is_retried_and_does_not_block_others(scope, clock, monkeypatch):
    broken, healthy = create_cron(scope), create_cron(scope)
    start = cron_firing._start

    def fail(cron):
        start(cron)
        if cron.pk == broken.pk:
            raise DatabaseError("the connection is gone")

    clock.shift(60)
    with monkeypatch.context() as patched:
        patched.setattr(cron_firing, "_start", fail)
        assert fire_due() == 1
    run_count = AgentRun.unscoped.count()

    assert fire_due() == 1
    assert (run_count, AgentRun.unscoped.count()) == (1, 2)
    healthy.refresh_from_db()
    assert healthy.due_at == NOON + timedelta(minutes=2)


@pytest.mark.django_db(transaction=True)
def test_concurrent_sweeps_fire_each_cron_once(scope, clock, agent):
    threads = [ThreadFactory(deployment=agent) for _ in range(10)]
    created = [create_cron(scope) for _ in range(30)] + [
        create_thread_cron(scope, thread) for thread in threads
    ]
    clock.shift(60)

    def sweep(_):
        try:
            return fire_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        fired = list(pool.map(sweep, range(12)))

    assert sum(fired) == len(created) == 40
    by_cron = [run.kwargs["config"]["configurable"]["cron_id"] for run in AgentRun.unscoped.all()]
    assert sorted(by_cron) == sorted(str(cron.pk) for cron in created)
    assert set(Cron.unscoped.values_list("due_at", flat=True)) == {NOON + timedelta(minutes=2)}


@pytest.mark.django_db(transaction=True)
def test_locked_cron_is_skipped(scope, clock):
    locked, free = create_cron(scope), create_cron(scope)
    clock.shift(60)

    with transaction.atomic():
        Cron.unscoped.select_for_update().get(pk=locked.pk)
        with ThreadPoolExecutor(1) as pool:
            fired = pool.submit(_fire_and_close).result(PATIENCE_SECONDS)

    assert fired == 1
    locked.refresh_from_db()
    free.refresh_from_db()
    assert locked.due_at == NOON + timedelta(minutes=1)
    assert free.due_at == NOON + timedelta(minutes=2)


def _fire_and_close():
    try:
        return fire_due()
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_firing_and_deletion_of_its_thread_do_not_deadlock(scope, clock, agent):
    for _ in range(10):
        thread = ThreadFactory(deployment=agent)
        create_thread_cron(scope, thread)
        clock.shift(60)
        with ThreadPoolExecutor(2) as pool:
            firing = pool.submit(_fire_and_close)
            deleting = pool.submit(_delete_and_close, scope, thread.thread_id)
            firing.result(PATIENCE_SECONDS)
            deleting.result(PATIENCE_SECONDS)

    assert Cron.unscoped.count() == 0
    assert AgentRun.unscoped.count() == 0


def _delete_and_close(scope, thread_id):
    try:
        delete_threads.delete(scope, thread_id)
    finally:
        connections.close_all()
