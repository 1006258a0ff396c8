"""Edits: what they write, and that they write nothing when they come too late."""

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
    """Asks for an edit of a thread."""

    def ask(
        thread: Thread, method: str = "update_state", seconds: float = 30, **params
    ) -> CallResult:
        asked = {"thread_id": str(thread.thread_id), **params}
        question = GraphCall(
            revision=RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id),
            graph_id=params.pop("graph_id", "collect"),
            method=method,
            thread=thread.pk,
            thread_id=str(thread.thread_id),
            params=orjson.dumps(asked),
        )
        return engine.wait_for(engine.engine.call_graph(question, seconds))

    return ask


def nothing_saved(thread: Thread) -> bool:
    return not any(
        model.objects.filter(thread=thread.pk).exists()
        for model in (Checkpoint, CheckpointBlob, CheckpointWrite)
    )


def error_of(reply: CallResult) -> str:
    assert not reply.succeeded
    return str(orjson.loads(reply.body)["error"])


@pytest.fixture
def meanwhile(monkeypatch):
    """Does something between the graph's work and the commit of the edit, each time or once."""

    def arrange(deed: Any, *, times: int = 99) -> list[int]:
        commit, done = edits.EditSession.commit, []

        async def late(session: Any, pool: Any, fence: Any) -> bool:
            if len(done) < times:
                done.append(1)
                thread = threading.Thread(target=_in_a_thread, args=[deed], daemon=True)
                thread.start()
                thread.join(60)
                assert not thread.is_alive()
            return await commit(session, pool, fence)

        monkeypatch.setattr(edits.EditSession, "commit", late)
        return done

    return arrange


def _in_a_thread(deed: Any) -> None:
    try:
        deed()
    finally:
        connection.close()


def test_an_edit_writes_state_and_mirror_at_once(edit, thread):
    reply = edit(thread, values={"items": ["a" * 100]}, as_node="take")

    thread.refresh_from_db()
    head = Checkpoint.objects.get(thread=thread)
    assert orjson.loads(reply.body)["checkpoint_id"] == str(head.checkpoint_id)
    assert (head.metadata["source"], head.run_id) == ("update", None)
    assert thread.values == thread.state["values"] == {"items": ["a" * 100]}
    assert (thread.status, thread.interrupts, thread.edits) == ("idle", {}, 1)


def test_an_edit_that_fails_leaves_nothing(edit, thread):
    steps = [
        [{"values": {"items": ["a"]}, "as_node": "take"}],
        [{"values": {"items": 5}, "as_node": "take"}],
    ]

    reply = edit(thread, "supersteps", supersteps=steps)

    thread.refresh_from_db()
    assert error_of(reply) == EDIT_REFUSED
    assert nothing_saved(thread)
    assert (thread.values, thread.edits) == (None, 0)


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_thread_with_an_open_run_is_busy(edit, thread, status):
    make_run(thread, "collect", status=status, attempt=1)

    assert error_of(edit(thread, values={"items": []}, as_node="take")) == THREAD_BUSY
    assert nothing_saved(thread)


def test_a_run_that_came_meanwhile_wins(edit, thread, meanwhile):
    def receive() -> None:
        Thread.unscoped.filter(pk=thread.pk).update(runs_received=1, status="busy")
        make_run(thread, "collect")

    meanwhile(receive, times=1)

    assert error_of(edit(thread, values={"items": []}, as_node="take")) == THREAD_BUSY
    thread.refresh_from_db()
    assert nothing_saved(thread)
    assert (thread.status, thread.edits) == ("busy", 0)


def test_an_edit_that_came_meanwhile_is_built_upon(edit, thread, meanwhile):
    edit(thread, values={"items": ["first"]}, as_node="take")
    seen = []

    def another() -> None:
        Thread.unscoped.filter(pk=thread.pk).update(edits=7)
        seen.append(1)

    meanwhile(another, times=1)

    reply = edit(thread, values={"items": ["second"]}, as_node="take")

    thread.refresh_from_db()
    assert reply.succeeded
    assert seen == [1]
    assert (thread.values["items"], thread.edits) == (["first", "second"], 8)
    assert Checkpoint.objects.filter(thread=thread).count() == 2


def test_a_thread_that_never_rests_is_busy_in_the_end(edit, thread, meanwhile):
    def disturb() -> None:
        row = Thread.unscoped.get(pk=thread.pk)
        Thread.unscoped.filter(pk=thread.pk).update(edits=row.edits + 1)

    done = meanwhile(disturb)

    assert error_of(edit(thread, values={"items": []}, as_node="take")) == THREAD_BUSY
    assert len(done) == edits.MAX_ATTEMPTS
    assert nothing_saved(thread)


def test_a_worker_that_slept_past_the_deadline_writes_nothing(edit, thread, meanwhile):
    edit(thread, values={"items": ["warm"]}, as_node="take")
    before = Checkpoint.objects.filter(thread=thread).count()
    meanwhile(lambda: time.sleep(2.1), times=1)

    reply = edit(thread, seconds=2, values={"items": ["late"]}, as_node="take")

    thread.refresh_from_db()
    assert not reply.succeeded
    assert Checkpoint.objects.filter(thread=thread).count() == before
    assert thread.values == {"items": ["warm"]}


def test_a_thread_deleted_meanwhile_stays_deleted(edit, thread, meanwhile):
    def delete() -> None:
        Thread.unscoped.filter(pk=thread.pk).update(thread_id=uuid4(), temporary=True, edits=1)

    meanwhile(delete, times=1)

    assert error_of(edit(thread, values={"items": []}, as_node="take")) == THREAD_GONE
    assert nothing_saved(thread)
    thread.refresh_from_db()
    assert thread.temporary


def test_a_hidden_thread_is_seen_with_its_first_edit(edit, revision):
    thread = make_thread(revision, status="idle", temporary=True)

    edit(thread, "supersteps", supersteps=[[{"values": {"items": ["a"]}, "as_node": "take"}]])

    thread.refresh_from_db()
    assert (thread.temporary, thread.values) == (False, {"items": ["a"]})


def test_a_row_can_be_brought_in_line_with_its_head(edit, thread):
    edit(thread, values={"items": ["a"]}, as_node="take")
    Thread.unscoped.filter(pk=thread.pk).update(values=None, state=None, status="error")

    edit(thread, "mirror")

    thread.refresh_from_db()
    assert (thread.values, thread.status) == ({"items": ["a"]}, "idle")
    assert Checkpoint.objects.filter(thread=thread).count() == 1


def test_supersteps_build_on_each_other_before_any_is_stored(edit, thread):
    steps = [
        [{"values": {"items": ["x" * 200]}, "as_node": "__start__"}],
        *[[{"values": {"items": [str(number)]}, "as_node": "take"}] for number in range(20)],
    ]

    edit(thread, "supersteps", supersteps=steps)

    thread.refresh_from_db()
    assert thread.values["items"] == ["x" * 200, *map(str, range(20))]
    assert Checkpoint.objects.filter(thread=thread).count() == 21


def test_an_edit_is_announced_to_the_threads_readers(edit, thread, settings):
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=10)
    heard = client.pubsub(ignore_subscribe_messages=True)
    heard.subscribe(streams.thread_channel(thread.pk))
    heard.get_message(timeout=30)

    edit(thread, values={"items": ["a"]}, as_node="take")

    messages = (heard.get_message(timeout=5) for _ in range(12))
    message = next(filter(None, messages))
    notice = streams.unpack_notice(message["data"])
    assert isinstance(notice, streams.StateUpdated)
    assert orjson.loads(notice.state)["values"] == {"items": ["a"]}
    client.close()
