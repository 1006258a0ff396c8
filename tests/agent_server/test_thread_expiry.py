"""Times to live: what the sweeper does, to whom, and when."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.utils import timezone

from apps.agent_server import recovery, thread_ttl
from apps.agent_server.models import AgentRun, Checkpoint, CheckpointBlob, CheckpointWrite, Thread
from apps.agent_server.services import checkpoints, delete_threads, threads
from apps.deployments.models import Revision
from apps.deployments.routes import Route
from tests.factories.agent_server import AgentFactory, AgentRunFactory, ThreadFactory

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def agent():
    return AgentFactory()


def age(thread: Thread, ago: timedelta) -> None:
    """Make the thread, and what was saved on it, that old."""
    then = timezone.now() - ago
    Thread.unscoped.filter(pk=thread.pk).update(created_at=then, updated_at=then)
    Checkpoint.objects.filter(thread=thread).update(created_at=then)


def checkpoint_id(number: int) -> UUID:
    return UUID(f"1ef4f797-8335-6428-8001-{number:012x}")


def save(thread: Thread, number: int, *, namespace: str = "", root: int | None = None) -> None:
    """A checkpoint with one new value, one of old, and a write."""
    Checkpoint(
        thread=thread,
        namespace=namespace,
        checkpoint_id=checkpoint_id(number),
        kind="msgpack",
        blob=b"x",
        blob_versions={"new": str(number), "old": "1"},
        metadata={"parents": {} if root is None else {"": str(checkpoint_id(root))}},
    ).save(force_insert=True)
    for channel, version in (("new", str(number)), ("old", "1")):
        CheckpointBlob.objects.bulk_create(
            [
                CheckpointBlob(
                    thread=thread, namespace=namespace, channel=channel, version=version,
                    kind="msgpack", blob=b"y",
                )
            ],
            ignore_conflicts=True,
        )  # fmt: skip
    CheckpointWrite(
        thread=thread, namespace=namespace, checkpoint_id=checkpoint_id(number), task_id="t",
        index=0, channel="new", kind="msgpack", blob=b"z",
    ).save(force_insert=True)  # fmt: skip


def numbers(thread: Thread, namespace: str = "") -> list[int]:
    rows = Checkpoint.objects.filter(thread=thread, namespace=namespace).order_by("checkpoint_id")
    return [row.checkpoint_id.int & 0xFFFFFFFFFFFF for row in rows]


def blobs(thread: Thread) -> set[tuple[str, str]]:
    return set(CheckpointBlob.objects.filter(thread=thread).values_list("channel", "version"))


def test_thread_expires_after_its_idle_time(agent):
    old = ThreadFactory(deployment=agent, ttl_minutes=30)
    young = ThreadFactory(deployment=agent, ttl_minutes=90)
    forever = ThreadFactory(deployment=agent)
    for thread in (old, young, forever):
        age(thread, HOUR)

    assert thread_ttl.sweep(always=True) == 1

    visible = set(Thread.unscoped.filter(temporary=False).values_list("pk", flat=True))
    assert visible == {young.pk, forever.pk}
    assert thread_ttl.sweep(always=True) == 0


def test_expired_thread_is_removed_by_the_purge(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30)
    save(thread, 1)
    age(thread, HOUR)

    thread_ttl.sweep(always=True)
    recovery.purge_temporary_threads()

    assert not Thread.unscoped.filter(pk=thread.pk).exists()
    assert not Checkpoint.objects.filter(thread=thread.pk).exists()
    assert blobs(thread) == set()


def test_activity_postpones_expiry(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30)
    age(thread, HOUR)
    Thread.unscoped.filter(pk=thread.pk).update(updated_at=timezone.now())

    assert thread_ttl.sweep(always=True) == 0


@pytest.mark.parametrize("status", ["pending", "running"])
def test_thread_with_an_open_run_does_not_expire(agent, status):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, status="busy")
    AgentRunFactory(thread=thread, status=status)
    age(thread, HOUR)

    assert thread_ttl.sweep(always=True) == 0
    assert AgentRun.unscoped.filter(thread=thread).exists()


def test_keep_latest_deletes_old_checkpoints_and_keeps_the_head(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, ttl_strategy="keep_latest")
    for number in (1, 2, 3):
        save(thread, number)
    age(thread, HOUR)

    assert thread_ttl.sweep(always=True) == 1

    assert numbers(thread) == [3]
    assert blobs(thread) == {("new", "3"), ("old", "1")}
    assert CheckpointWrite.objects.filter(thread=thread).count() == 1
    thread.refresh_from_db()
    assert (thread.temporary, thread.ttl_until, thread.edits) == (False, None, 3)
    assert thread_ttl.sweep(always=True) == 0


def test_keep_latest_keeps_checkpoints_until_they_are_old(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, ttl_strategy="keep_latest")
    save(thread, 1)
    age(thread, HOUR)
    for number in (2, 3):
        save(thread, number)
    Thread.unscoped.filter(pk=thread.pk).update(updated_at=timezone.now())

    thread_ttl.sweep(always=True)

    assert numbers(thread) == [2, 3]
    thread.refresh_from_db()
    assert thread.ttl_until == thread.pruned_at + timedelta(minutes=30)


def test_busy_thread_under_keep_latest_does_not_grow(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, ttl_strategy="keep_latest")
    sizes = []

    for run in range(5):
        for step in range(10):
            save(thread, run * 10 + step)
        age(thread, HOUR)
        Thread.unscoped.filter(pk=thread.pk).update(pruned_at=timezone.now() - HOUR)
        thread_ttl.sweep(always=True)
        sizes.append((len(numbers(thread)), len(blobs(thread))))

    assert sizes == [(1, 2)] * 5


def test_keep_latest_keeps_open_checkpoints_of_subgraphs(agent):
    thread = ThreadFactory(deployment=agent)
    save(thread, 1)
    save(thread, 2, namespace="ask:old-task", root=1)
    save(thread, 3)
    save(thread, 4, namespace="ask:task", root=3)
    save(thread, 5, namespace="ask:task", root=3)
    save(thread, 6, namespace="memory", root=1)

    assert checkpoints.keep_latest(thread.pk)

    kept = {name: numbers(thread, name) for name in ("", "ask:old-task", "ask:task", "memory")}
    assert kept == {"": [3], "ask:old-task": [], "ask:task": [5], "memory": [6]}


def test_histories_are_pruned_in_batches(agent, monkeypatch):
    thread = ThreadFactory(deployment=agent)
    for number in range(7):
        save(thread, number)
    monkeypatch.setattr(delete_threads, "BATCH_SIZE", 2)

    delete_threads.delete_rows([thread.pk])
    delete_threads.purge([thread.pk])

    with connection.cursor() as cursor:
        for table in ("checkpoint", "checkpointblob", "checkpointwrite"):
            cursor.execute(f"SELECT count(*) FROM agent_server_{table}")
            assert cursor.fetchone() == (0,)
    assert not Thread.unscoped.exists()


def test_id_of_an_expired_thread_can_be_reused_at_once(agent):
    thread = ThreadFactory(deployment=agent)

    assert delete_threads.delete_rows([thread.pk]) == 1
    ThreadFactory(deployment=agent, thread_id=thread.thread_id)

    assert delete_threads.delete_rows([thread.pk]) == 0


# The deployment's settings


def configure(agent, **ttl):
    config = {"checkpointer": {"ttl": ttl}}
    Revision.objects.for_workspace(agent.workspace_id).filter(pk=agent.active_revision_id).update(
        config=config
    )
    return config


def test_sweep_limit_comes_from_the_deployment(agent):
    configure(agent, sweep_limit=2)
    for _ in range(3):
        age(ThreadFactory(deployment=agent, ttl_minutes=1), HOUR)

    assert [thread_ttl.sweep(always=True) for _ in range(3)] == [2, 1, 0]


def test_sweep_interval_comes_from_the_deployment():
    pace = thread_ttl.SweepPolicy.of({"sweep_interval_minutes": 10})

    assert [minute for minute in range(31) if pace.is_due(minute)] == [0, 10, 20, 30]
    assert thread_ttl.SweepPolicy.of({}) == (5, 1_000)


def test_new_thread_gets_the_deployments_time_to_live(agent):
    config = configure(agent, strategy="keep_latest", default_ttl=60)
    route = Route(
        deployment_id=agent.pk, workspace_id=agent.workspace_id, organization_id=uuid4(),
        slug="a", name="a", active_revision_id=agent.active_revision_id, config=config,
        tracing=False, graph_ids=(),
    )  # fmt: skip

    assert threads.resolve_ttl(route, None) == (60, "keep_latest")
