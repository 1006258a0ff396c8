"""One organization or deployment cannot take all run slots of a worker."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.db import connection

from apps.agent_runtime import run_slots
from apps.agent_runtime.db import statements
from apps.agent_runtime.run_slots import UNLIMITED, FreeSlots, RunSlots, SlotOwner
from apps.agent_server.models import AgentRun, Thread
from apps.deployments.models import Deployment, Revision
from tests.agent_runtime.factories import (
    execute,
    let_continue,
    make_revision,
    make_run,
    make_thread,
)
from tests.installation import wait_until

FIRST, SECOND, THIRD = (SlotOwner(uuid4(), uuid4()) for _ in range(3))
SIBLING = SlotOwner(FIRST.organization_id, uuid4())
"""Another deployment of the first organization."""


def make_slots(capacity: int, deployment_percent: int = 100) -> RunSlots:
    return RunSlots(capacity, organization_percent=80, deployment_percent=deployment_percent)


def acquire(slots: RunSlots, owner: SlotOwner, count: int) -> None:
    for _ in range(count):
        slots.acquire(owner)


def count_free(slots: RunSlots, *owners: SlotOwner) -> list[int]:
    return [slots.free_of_deployment(owner) for owner in owners]


def test_an_organization_takes_its_share_of_what_others_leave():
    slots = make_slots(625)

    assert slots.free_of_organization() == 500
    acquire(slots, FIRST, 500)
    assert count_free(slots, FIRST, SIBLING, SECOND) == [0, 0, 100]
    acquire(slots, SECOND, 100)
    assert count_free(slots, FIRST, SECOND, THIRD) == [0, 0, 20]
    assert slots.list_free() == FreeSlots(
        [FIRST.organization_id, SECOND.organization_id],
        [0, 0],
        [0, 0],
        [FIRST.deployment_id, SECOND.deployment_id],
        [0, 0],
        20,
        20,
    )


def test_a_deployment_takes_its_share_of_what_its_siblings_leave():
    slots = make_slots(781, deployment_percent=80)

    assert (slots.free_of_organization(), slots.free_of_deployment()) == (625, 500)
    acquire(slots, FIRST, 500)
    assert count_free(slots, FIRST, SIBLING) == [0, 100]
    assert slots.free_of_organization(FIRST.organization_id) == 125
    acquire(slots, SIBLING, 100)
    assert count_free(slots, FIRST, SIBLING) == [0, 0]
    # A third deployment of the organization, then one of another organization.
    assert slots.list_free() == FreeSlots(
        [FIRST.organization_id],
        [25],
        [20],
        [FIRST.deployment_id, SIBLING.deployment_id],
        [0, 0],
        116,
        145,
    )


def test_released_slots_are_free_again():
    slots = make_slots(10, deployment_percent=80)
    acquire(slots, FIRST, 7)
    assert count_free(slots, FIRST) == [0]

    slots.release(FIRST)

    assert (slots.held(FIRST), count_free(slots, FIRST)) == (6, [1])
    for _ in range(6):
        slots.release(FIRST)
    assert slots.list_free() == FreeSlots([], [], [], [], [], 7, 8)


@pytest.mark.parametrize("capacity", [1, 2, 3, 4])
def test_a_worker_with_few_slots_uses_all_of_them(capacity):
    slots = make_slots(capacity, deployment_percent=80)

    assert (slots.free_of_organization(), slots.free_of_deployment()) == (capacity, capacity)


def test_waiting_threads_of_the_organization_with_fewer_slots_come_first():
    slots = make_slots(20)
    acquire(slots, FIRST, 3)
    acquire(slots, SECOND, 1)
    first = [uuid4() for _ in range(3)]
    second = [uuid4() for _ in range(3)]
    for thread in first:
        slots.add_waiting(thread, FIRST)
    for thread in second:
        slots.add_waiting(thread, SECOND)

    assert slots.pop_waiting(3) == [second[0], second[1], first[0]]
    assert slots.pop_all_waiting() == [*first[1:], second[2]]


def test_waiting_threads_of_the_deployment_with_fewer_slots_come_first():
    slots = make_slots(20, deployment_percent=80)
    acquire(slots, FIRST, 4)
    acquire(slots, SIBLING, 2)
    first = [uuid4() for _ in range(3)]
    sibling = [uuid4() for _ in range(3)]
    for thread in first:
        slots.add_waiting(thread, FIRST)
    for thread in sibling:
        slots.add_waiting(thread, SIBLING)

    assert slots.pop_waiting(4) == [sibling[0], sibling[1], first[0], sibling[2]]


def test_threads_of_a_deployment_without_a_free_slot_do_not_block_its_siblings():
    slots = make_slots(10, deployment_percent=50)
    acquire(slots, FIRST, 4)
    threads, sibling_thread = [uuid4(), uuid4()], uuid4()
    for thread in threads:
        slots.add_waiting(thread, FIRST)
    slots.add_waiting(sibling_thread, SIBLING)

    assert slots.pop_waiting(5) == [sibling_thread]
    slots.release(FIRST)
    assert slots.pop_waiting(5) == threads[:1]


def test_waiting_threads_stay_within_the_share_of_their_organization():
    slots = make_slots(10, deployment_percent=100)
    acquire(slots, FIRST, 6)
    for owner in (FIRST, SIBLING):
        for _ in range(3):
            slots.add_waiting(uuid4(), owner)

    assert len(slots.pop_waiting(5)) == 2
    acquire(slots, SIBLING, 2)
    assert slots.pop_waiting(5) == []


def test_the_waiting_threads_of_a_deployment_are_bounded(monkeypatch):
    monkeypatch.setattr(run_slots, "MAX_WAITING_THREADS", 2)
    slots = make_slots(10)
    threads, sibling_thread = [uuid4() for _ in range(3)], uuid4()

    for thread in threads:
        slots.add_waiting(thread, FIRST)
    slots.add_waiting(sibling_thread, SIBLING)

    assert slots.pop_all_waiting() == [*threads[:2], sibling_thread]


def make_sibling(revision: Revision) -> Revision:
    """A revision of another deployment of the same workspace."""
    name = f"agent-{uuid4().hex[:8]}"
    deployment = Deployment(workspace=revision.workspace, name=name, slug=name)
    deployment.save()
    sibling = Revision(
        workspace=revision.workspace,
        deployment=deployment,
        number=1,
        config_path="langgraph.json",
    )
    sibling.save()
    Deployment.unscoped.filter(pk=deployment.pk).update(active_revision=sibling)
    return sibling


def claim(threads, free_slots=UNLIMITED):
    """Execute the statement in the test's transaction; return the claimed runs' deployments."""
    with connection.cursor() as cursor:
        cursor.execute(
            statements.CLAIM.replace("%b", "%s"), [threads, *free_slots, "worker@here:1", 20.0]
        )
        return [row[6] for row in cursor.fetchall()]


@pytest.mark.django_db
def test_a_claim_starts_as_many_runs_as_deployments_and_organizations_may_hold():
    revision, other = make_revision(), make_revision()
    sibling = make_sibling(revision)
    revisions = [revision] * 5 + [sibling] * 4 + [other] * 3
    runs = [make_run(make_thread(row), "collect") for row in revisions]
    threads = sorted(run.thread_id for run in runs)
    organization_id = revision.workspace.organization_id

    # The organization may start 4 runs, its listed deployment 3, the sibling and the others 2.
    free = FreeSlots([organization_id], [4], [2], [revision.deployment_id], [3], 2, 9)
    claimed = claim(threads, free)

    counts = [claimed.count(row.deployment_id) for row in (revision, sibling, other)]
    assert counts == [2, 2, 2]
    more = FreeSlots([organization_id], [9], [0], [revision.deployment_id], [3], 9, 0)
    assert claim(threads, more) == [revision.deployment_id] * 3
    assert sorted(claim(threads)) == sorted([sibling.deployment_id] * 2 + [other.deployment_id])


@pytest.mark.django_db
def test_a_claim_reads_its_threads_by_index():
    """Among 1,000 threads with pending runs, the claim reads those of its threads only."""
    revision = make_revision()
    thread = make_thread(revision)
    make_run(thread, "collect")
    fields = {"workspace": revision.workspace, "deployment": revision.deployment}
    others = Thread.unscoped.bulk_create(
        [Thread(**fields, thread_id=uuid4(), status="busy") for _ in range(1000)]
    )
    run = {"assistant_id": uuid4(), "graph_id": "collect", "sequence": 1, "kwargs": {}}
    AgentRun.unscoped.bulk_create([AgentRun(**fields, **run, thread=other) for other in others])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agent_server_agentrun, agent_server_thread")
        free = FreeSlots(
            [revision.workspace.organization_id], [4], [2], [revision.deployment_id], [3], 2, 9
        )
        cursor.execute(
            "EXPLAIN " + statements.CLAIM.replace("%b", "%s"),
            [[thread.pk], *free, "worker@here:1", 20.0],
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())

    # Both indexes begin with the thread; where they are equally cheap, either is read.
    scan = r"Index Scan using agent_run_(open|order) on agent_server_agentrun r_1 .*\n"
    assert re.search(scan + r" +Index Cond: \(thread_id = ANY ", plan), plan
    assert "Seq Scan on agent_server_agentrun" not in plan
    assert "Seq Scan on agent_server_thread" not in plan


def test_runs_of_another_organization_start_while_one_fills_its_share(
    engines, revision, listen, file
):
    engine = engines(AGENT_RUNS_PER_WORKER=10, AGENT_RUNS_DEPLOYMENT_PERCENT=100)
    other = make_revision()
    waiting = {"input": {"file": str(file), "wait_at": "one"}}
    long_threads = [make_thread(revision) for _ in range(12)]
    long_runs = [make_run(thread, "steps", kwargs=waiting) for thread in long_threads]
    for thread in long_threads:
        execute(engine, thread)
    runs = AgentRun.unscoped.filter(pk__in=[run.pk for run in long_runs])
    wait_until(lambda: runs.filter(status="running").count() == 8, "filling the share")

    thread = make_thread(other)
    run = make_run(thread, "collect", kwargs={"input": {"item": "short"}})
    execute(engine, thread)
    events = list(listen(run.pk))

    assert events[-1] == ("end", {"status": "success"})
    assert runs.filter(status="success").count() == 0
    assert runs.filter(status="running").count() == 8
    let_continue(file)
    # The waiting runs start when others of their organization end.
    wait_until(lambda: runs.filter(status="success").count() == 12, "the waiting runs")
    assert runs.filter(attempt=1).count() == 12


def test_runs_of_another_deployment_start_while_one_fills_its_share(
    engines, revision, listen, file
):
    engine = engines(AGENT_RUNS_PER_WORKER=10)
    sibling = make_sibling(revision)
    waiting = {"input": {"file": str(file), "wait_at": "one"}}
    long_threads = [make_thread(revision) for _ in range(9)]
    long_runs = [make_run(thread, "steps", kwargs=waiting) for thread in long_threads]
    for thread in long_threads:
        execute(engine, thread)
    runs = AgentRun.unscoped.filter(pk__in=[run.pk for run in long_runs])
    wait_until(lambda: runs.filter(status="running").count() == 7, "filling the share")

    thread = make_thread(sibling)
    run = make_run(thread, "collect", kwargs={"input": {"item": "short"}})
    execute(engine, thread)
    events = list(listen(run.pk))

    assert events[-1] == ("end", {"status": "success"})
    assert runs.filter(status="success").count() == 0
    assert runs.filter(status="running").count() == 7
    let_continue(file)
    wait_until(lambda: runs.filter(status="success").count() == 9, "the waiting runs")
    assert runs.filter(attempt=1).count() == 9
