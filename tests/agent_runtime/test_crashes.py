"""Crashes of graph hosts and workers, and their effect on runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
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
from tests.agent_runtime.factories import execute, let_continue, make_run, make_thread
from tests.child_output import read_line
from tests.installation import wait_until

STEPS = ["one", "two", "three", "four", "five"]


def read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def steps(revision, file):
    """A run of five steps that waits in its third one for a file."""
    thread = make_thread(revision)
    kwargs = {"input": {"file": str(file), "wait_at": "three"}}
    return make_run(thread, "steps", kwargs=kwargs)


def host_pids(engine):
    return [host._process.pid for host in engine.engine.hosts.hosts]


def assert_resumed_after_step_two(run, file):
    run.refresh_from_db()
    run.thread.refresh_from_db()
    assert (run.status, run.attempt) == ("success", 2)
    assert read_lines(file) == ["one 1", "two 1", "three 1", "three 2", "four 2", "five 2"]
    assert run.thread.values["trail"] == STEPS
    assert run.thread.status == "idle"
    metadata = Checkpoint.objects.filter(thread=run.thread, namespace="").order_by("checkpoint_id")
    assert [m["step"] for m in metadata.values_list("metadata", flat=True)] == list(range(-1, 6))


def test_a_stale_attempt_writes_nothing_to_run_and_checkpoints(engine, revision):
    thread = make_thread(revision)
    run = make_run(thread, "collect", status="running", attempt=2, lease_owner="another")
    stale, checkpoint_id = FencingToken(run.pk, 1), uuid4()
    put = CheckpointEntry(
        stale,
        "",
        checkpoint_id,
        None,
        "msgpack",
        b"1",
        "{}",
        "{}",
        [("c", "1", "msgpack", b"1")],
        1,
    )
    writes = TaskWritesEntry(stale, "", checkpoint_id, [("task", 0, "c", "msgpack", b"1", "")], 1)
    ending = RunEnd(stale, thread.pk, "success", "idle", None, "{}", "{}", "{}")

    for entry in (put, writes, ending):
        with pytest.raises(StaleToken):
            engine.run(engine.engine.writer.write(entry))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert (run.status, run.attempt, run.lease_owner) == ("running", 2, "another")
    assert (thread.status, thread.values, thread.state) == ("busy", None, None)
    for table in (Checkpoint, CheckpointBlob, CheckpointWrite):
        assert not table.objects.filter(thread=thread).exists()


def test_a_stale_entry_does_not_fail_the_other_entries_of_its_batch(engine, revision):
    current = make_run(make_thread(revision), "collect", status="running", attempt=1)
    other = make_run(make_thread(revision), "collect", status="running", attempt=2)
    checkpoint_id = uuid4()

    async def write_both():
        entries = [
            CheckpointEntry(
                FencingToken(run.pk, 1), "", checkpoint_id, None, "msgpack", b"1", "{}", "{}", [], 1
            )
            for run in (current, other)
        ]
        for entry in entries:
            engine.engine.writer.put(entry)
        await engine.engine.writer.flush()

    engine.run(write_both())

    assert list(Checkpoint.objects.values_list("thread", flat=True)) == [current.thread_id]


def test_a_value_that_cannot_be_stored_does_not_fail_another_run(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "collect", kwargs={"input": {"items": ["before \x7f after"]}})
    bad = make_run(make_thread(revision), "collect", status="running", attempt=1)
    checkpoint_id = uuid4()

    async def poison():
        token = FencingToken(bad.pk, 1)
        put = CheckpointEntry(
            token, "a\0b", checkpoint_id, None, "msgpack", b"1", "{}", "{}", [], 1
        )
        engine.engine.writer.put(put)
        engine.engine.claim_or_queue(thread.pk)

    engine.run(poison())
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "success"
    assert not Checkpoint.objects.filter(thread=bad.thread).exists()


def test_a_run_resumes_from_its_last_checkpoint_after_its_host_is_killed(
    engine, steps, file, listen
):
    execute(engine, steps.thread)
    wait_until(lambda: "three 1" in read_lines(file))
    engine.run(engine.engine.writer.flush())

    [pid] = host_pids(engine)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "three 2" in read_lines(file))
    let_continue(file)
    events = list(listen(steps.pk))

    assert_resumed_after_step_two(steps, file)
    assert [data["attempt"] for name, data in events if name == "metadata"] == [1, 2]


def test_a_run_that_ends_its_process_fails_after_three_attempts(engine, revision, file, listen):
    thread = make_thread(revision)
    run = make_run(thread, "die", kwargs={"input": {"file": str(file)}, "durability": "sync"})

    execute(engine, thread)
    events = list(listen(run.pk))

    run.refresh_from_db()
    thread.refresh_from_db()
    assert read_lines(file) == ["last words 1", "last words 2", "last words 3"]
    assert (run.status, run.attempt, thread.status) == ("error", 3, "error")
    assert run.error["error"] == "GraphHostDied"
    assert thread.state["next"] == ["exit_process"]  # read from what its attempts saved
    assert events[-1] == ("end", {"status": "error"})


def test_a_draining_worker_releases_its_run_between_steps(
    engines, steps, file, listen, monkeypatch
):
    drain_requested, drain = threading.Event(), RunSession.drain
    monkeypatch.setattr(
        RunSession, "drain", lambda session: (drain(session), drain_requested.set())
    )
    first = engines("worker@one")
    execute(first, steps.thread)
    wait_until(lambda: "three 1" in read_lines(file))

    draining = first.submit(first.engine.drain(10))
    assert drain_requested.wait(60)
    wait_until(lambda: not any(host.link._unsent_bytes for host in first.engine.hosts.hosts))
    let_continue(file)
    draining.result()
    first.run(first.engine.writer.flush())
    steps.refresh_from_db()
    assert (steps.status, steps.lease_owner) == ("pending", "")
    second = engines("worker@two")
    execute(second, steps.thread)
    list(listen(steps.pk))

    steps.refresh_from_db()
    assert steps.attempt == 2
    assert Counter(line.split()[0] for line in read_lines(file)) == Counter(STEPS)


def make_leased_run(revision, seconds_left: float, **fields):
    """Create a run that another worker has leased for `seconds_left` more seconds."""
    end = timezone.now() + timedelta(seconds=seconds_left)
    fields = {"status": "running", "attempt": 1, "lease_owner": "gone", **fields}
    return make_run(make_thread(revision), "collect", lease_expires_at=end, **fields)


database_up_for_long = pytest.mark.usefixtures("database_up_for_long")


@pytest.fixture(name="database_up_for_long")
def _database_up_for_long(settings):
    """Shorten the lease so that the database counts as up for longer than a lease."""
    settings.AGENT_RUN_LEASE_SECONDS = 0.001


@database_up_for_long
def test_the_sweeper_requeues_runs_whose_lease_expired(revision):
    lost_run, leased_run = (
        make_leased_run(revision, -1),
        make_leased_run(revision, 60, lease_owner="here"),
    )
    exhausted = make_leased_run(revision, -1, attempt=4, crash_count=2)

    assert recovery.requeue_lost_runs() == {lost_run.thread_id, exhausted.thread_id}
    assert recovery.requeue_lost_runs() == set()

    for run in (lost_run, leased_run, exhausted):
        run.refresh_from_db()
    assert (lost_run.status, lost_run.attempt, lost_run.crash_count, lost_run.lease_owner) == (
        "pending",
        1,
        1,
        "",
    )
    assert (leased_run.status, leased_run.crash_count, leased_run.lease_owner) == (
        "running",
        0,
        "here",
    )
    assert (exhausted.status, exhausted.crash_count) == ("pending", 3)
    pauses = [run.available_at - run.updated_at for run in (lost_run, exhausted)]
    assert [round(pause.total_seconds()) for pause in pauses] == [0, 2]


def test_leases_that_expired_during_a_database_outage_are_kept(revision, settings):
    settings.AGENT_RUN_LEASE_SECONDS = 10_000_000  # longer than this server is up
    make_leased_run(revision, -1)

    assert recovery.requeue_lost_runs() == set()


def test_claiming_a_run_that_crashed_too_often_fails_it(engine, revision, listen):
    exhausted = make_leased_run(
        revision, -1, status="pending", lease_owner="", attempt=5, crash_count=3
    )

    execute(engine, exhausted.thread)
    events = list(listen(exhausted.pk))

    exhausted.refresh_from_db()
    exhausted.thread.refresh_from_db()
    assert (exhausted.status, exhausted.error["error"]) == ("error", "WorkerLost")
    assert exhausted.error["message"].endswith("lost in each of 3 attempts.")
    assert (exhausted.thread.status, exhausted.thread.error) == ("error", exhausted.error)
    assert [name for name, _ in events] == ["error", "end"]


WORKER = """
import sys
import django
django.setup()
from pathlib import Path
from uuid import UUID
from tests.agent_runtime.host_launch import launch_unconfined
from apps.agent_runtime.engine_thread import EngineThread
node, agent, thread = sys.argv[1:]
engine = EngineThread(node, lambda _: launch_unconfined(Path(agent)))
if thread:
    engine.call(engine.engine.claim_or_queue, UUID(thread))
print("up", flush=True)
sys.stdin.readline()
engine.stop(30)
"""


@pytest.fixture
def workers(revision, tmp_path):
    """Return a function that starts a process with an engine."""
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
                "WARM_GRAPH_HOSTS": "0",
                "DATA_DIR": str(tmp_path),
            }
            | env,
            stdin=subprocess.PIPE,
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
        for stream in (process.stdin, process.stdout):
            stream.close()


def test_a_restarted_worker_resumes_its_runs_before_the_lease_expires(workers, steps, file, listen):
    lease = {"AGENT_RUN_LEASE_SECONDS": "300"}
    first = workers("worker@here", steps.thread_id, **lease)
    wait_until(lambda: "three 1" in read_lines(file))
    wait_until(lambda: Checkpoint.objects.filter(thread=steps.thread).count() == 4)

    first.kill()
    first.wait()
    workers("worker@here", **lease)
    wait_until(lambda: "three 2" in read_lines(file))
    let_continue(file)
    list(listen(steps.pk))

    assert_resumed_after_step_two(steps, file)


@database_up_for_long
def test_a_worker_paused_past_its_lease_writes_nothing_when_it_continues(
    workers, engines, steps, file, listen
):
    paused = workers("worker@one", steps.thread_id, AGENT_RUN_LEASE_SECONDS="1")
    wait_until(lambda: "three 1" in read_lines(file))
    wait_until(lambda: Checkpoint.objects.filter(thread=steps.thread).count() == 4)
    paused.send_signal(signal.SIGSTOP)

    wait_until(lambda: recovery.requeue_lost_runs() == {steps.thread_id})
    second = engines("worker@two", AGENT_RUN_LEASE_SECONDS=20)
    execute(second, steps.thread)
    wait_until(lambda: "three 2" in read_lines(file))
    let_continue(file)
    list(listen(steps.pk))
    assert_second_attempt_resumed_after_step_two(steps, file)
    before = list(Checkpoint.objects.order_by("checkpoint_id").values())

    paused.send_signal(signal.SIGCONT)
    wait_until(lambda: "five 1" in read_lines(file))
    # It ends after all that it would write is written.
    paused.stdin.close()
    assert paused.wait(120) == 0

    steps.refresh_from_db()
    assert (steps.status, steps.attempt) == ("success", 2)
    assert list(Checkpoint.objects.order_by("checkpoint_id").values()) == before


def assert_second_attempt_resumed_after_step_two(run, file):
    """The paused worker's host continues meanwhile, so its lines are in the file as well."""
    run.refresh_from_db()
    run.thread.refresh_from_db()
    assert (run.status, run.attempt) == ("success", 2)
    assert run.thread.values["trail"] == STEPS
    assert max(Counter(read_lines(file)).values()) == 1
    assert [line for line in read_lines(file) if line.endswith("2")] == [
        "three 2",
        "four 2",
        "five 2",
    ]


def test_temporary_threads_are_purged_some_time_after_their_run(revision):
    past = timezone.now() - timedelta(minutes=3)
    expired = make_thread(revision, temporary=True, updated_at=past)
    make_run(expired, "x", status="success")
    CheckpointBlob.objects.create(thread=expired, namespace="", channel="c", version="1", blob=b"1")
    busy = make_thread(revision, temporary=True, updated_at=past)
    make_run(busy, "x", status="running", attempt=1)
    recent = make_thread(revision, temporary=True)
    persistent = make_thread(revision, updated_at=past)

    assert recovery.purge_temporary_threads() == 1
    assert recovery.purge_temporary_threads() == 0

    remaining = set(Thread.unscoped.values_list("pk", flat=True))
    assert remaining == {busy.pk, recent.pk, persistent.pk}
    assert not CheckpointBlob.objects.exists()


@pytest.mark.parametrize(("is_last", "expected"), [(True, 0), (False, 1)])
def test_checkpoints_in_the_batch_of_a_final_run_end_are_not_written(
    engine, revision, is_last, expected
):
    run = make_run(make_thread(revision), "collect", status="running", attempt=1)
    token = FencingToken(run.pk, 1)
    put = CheckpointEntry(token, "", uuid4(), None, "msgpack", b"1", "{}", "{}", [], 1)
    ending = RunEnd(token, run.thread_id, "success", "idle", None, "{}", "{}", "{}", is_last)

    async def write_both():
        engine.engine.writer.put(put)
        await engine.engine.writer.write(ending)

    engine.run(write_both())

    run.refresh_from_db()
    assert run.status == "success"
    assert Checkpoint.objects.filter(thread=run.thread).count() == expected


def test_other_runs_on_a_crashed_host_are_not_charged_for_the_crash(engine, revision, file, listen):
    gate = {"file": f"{file}.neighbours", "wait_at": "three"}
    neighbours = [
        make_run(make_thread(revision), "steps", kwargs={"input": gate}) for _ in range(3)
    ]
    for run in neighbours:
        execute(engine, run.thread)
    wait_until(lambda: read_lines(Path(gate["file"])).count("three 1") == 3)

    culprit = make_run(make_thread(revision), "die", kwargs={"input": {"file": str(file)}})
    execute(engine, culprit.thread)
    list(listen(culprit.pk))
    let_continue(Path(gate["file"]))
    for run in neighbours:
        list(listen(run.pk))

    culprit.refresh_from_db()
    assert (culprit.status, culprit.error["error"]) == ("error", "GraphHostDied")
    assert (culprit.crash_count, culprit.attempt) == (2, 4)  # the first crash had no known culprit
    for run in neighbours:
        run.refresh_from_db()
        assert (run.status, run.crash_count, run.attempt) == ("success", 0, 2)
    assert engine.engine.isolated_hosts.hosts == []


def test_a_host_start_that_fails_temporarily_is_retried(engines, revision, listen, monkeypatch):
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


def test_a_run_assigned_to_a_host_that_just_died_is_retried(engine, revision, listen):
    first = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})
    execute(engine, first.thread)
    list(listen(first.pk))
    [pid] = host_pids(engine)
    run = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})

    os.kill(pid, signal.SIGKILL)
    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "success"


def test_a_run_released_by_draining_workers_counts_no_crash(engines, steps, file, listen):
    for number in range(4):  # more often than a run may be lost
        worker = engines(f"worker@{number}")
        execute(worker, steps.thread)
        wait_until(lambda number=number: f"three {number + 1}" in read_lines(file))
        worker.stop(0.2)
    last = engines("worker@last")
    let_continue(file)
    execute(last, steps.thread)
    list(listen(steps.pk))

    steps.refresh_from_db()
    assert (steps.status, steps.crash_count, steps.attempt) == ("success", 0, 5)


def test_a_worker_without_database_stops_its_runs_before_the_lease_expires(
    engines, steps, file, monkeypatch
):
    engine = engines(AGENT_RUN_LEASE_SECONDS=1)
    execute(engine, steps.thread)
    wait_until(lambda: "three 1" in read_lines(file))

    async def unreachable(self):
        raise OperationalError("timeout expired")

    monkeypatch.setattr("apps.agent_runtime.leases.Leases._renew", unreachable)

    wait_until(lambda: not engine.engine.sessions)
    assert host_pids(engine) == []


def test_a_refused_database_connection_stops_no_run(engines, steps, file, listen, monkeypatch):
    engine = engines(AGENT_RUN_LEASE_SECONDS=1)
    execute(engine, steps.thread)
    wait_until(lambda: "three 1" in read_lines(file))
    tries = []

    async def refused(self):
        tries.append(1)
        raise OperationalError("connection failed: Connection refused")

    monkeypatch.setattr("apps.agent_runtime.leases.Leases._renew", refused)

    wait_until(lambda: len(tries) > 8)  # twice as long as the lease
    let_continue(file)
    list(listen(steps.pk))
    assert read_lines(file) == [f"{step} 1" for step in STEPS]
