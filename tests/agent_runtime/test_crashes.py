"""What a crash may and may not do to a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone
from psycopg import OperationalError

from apps.agent_runtime.db.write_batch import (
    CheckpointEntry,
    FencingToken,
    RunEnd,
    StaleToken,
    TaskWritesEntry,
)
from apps.agent_runtime.runs.run_session import RunSession
from apps.agent_server import recovery
from apps.agent_server.models import Checkpoint, CheckpointBlob, CheckpointWrite, Thread
from tests.agent_runtime.factories import make_run, make_thread
from tests.child_output import read_line

STEPS = ["one", "two", "three", "four", "five"]


def execute(engine, thread):
    engine.call(engine.engine.claim_or_queue, thread.pk)


def await_that(condition, seconds=60):
    """The state of another process cannot be awaited, only looked at."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "effects"


@pytest.fixture
def steps(revision, file):
    """A run of five steps that waits in its third one for a file."""
    thread = make_thread(revision)
    kwargs = {"input": {"file": str(file), "wait_at": "three"}}
    return make_run(thread, "steps", kwargs=kwargs)


def hosts_of(engine):
    return [host._process.pid for host in engine.engine.hosts.hosts]


def assert_resumed_after_step_two(run, file):
    run.refresh_from_db()
    run.thread.refresh_from_db()
    assert (run.status, run.attempt) == ("success", 2)
    assert lines(file) == ["one 1", "two 1", "three 1", "three 2", "four 2", "five 2"]
    assert run.thread.values["trail"] == STEPS
    assert run.thread.status == "idle"
    metadata = Checkpoint.objects.filter(thread=run.thread, namespace="").order_by("checkpoint_id")
    assert [m["step"] for m in metadata.values_list("metadata", flat=True)] == list(range(-1, 6))


def test_a_stale_attempt_writes_nothing(engine, revision):
    thread = make_thread(revision)
    run = make_run(thread, "collect", status="running", attempt=2, lease_owner="another")
    stale, here = FencingToken(run.pk, 1), uuid4()
    put = CheckpointEntry(
        stale, "", here, None, "msgpack", b"1", "{}", "{}", [("c", "1", "msgpack", b"1")], 1
    )
    writes = TaskWritesEntry(stale, "", here, [("task", 0, "c", "msgpack", b"1", "")], 1)
    ending = RunEnd(stale, thread.pk, "success", "idle", None, "{}", "{}", "{}")

    for entry in (put, writes, ending):
        with pytest.raises(StaleToken):
            engine.wait_for(engine.engine.writer.write(entry))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert (run.status, run.attempt, run.lease_owner) == ("running", 2, "another")
    assert (thread.status, thread.values, thread.state) == ("busy", None, None)
    for table in (Checkpoint, CheckpointBlob, CheckpointWrite):
        assert not table.objects.filter(thread=thread).exists()


def test_one_stale_entry_does_not_spoil_the_batch_of_the_others(engine, revision):
    fresh = make_run(make_thread(revision), "collect", status="running", attempt=1)
    other = make_run(make_thread(revision), "collect", status="running", attempt=2)
    here = uuid4()

    async def both():
        entries = [
            CheckpointEntry(
                FencingToken(run.pk, 1), "", here, None, "msgpack", b"1", "{}", "{}", [], 1
            )
            for run in (fresh, other)
        ]
        for entry in entries:
            engine.engine.writer.put(entry)
        await engine.engine.writer.flush()

    engine.wait_for(both())

    assert list(Checkpoint.objects.values_list("thread", flat=True)) == [fresh.thread_id]


def test_a_value_that_cannot_be_stored_fails_its_own_run_only(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs={"input": {"items": ["before \x7f after"]}})
    bad = make_run(make_thread(revision), "collect", status="running", attempt=1)
    here = uuid4()

    async def poison():
        token = FencingToken(bad.pk, 1)
        put = CheckpointEntry(token, "a\0b", here, None, "msgpack", b"1", "{}", "{}", [], 1)
        engine.engine.writer.put(put)
        engine.engine.claim_or_queue(thread.pk)

    engine.wait_for(poison())
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "success"
    assert not Checkpoint.objects.filter(thread=bad.thread).exists()


def test_a_host_that_is_killed_resumes_from_the_last_checkpoint(engine, steps, file, listen):
    execute(engine, steps.thread)
    await_that(lambda: "three 1" in lines(file))
    engine.wait_for(engine.engine.writer.flush())

    [pid] = hosts_of(engine)
    os.kill(pid, signal.SIGKILL)
    await_that(lambda: "three 2" in lines(file))
    Path(f"{file}.go").touch()
    events = list(listen(steps.pk))

    assert_resumed_after_step_two(steps, file)
    assert [data["attempt"] for name, data in events if name == "metadata"] == [1, 2]


def test_an_agent_that_ends_its_process_is_given_up_after_three_attempts(
    engine, revision, file, listen
):
    thread = make_thread(revision)
    run = make_run(thread, "die", kwargs={"input": {"file": str(file)}, "durability": "sync"})

    execute(engine, thread)
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert lines(file) == ["last words 1", "last words 2", "last words 3"]
    assert (run.status, run.attempt, thread.status) == ("error", 3, "error")
    assert run.error["error"] == "GraphHostDied"
    assert thread.state["next"] == ["end_the_process"]  # read from what its attempts saved
    assert events[-1] == ("end", {"status": "error"})


def test_a_worker_that_is_asked_to_leave_gives_its_run_back_between_steps(
    engines, steps, file, listen, monkeypatch
):
    asked, drain = threading.Event(), RunSession.drain
    monkeypatch.setattr(RunSession, "drain", lambda session: (drain(session), asked.set()))
    first = engines("worker@one")
    execute(first, steps.thread)
    await_that(lambda: "three 1" in lines(file))

    leaving = first.submit(first.engine.drain(60))
    assert asked.wait(60)
    await_that(lambda: not any(host.link._unsent_bytes for host in first.engine.hosts.hosts))
    Path(f"{file}.go").touch()
    leaving.result(60)
    first.wait_for(first.engine.writer.flush())
    steps.refresh_from_db()
    assert (steps.status, steps.lease_owner) == ("pending", "")
    second = engines("worker@two")
    execute(second, steps.thread)
    list(listen(steps.pk))

    steps.refresh_from_db()
    assert steps.attempt == 2
    assert Counter(line.split()[0] for line in lines(file)) == Counter(STEPS)


def leased(revision, until: float, **fields):
    """A run of another worker, whose lease ends so many seconds from now."""
    end = timezone.now() + timedelta(seconds=until)
    fields = {"status": "running", "attempt": 1, "lease_owner": "gone", **fields}
    return make_run(make_thread(revision), "collect", lease_expires_at=end, **fields)


database_up_for_long = pytest.mark.usefixtures("database_up_for_long")


@pytest.fixture(name="database_up_for_long")
def _database_up_for_long(settings):
    """As far as leases are concerned."""
    settings.AGENT_RUN_LEASE_SECONDS = 0.001


@database_up_for_long
def test_the_sweeper_returns_runs_whose_lease_expired(revision):
    lost, held = leased(revision, -1), leased(revision, 60, lease_owner="here")
    worn = leased(revision, -1, attempt=4, crash_count=2)

    assert recovery.requeue_lost_runs() == {lost.thread_id, worn.thread_id}
    assert recovery.requeue_lost_runs() == set()

    for run in (lost, held, worn):
        run.refresh_from_db()
    assert (lost.status, lost.attempt, lost.crash_count, lost.lease_owner) == ("pending", 1, 1, "")
    assert (held.status, held.crash_count, held.lease_owner) == ("running", 0, "here")
    assert (worn.status, worn.crash_count) == ("pending", 3)
    pauses = [run.available_at - run.updated_at for run in (lost, worn)]
    assert [round(pause.total_seconds(), 3) for pause in pauses] == [0, 2]


def test_leases_that_ran_out_while_the_database_was_away_hold_as_long_again(revision, settings):
    settings.AGENT_RUN_LEASE_SECONDS = 10_000_000  # longer than this server is up
    leased(revision, -1)

    assert recovery.requeue_lost_runs() == set()


def test_who_claims_a_run_that_was_lost_too_often_ends_it(engine, revision, listen):
    worn = leased(revision, -1, status="pending", lease_owner="", attempt=5, crash_count=3)

    execute(engine, worn.thread)
    events = list(listen(worn.pk))

    worn.refresh_from_db()
    worn.thread.refresh_from_db()
    assert (worn.status, worn.error["error"]) == ("error", "WorkerLost")
    assert worn.error["message"].endswith("lost in each of 3 attempts.")
    assert (worn.thread.status, worn.thread.error) == ("error", worn.error)
    assert [name for name, _ in events] == ["error", "end"]


WORKER = """
import sys, threading
import django
django.setup()
from pathlib import Path
from uuid import UUID
from apps.agent_runtime.hosts.launch import launch_unconfined
from apps.agent_runtime.engine_thread import EngineThread
node, agent, thread = sys.argv[1:]
engine = EngineThread(node, lambda _: launch_unconfined(Path(agent)))
if thread:
    engine.call(engine.engine.claim_or_queue, UUID(thread))
print("up", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def workers(revision, tmp_path):
    """Starts real processes with an engine each."""
    started: list[subprocess.Popen[bytes]] = []
    agent = Path(__file__).parent / "agent"
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}"

    def start(node: str, thread: UUID | None = None, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, node, str(agent), str(thread or "")],
            env=os.environ
            | {
                "DJANGO_SETTINGS_MODULE": "config.settings",
                "DATABASE_URL": url,
                "REDIS_URL": django_settings.REDIS_URL,
                "DATA_DIR": str(tmp_path),
            }
            | env,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert read_line(process.stdout) == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(30)
        process.stdout.close()


def test_a_worker_killed_in_the_middle_is_followed_at_once_by_the_next_of_its_name(
    workers, steps, file, listen
):
    first = workers("worker@here", steps.thread_id)
    await_that(lambda: "three 1" in lines(file))
    await_that(lambda: Checkpoint.objects.filter(thread=steps.thread).count() == 4)

    first.kill()
    first.wait(30)
    workers("worker@here")
    await_that(lambda: "three 2" in lines(file), seconds=15)  # the lease would last 20
    Path(f"{file}.go").touch()
    list(listen(steps.pk))

    assert_resumed_after_step_two(steps, file)


@database_up_for_long
def test_a_worker_paused_past_its_lease_writes_nothing_when_it_goes_on(
    workers, engines, steps, file, listen
):
    paused = workers("worker@one", steps.thread_id, AGENT_RUN_LEASE_SECONDS="3")
    await_that(lambda: "three 1" in lines(file))
    await_that(lambda: Checkpoint.objects.filter(thread=steps.thread).count() == 4)
    paused.send_signal(signal.SIGSTOP)

    await_that(lambda: recovery.requeue_lost_runs() == {steps.thread_id})
    second = engines("worker@two", AGENT_RUN_LEASE_SECONDS=20)
    execute(second, steps.thread)
    await_that(lambda: "three 2" in lines(file))
    Path(f"{file}.go").touch()
    list(listen(steps.pk))
    assert_resumed_after_step_two_but_for_the_paused(steps, file)
    before = list(Checkpoint.objects.order_by("checkpoint_id").values())

    paused.send_signal(signal.SIGCONT)
    await_that(lambda: "five 1" in lines(file))
    # Its engine says so in its log, then has nothing left to do with the run.
    time.sleep(1)

    steps.refresh_from_db()
    assert (steps.status, steps.attempt) == ("success", 2)
    assert list(Checkpoint.objects.order_by("checkpoint_id").values()) == before


def assert_resumed_after_step_two_but_for_the_paused(run, file):
    """The paused worker's host runs on meanwhile; each of its steps too happens once."""
    run.refresh_from_db()
    run.thread.refresh_from_db()
    assert (run.status, run.attempt) == ("success", 2)
    assert run.thread.values["trail"] == STEPS
    assert max(Counter(lines(file)).values()) == 1
    assert [line for line in lines(file) if line.endswith("2")] == ["three 2", "four 2", "five 2"]


def test_threads_of_stateless_runs_go_a_while_after_their_run(revision):
    past = timezone.now() - timedelta(minutes=3)
    gone = make_thread(revision, temporary=True, updated_at=past)
    make_run(gone, "x", status="success")
    CheckpointBlob.objects.create(thread=gone, namespace="", channel="c", version="1", blob=b"1")
    busy = make_thread(revision, temporary=True, updated_at=past)
    make_run(busy, "x", status="running", attempt=1)
    fresh = make_thread(revision, temporary=True)
    kept = make_thread(revision, updated_at=past)

    assert recovery.purge_temporary_threads() == 1
    assert recovery.purge_temporary_threads() == 0

    left = set(Thread.unscoped.values_list("pk", flat=True))
    assert left == {busy.pk, fresh.pk, kept.pk}
    assert not CheckpointBlob.objects.exists()


@pytest.mark.parametrize(("is_last", "left"), [(True, 0), (False, 1)])
def test_checkpoints_of_a_run_that_ends_for_good_in_the_same_batch_are_not_written(
    engine, revision, is_last, left
):
    run = make_run(make_thread(revision), "collect", status="running", attempt=1)
    token = FencingToken(run.pk, 1)
    put = CheckpointEntry(token, "", uuid4(), None, "msgpack", b"1", "{}", "{}", [], 1)
    ending = RunEnd(token, run.thread_id, "success", "idle", None, "{}", "{}", "{}", is_last)

    async def both():
        engine.engine.writer.put(put)
        await engine.engine.writer.write(ending)

    engine.wait_for(both())

    run.refresh_from_db()
    assert run.status == "success"
    assert Checkpoint.objects.filter(thread=run.thread).count() == left


def test_neighbours_of_a_run_that_kills_its_host_lose_no_attempt(engine, revision, file, listen):
    gate = {"file": f"{file}.neighbours", "wait_at": "three"}
    neighbours = [
        make_run(make_thread(revision), "steps", kwargs={"input": gate}) for _ in range(3)
    ]
    for run in neighbours:
        execute(engine, run.thread)
    await_that(lambda: lines(Path(gate["file"])).count("three 1") == 3)

    culprit = make_run(make_thread(revision), "die", kwargs={"input": {"file": str(file)}})
    execute(engine, culprit.thread)
    list(listen(culprit.pk))
    Path(f"{gate['file']}.go").touch()
    for run in neighbours:
        list(listen(run.pk))

    culprit.refresh_from_db()
    assert (culprit.status, culprit.error["error"]) == ("error", "GraphHostDied")
    assert (culprit.crash_count, culprit.attempt) == (2, 4)  # the first death was anybody's
    for run in neighbours:
        run.refresh_from_db()
        assert (run.status, run.crash_count, run.attempt) == ("success", 0, 2)
    assert engine.engine.isolated_hosts.hosts == []


def test_a_host_that_cannot_be_started_for_a_moment_is_started_again(
    engines, revision, listen, monkeypatch
):
    monkeypatch.setattr("apps.agent_runtime.runs.run_completion.START_RETRY_SECONDS", 0.05)
    engine = engines()
    start, failures = engine.engine.hosts._launcher, [OSError("no more processes")] * 2

    def launch(revision_id):
        if failures:
            raise failures.pop()
        return start(revision_id)

    engine.engine.hosts._launcher = launch
    run = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})

    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert (run.status, run.attempt, run.crash_count) == ("success", 3, 2)


def test_a_run_that_begins_on_a_host_that_has_just_died_is_tried_again(engine, revision, listen):
    first = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})
    execute(engine, first.thread)
    list(listen(first.pk))
    [pid] = hosts_of(engine)
    run = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})

    os.kill(pid, signal.SIGKILL)
    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "success"


def test_a_run_that_a_leaving_worker_gives_back_loses_no_attempt(engines, steps, file, listen):
    for number in range(4):  # more often than a run may be lost
        worker = engines(f"worker@{number}")
        execute(worker, steps.thread)
        await_that(lambda number=number: f"three {number + 1}" in lines(file))
        worker.stop(0.2)
    last = engines("worker@last")
    Path(f"{file}.go").touch()
    execute(last, steps.thread)
    list(listen(steps.pk))

    steps.refresh_from_db()
    assert (steps.status, steps.crash_count, steps.attempt) == ("success", 0, 5)


def test_a_worker_that_cannot_reach_the_database_stops_its_runs_in_time(
    engines, steps, file, monkeypatch
):
    engine = engines(AGENT_RUN_LEASE_SECONDS=1)
    execute(engine, steps.thread)
    await_that(lambda: "three 1" in lines(file))

    async def unreachable(self):
        raise OperationalError("timeout expired")

    monkeypatch.setattr("apps.agent_runtime.leases.Leases._renew", unreachable)

    await_that(lambda: not engine.engine.sessions, seconds=30)
    assert hosts_of(engine) == []


def test_a_database_that_is_down_stops_no_run(engines, steps, file, listen, monkeypatch):
    engine = engines(AGENT_RUN_LEASE_SECONDS=1)
    execute(engine, steps.thread)
    await_that(lambda: "three 1" in lines(file))
    tries = []

    async def refused(self):
        tries.append(1)
        raise OperationalError("connection failed: Connection refused")

    monkeypatch.setattr("apps.agent_runtime.leases.Leases._renew", refused)

    await_that(lambda: len(tries) > 8)  # twice as long as the lease
    Path(f"{file}.go").touch()
    list(listen(steps.pk))
    assert lines(file) == [f"{step} 1" for step in STEPS]
