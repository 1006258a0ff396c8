"""Edits of thread state: their writes, and conflicts with runs and other edits."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

import orjson
import pytest
import redis
from django.db import connection

from apps.agent_runtime.graph_calls import thread_edits as edits
from apps.agent_runtime.graph_calls.call_session import CallResult, GraphCall
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_server.messaging.messages import EDIT_REFUSED, THREAD_BUSY, THREAD_GONE
from apps.agent_server.models import Checkpoint, CheckpointBlob, CheckpointWrite, Thread
from apps.agent_server.streaming import streams
from tests.agent_runtime.factories import make_run, make_thread


@pytest.fixture
def thread(revision) -> Thread:
    return make_thread(revision, status="idle", metadata={"graph_id": "collect"})


@pytest.fixture
def edit(engine, revision):
    """Return a function that makes the engine edit a thread."""

    def call(
        thread: Thread, method: str = "update_state", seconds: float = 30, **params
    ) -> CallResult:
        body = {"thread_id": str(thread.thread_id), **params}
        graph_call = GraphCall(
            revision=RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id),
            graph_id=params.pop("graph_id", "collect"),
            method=method,
            thread=thread.pk,
            thread_id=str(thread.thread_id),
            params=orjson.dumps(body),
        )
        return engine.run(engine.engine.call_graph(graph_call, seconds))

    return call


def has_no_checkpoint(thread: Thread) -> bool:
    return not any(
        model.objects.filter(thread=thread.pk).exists()
        for model in (Checkpoint, CheckpointBlob, CheckpointWrite)
    )


def read_error(reply: CallResult) -> str:
    assert not reply.succeeded
    return str(orjson.loads(reply.body)["error"])


@pytest.fixture
def before_commit(monkeypatch):
    """Return a function that runs an action before each of the first `times` edit commits."""

    def install(action: Any, *, times: int = 99) -> list[int]:
        commit, calls = edits.EditSession.commit, []

        async def commit_after_action(session: Any, pool: Any, fence: Any) -> bool:
            if len(calls) < times:
                calls.append(1)
                thread = threading.Thread(target=_call_and_close_connection, args=[action])
                thread.start()
                thread.join(60)
                assert not thread.is_alive()
            return await commit(session, pool, fence)

        monkeypatch.setattr(edits.EditSession, "commit", commit_after_action)
        return calls

    return install


def _call_and_close_connection(action: Any) -> None:
    try:
        action()
    finally:
        connection.close()


def test_an_edit_writes_checkpoint_and_thread_row(edit, thread):
    reply = edit(thread, values={"items": ["a" * 100]}, as_node="take")

    thread.refresh_from_db()
    head = Checkpoint.objects.get(thread=thread)
    assert orjson.loads(reply.body)["checkpoint_id"] == str(head.checkpoint_id)
    assert (head.metadata["source"], head.run_id) == ("update", None)
    assert thread.values == thread.state["values"] == {"items": ["a" * 100]}
    assert (thread.status, thread.interrupts, thread.edits) == ("idle", {}, 1)


def test_a_failed_edit_writes_nothing(edit, thread):
    steps = [
        [{"values": {"items": ["a"]}, "as_node": "take"}],
        [{"values": {"items": 5}, "as_node": "take"}],
    ]

    reply = edit(thread, "supersteps", supersteps=steps)

    thread.refresh_from_db()
    assert read_error(reply) == EDIT_REFUSED
    assert has_no_checkpoint(thread)
    assert (thread.values, thread.edits) == (None, 0)


@pytest.mark.parametrize("status", ["pending", "running"])
def test_an_edit_of_a_thread_with_an_open_run_is_refused_as_busy(edit, thread, status):
    make_run(thread, "collect", status=status, attempt=1)

    assert read_error(edit(thread, values={"items": []}, as_node="take")) == THREAD_BUSY
    assert has_no_checkpoint(thread)


def test_a_run_created_before_the_commit_refuses_the_edit(edit, thread, before_commit):
    def create_run() -> None:
        Thread.unscoped.filter(pk=thread.pk).update(runs_received=1, status="busy")
        make_run(thread, "collect")

    before_commit(create_run, times=1)

    assert read_error(edit(thread, values={"items": []}, as_node="take")) == THREAD_BUSY
    thread.refresh_from_db()
    assert has_no_checkpoint(thread)
    assert (thread.status, thread.edits) == ("busy", 0)


def test_an_edit_is_repeated_on_top_of_a_concurrent_edit(edit, thread, before_commit):
    edit(thread, values={"items": ["first"]}, as_node="take")
    calls = []

    def count_other_edits() -> None:
        Thread.unscoped.filter(pk=thread.pk).update(edits=7)
        calls.append(1)

    before_commit(count_other_edits, times=1)

    reply = edit(thread, values={"items": ["second"]}, as_node="take")

    thread.refresh_from_db()
    assert reply.succeeded
    assert calls == [1]
    assert (thread.values["items"], thread.edits) == (["first", "second"], 8)
    assert Checkpoint.objects.filter(thread=thread).count() == 2


def test_an_edit_gives_up_as_busy_after_too_many_concurrent_edits(edit, thread, before_commit):
    def count_other_edit() -> None:
        row = Thread.unscoped.get(pk=thread.pk)
        Thread.unscoped.filter(pk=thread.pk).update(edits=row.edits + 1)

    calls = before_commit(count_other_edit)

    assert read_error(edit(thread, values={"items": []}, as_node="take")) == THREAD_BUSY
    assert len(calls) == edits.MAX_ATTEMPTS
    assert has_no_checkpoint(thread)


def test_an_edit_past_its_deadline_writes_nothing(edit, thread, before_commit):
    edit(thread, values={"items": ["warm"]}, as_node="take")
    initial_count = Checkpoint.objects.filter(thread=thread).count()
    before_commit(lambda: time.sleep(0.6), times=1)

    reply = edit(thread, seconds=0.5, values={"items": ["late"]}, as_node="take")

    thread.refresh_from_db()
    assert not reply.succeeded
    assert Checkpoint.objects.filter(thread=thread).count() == initial_count
    assert thread.values == {"items": ["warm"]}


def test_an_edit_does_not_restore_a_thread_deleted_before_the_commit(edit, thread, before_commit):
    def delete() -> None:
        Thread.unscoped.filter(pk=thread.pk).update(thread_id=uuid4(), temporary=True, edits=1)

    before_commit(delete, times=1)

    assert read_error(edit(thread, values={"items": []}, as_node="take")) == THREAD_GONE
    assert has_no_checkpoint(thread)
    thread.refresh_from_db()
    assert thread.temporary


def test_the_first_edit_makes_a_temporary_thread_permanent(edit, revision):
    thread = make_thread(revision, status="idle", temporary=True)

    edit(thread, "supersteps", supersteps=[[{"values": {"items": ["a"]}, "as_node": "take"}]])

    thread.refresh_from_db()
    assert (thread.temporary, thread.values) == (False, {"items": ["a"]})


def test_mirror_restores_a_thread_row_from_its_head_checkpoint(edit, thread):
    edit(thread, values={"items": ["a"]}, as_node="take")
    Thread.unscoped.filter(pk=thread.pk).update(values=None, state=None, status="error")

    edit(thread, "mirror")

    thread.refresh_from_db()
    assert (thread.values, thread.status) == ({"items": ["a"]}, "idle")
    assert Checkpoint.objects.filter(thread=thread).count() == 1


def test_each_superstep_sees_the_state_of_the_previous_ones(edit, thread):
    steps = [
        [{"values": {"items": ["x" * 200]}, "as_node": "__start__"}],
        *[[{"values": {"items": [str(number)]}, "as_node": "take"}] for number in range(20)],
    ]

    edit(thread, "supersteps", supersteps=steps)

    thread.refresh_from_db()
    assert thread.values["items"] == ["x" * 200, *map(str, range(20))]
    assert Checkpoint.objects.filter(thread=thread).count() == 21


def test_an_edit_is_published_to_readers_of_the_thread(edit, thread, settings):
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=120)
    subscription = client.pubsub(ignore_subscribe_messages=True)
    subscription.subscribe(streams.thread_channel(thread.pk))
    subscription.get_message(timeout=60)

    edit(thread, values={"items": ["a"]}, as_node="take")

    message = None
    while message is None:
        message = subscription.get_message(timeout=60)
    notice = streams.unpack_notice(message["data"])
    assert isinstance(notice, streams.StateUpdatedMessage)
    assert orjson.loads(notice.state)["values"] == {"items": ["a"]}
    client.close()
