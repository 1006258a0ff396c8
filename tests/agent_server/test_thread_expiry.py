"""Times to live: the threads and checkpoints that the sweeper deletes, and when."""

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


def make_older(thread: Thread, duration: timedelta) -> None:
    """Move the thread and its checkpoints into the past."""
    timestamp = timezone.now() - duration
    Thread.unscoped.filter(pk=thread.pk).update(created_at=timestamp, updated_at=timestamp)
    Checkpoint.objects.filter(thread=thread).update(created_at=timestamp)


def checkpoint_id(number: int) -> UUID:
    return UUID(f"1ef4f797-8335-6428-8001-{number:012x}")


def save_checkpoint(
    thread: Thread, number: int, *, namespace: str = "", root: int | None = None
) -> None:
    """Save a checkpoint with one new value, one old value and a write."""
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


def list_checkpoints(thread: Thread, namespace: str = "") -> list[int]:
    rows = Checkpoint.objects.filter(thread=thread, namespace=namespace).order_by("checkpoint_id")
    return [row.checkpoint_id.int & 0xFFFFFFFFFFFF for row in rows]


def list_blobs(thread: Thread) -> set[tuple[str, str]]:
    return set(CheckpointBlob.objects.filter(thread=thread).values_list("channel", "version"))


def test_thread_expires_after_its_idle_time(agent):
    old = ThreadFactory(deployment=agent, ttl_minutes=30)
    young = ThreadFactory(deployment=agent, ttl_minutes=90)
    forever = ThreadFactory(deployment=agent)
    for thread in (old, young, forever):
        make_older(thread, HOUR)

    assert thread_ttl.sweep(always=True) == 1

    visible = set(Thread.unscoped.filter(temporary=False).values_list("pk", flat=True))
    assert visible == {young.pk, forever.pk}
    assert thread_ttl.sweep(always=True) == 0


def test_expired_thread_is_removed_by_the_purge(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30)
    save_checkpoint(thread, 1)
    make_older(thread, HOUR)

    thread_ttl.sweep(always=True)
    recovery.purge_temporary_threads()

    assert not Thread.unscoped.filter(pk=thread.pk).exists()
    assert not Checkpoint.objects.filter(thread=thread.pk).exists()
    assert list_blobs(thread) == set()


def test_activity_postpones_expiry(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30)
    make_older(thread, HOUR)
    Thread.unscoped.filter(pk=thread.pk).update(updated_at=timezone.now())

    assert thread_ttl.sweep(always=True) == 0


@pytest.mark.parametrize("status", ["pending", "running"])
def test_thread_with_an_open_run_does_not_expire(agent, status):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, status="busy")
    AgentRunFactory(thread=thread, status=status)
    make_older(thread, HOUR)

    assert thread_ttl.sweep(always=True) == 0
    assert AgentRun.unscoped.filter(thread=thread).exists()


def test_keep_latest_deletes_old_checkpoints_and_keeps_the_head(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, ttl_strategy="keep_latest")
    for number in (1, 2, 3):
        save_checkpoint(thread, number)
    make_older(thread, HOUR)

    assert thread_ttl.sweep(always=True) == 1

    assert list_checkpoints(thread) == [3]
    assert list_blobs(thread) == {("new", "3"), ("old", "1")}
    assert CheckpointWrite.objects.filter(thread=thread).count() == 1
    thread.refresh_from_db()
    assert (thread.temporary, thread.ttl_until, thread.edits) == (False, None, 3)
    assert thread_ttl.sweep(always=True) == 0


def test_keep_latest_keeps_checkpoints_until_they_are_old(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, ttl_strategy="keep_latest")
    save_checkpoint(thread, 1)
    make_older(thread, HOUR)
    for number in (2, 3):
        save_checkpoint(thread, number)
    Thread.unscoped.filter(pk=thread.pk).update(updated_at=timezone.now())

    thread_ttl.sweep(always=True)

    assert list_checkpoints(thread) == [2, 3]
    thread.refresh_from_db()
    assert thread.ttl_until == thread.pruned_at + timedelta(minutes=30)


def test_busy_thread_under_keep_latest_does_not_grow(agent):
    thread = ThreadFactory(deployment=agent, ttl_minutes=30, ttl_strategy="keep_latest")
    sizes = []

    for run in range(5):
        for step in range(10):
            save_checkpoint(thread, run * 10 + step)
        make_older(thread, HOUR)
        Thread.unscoped.filter(pk=thread.pk).update(pruned_at=timezone.now() - HOUR)
        thread_ttl.sweep(always=True)
        sizes.append((len(list_checkpoints(thread)), len(list_blobs(thread))))

    assert sizes == [(1, 2)] * 5


def test_keep_latest_keeps_open_checkpoints_of_subgraphs(agent):
    thread = ThreadFactory(deployment=agent)
    save_checkpoint(thread, 1)
    save_checkpoint(thread, 2, namespace="ask:old-task", root=1)
    save_checkpoint(thread, 3)
    save_checkpoint(thread, 4, namespace="ask:task", root=3)
    save_checkpoint(thread, 5, namespace="ask:task", root=3)
    save_checkpoint(thread, 6, namespace="memory", root=1)

    assert checkpoints.keep_latest(thread.pk)

    checkpoints_by_namespace = {
        name: list_checkpoints(thread, name) for name in ("", "ask:old-task", "ask:task", "memory")
    }
    assert checkpoints_by_namespace == {"": [3], "ask:old-task": [], "ask:task": [5], "memory": [6]}


def test_histories_are_pruned_in_batches(agent, monkeypatch):
    thread = ThreadFactory(deployment=agent)
    for number in range(7):
        save_checkpoint(thread, number)
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
        make_older(ThreadFactory(deployment=agent, ttl_minutes=1), HOUR)

    assert [thread_ttl.sweep(always=True) for _ in range(3)] == [2, 1, 0]


def test_sweep_interval_comes_from_the_deployment():
    policy = thread_ttl.SweepPolicy.from_config({"sweep_interval_minutes": 10})

    assert [minute for minute in range(31) if policy.is_due(minute)] == [0, 10, 20, 30]
    assert thread_ttl.SweepPolicy.from_config({}) == (5, 1_000)


def test_new_thread_gets_the_deployments_time_to_live(agent):
    config = configure(agent, strategy="keep_latest", default_ttl=60)
    route = Route(
        deployment_id=agent.pk, workspace_id=agent.workspace_id, organization_id=uuid4(),
        slug="a", name="a", active_revision_id=agent.active_revision_id, config=config,
        tracing=False, graph_ids=(),
    )  # fmt: skip

    assert threads.resolve_ttl(route, None) == (60, "keep_latest")
