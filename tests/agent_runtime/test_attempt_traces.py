"""The traces of attempts whose process ended before it reported their end."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

from django.utils import timezone

from apps.agent_server import attempt_traces, recovery
from apps.agent_server.models import UnreportedAttempt
from apps.agent_server.run_state_sql import LOST_ERROR
from apps.trace_store import run_store
from tests.agent_runtime.factories import execute, make_run, make_thread
from tests.factories.tracing import ingest, read_run, start_fields, wire_run
from tests.installation import wait_until


def list_unreported():
    rows = UnreportedAttempt.unscoped.order_by("created_at")
    return list(rows.values_list("run_id", "attempt", "error"))


def wait_for_file(file: Path, line: str) -> None:
    wait_until(lambda: file.exists() and line in file.read_text().splitlines())


def add_unreported(workspace, run_id, *, attempt=1, error=LOST_ERROR, due_in=0):
    UnreportedAttempt(
        workspace=workspace,
        run_id=run_id,
        attempt=attempt,
        error=error,
        ended_at=timezone.now(),
        due_at=timezone.now() + timedelta(seconds=due_in),
    ).save(force_insert=True)


def test_the_open_runs_of_a_lost_attempt_end_with_an_error(revision):
    workspace, run_id = revision.workspace, uuid4()
    root = wire_run(id=str(run_id))
    ended, open_child = wire_run(root), wire_run(root)
    ingest(workspace, start_fields(root), ended, start_fields(open_child))
    add_unreported(workspace, run_id)

    assert attempt_traces.close_due() == 2
    assert attempt_traces.close_due() == 0

    rows = {row.id: row for row in run_store.fetch_trace(workspace.pk, run_id)}
    assert len(rows) == 3
    assert {str(row.id) for row in rows.values() if row.error_preview == LOST_ERROR} == {
        root["id"],
        open_child["id"],
    }
    assert all(row.end_time is not None for row in rows.values())


def test_only_the_runs_of_the_attempt_end_if_its_trace_has_another_root(revision):
    workspace, run_id = revision.workspace, uuid4()
    root = wire_run()
    top = wire_run(root, id=str(run_id))
    child, sibling = wire_run(top), wire_run(root)
    ingest(workspace, *(start_fields(run) for run in (root, top, child, sibling)))
    add_unreported(workspace, run_id)

    assert attempt_traces.close_due() == 2

    rows = run_store.fetch_trace(workspace.pk, UUID(root["id"]))
    ended = {str(row.id) for row in rows if row.end_time is not None}
    assert ended == {top["id"], child["id"]}


def test_a_run_that_is_stored_late_ends_at_a_later_check(revision):
    workspace, run_id = revision.workspace, uuid4()
    root = wire_run(id=str(run_id))
    ingest(workspace, start_fields(root))
    add_unreported(workspace, run_id)
    assert attempt_traces.close_due() == 1
    late = wire_run(root)
    ingest(workspace, start_fields(late))

    closed = []
    for _ in range(3):
        UnreportedAttempt.unscoped.update(due_at=timezone.now())
        closed.append(attempt_traces.close_due())

    assert closed == [1, 0, 0]
    assert read_run(workspace, late["id"]).row.error_preview == LOST_ERROR
    assert list_unreported() == []


def test_open_runs_of_an_agent_run_that_succeeded_end_without_an_error(revision):
    run_id = uuid4()
    ingest(revision.workspace, start_fields(wire_run(id=str(run_id))))
    add_unreported(revision.workspace, run_id, error="")

    assert attempt_traces.close_due() == 1

    row = read_run(revision.workspace, run_id).row
    assert (str(row.status), row.error_preview) == ("success", None)


def test_an_attempt_whose_process_reported_its_end_needs_no_further_check(revision):
    run_id = uuid4()
    ingest(revision.workspace, wire_run(id=str(run_id)))
    add_unreported(revision.workspace, run_id)

    assert attempt_traces.close_due() == 0

    assert read_run(revision.workspace, run_id).row.error_preview is None
    assert list_unreported() == []


def test_a_trace_stays_open_while_requests_of_its_process_may_arrive(revision):
    run_id = uuid4()
    ingest(revision.workspace, start_fields(wire_run(id=str(run_id))))
    add_unreported(revision.workspace, run_id, due_in=1)

    assert attempt_traces.close_due() == 0

    assert read_run(revision.workspace, run_id).row.end_time is None
    assert len(list_unreported()) == 1


def test_only_the_trace_of_the_lost_attempt_in_its_workspace_is_closed(revision):
    run_id, workspace = uuid4(), revision.workspace
    retry_id = attempt_traces.build_trace_id(run_id, 2)
    other_trace = wire_run()
    for root in (wire_run(id=str(run_id)), wire_run(id=str(retry_id)), other_trace):
        ingest(workspace, start_fields(root))
    add_unreported(workspace, run_id)

    assert attempt_traces.close_due() == 1

    assert read_run(workspace, run_id).row.error_preview == LOST_ERROR
    assert read_run(workspace, retry_id).row.end_time is None
    assert read_run(workspace, other_trace["id"]).row.end_time is None


def test_an_attempt_on_a_killed_host_is_recorded_as_lost(engine, revision, file, listen):
    kwargs = {"input": {"file": str(file), "wait_at": "three"}}
    run = make_run(make_thread(revision), "steps", kwargs=kwargs)
    execute(engine, run.thread)
    wait_for_file(file, "three 1")

    [host] = engine.engine.hosts.hosts
    os.kill(host.pid, signal.SIGKILL)
    wait_for_file(file, "three 2")
    Path(f"{file}.go").touch()
    list(listen(run.pk))

    assert list_unreported() == [(run.pk, 1, LOST_ERROR)]


def test_each_attempt_that_ends_its_process_is_recorded(engine, revision, file, listen):
    kwargs = {"input": {"file": str(file)}, "durability": "sync"}
    run = make_run(make_thread(revision), "die", kwargs=kwargs)

    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert list_unreported() == [
        (run.pk, 1, LOST_ERROR),
        (run.pk, 2, LOST_ERROR),
        (run.pk, 3, run.error["message"]),
    ]


def test_a_run_that_ended_shortly_before_its_host_was_killed_is_recorded(engine, revision, listen):
    run = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})
    execute(engine, run.thread)
    list(listen(run.pk))

    [host] = engine.engine.hosts.hosts
    os.kill(host.pid, signal.SIGKILL)

    wait_until(list_unreported, "the record of the run")
    assert list_unreported() == [(run.pk, 1, "")]


def test_runs_of_a_host_that_exits_on_request_are_not_recorded(engines, revision, listen):
    engine = engines("worker@one")
    run = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})
    execute(engine, run.thread)
    list(listen(run.pk))

    engine.stop(0)

    assert list_unreported() == []


def test_runs_with_an_expired_lease_and_recently_ended_runs_are_recorded(revision, settings):
    settings.AGENT_RUN_LEASE_SECONDS = 0
    now = timezone.now()
    lost = make_run(
        make_thread(revision),
        "x",
        status="running",
        attempt=2,
        lease_owner="dead",
        lease_expires_at=now - timedelta(seconds=1),
    )
    recent = make_run(make_thread(revision), "x", status="success", attempt=1, ended_at=now)
    past = now - timedelta(minutes=3)
    make_run(make_thread(revision), "x", status="success", attempt=1, ended_at=past)

    assert recovery.requeue_lost_runs() == {lost.thread_id}

    assert set(list_unreported()) == {(lost.pk, 2, LOST_ERROR), (recent.pk, 1, "")}


def test_nothing_is_recorded_for_a_deployment_without_tracing(revision, settings):
    settings.AGENT_RUN_LEASE_SECONDS = 0
    revision.deployment.tracing = False
    revision.deployment.save()
    past = timezone.now() - timedelta(seconds=1)
    run = make_run(make_thread(revision), "x", status="running", attempt=1, lease_expires_at=past)

    assert recovery.requeue_lost_runs() == {run.thread_id}

    assert list_unreported() == []


def test_a_worker_that_succeeds_a_dead_one_records_its_runs(engines, revision, listen):
    dead = make_run(
        make_thread(revision), "collect", status="running", attempt=1, lease_owner="worker@one:0"
    )
    ended = make_run(
        make_thread(revision), "collect", status="success", attempt=1, ended_at=timezone.now()
    )

    engines("worker@one")
    list(listen(dead.pk))

    assert {(dead.pk, 1, LOST_ERROR), (ended.pk, 1, "")} <= set(list_unreported())
