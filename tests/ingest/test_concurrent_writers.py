"""Concurrent writers, each on its own connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connections

from apps.core.ids import uuid7
from apps.trace_store import Status, run_store
from apps.trace_store.postgres import run_counts
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.factories.tracing import count_stored_runs, end_fields, read_run, start_fields, wire_run

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=False)


def call_concurrently(calls: list[Callable[[], Any]]) -> list[Any]:
    def own_connection(call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(own_connection, calls))


def test_a_new_project_is_created_once(workspace):
    project_ids = call_concurrently([lambda: ensure_project(workspace.pk, "new").pk] * 16)

    assert len(set(project_ids)) == 1
    assert Project.objects.for_workspace(workspace).count() == 1


def test_runs_written_concurrently_are_stored_once(api, workspace):
    ensure_project(workspace.pk, "default")
    runs = [wire_run() for _ in range(30)]
    chance = random.Random(7)
    bodies = []
    for _ in range(24):
        sample = chance.sample(runs, 20)
        half = chance.randrange(20)
        bodies.append(
            {
                "post": [start_fields(r) for r in sample[:half]],
                "patch": [end_fields(r) for r in sample[half:]],
            }
        )
    bodies.append({"post": [start_fields(r) for r in runs], "patch": [end_fields(r) for r in runs]})
    chance.shuffle(bodies)

    responses = call_concurrently(
        [lambda body=body: api.post("/runs/batch", body) for body in bodies]
    )

    assert {response.status_code for response in responses} == {202}
    assert count_stored_runs() == 30
    stored = [read_run(workspace, run["id"]).row for run in runs]
    assert {(row.status, row.name) for row in stored} == {(Status.SUCCESS, "step")}
    stats = run_store.project_stats(workspace.pk, [stored[0].project_id])
    assert stats[stored[0].project_id].run_count == 30


def test_a_run_written_concurrently_with_different_times_is_stored_once(api, workspace):
    project = ensure_project(workspace.pk, "default")
    now = datetime.now(UTC)
    ids = [uuid7() for _ in range(5)]
    starts = [now - timedelta(hours=hours) for hours in (0, 1, 30, 70)]
    bodies = [
        {kind: [wire_run(id=run_id, start=start) for run_id in ids]}
        for start in starts
        for kind in ("post", "patch", "post")
    ]

    responses = call_concurrently(
        [lambda body=body: api.post("/runs/batch", body) for body in bodies]
    )
    while run_store.process_pending():
        pass

    assert {response.status_code for response in responses} == {202}
    assert count_stored_runs() == len(ids)
    stats = run_store.project_stats(workspace.pk, [project.pk])
    assert stats[project.pk].run_count == len(ids)


def terminate_database_connections() -> None:
    """Terminate all database connections, as a restart of PostgreSQL does."""
    parameters = connections["default"].get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    with psycopg.connect(**parameters, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_the_request_after_a_restart_of_the_database_is_stored(api, workspace):
    api.post("/runs/batch", {"post": [wire_run()]})
    terminate_database_connections()

    assert api.post("/runs/batch", {"post": [wire_run()]}).status_code == 202

    assert count_stored_runs() == 2


def test_a_database_restart_during_a_request_answers_503_with_retry_after(
    api, workspace, monkeypatch
):
    api.post("/runs/batch", {"post": [wire_run()]})
    run = wire_run()
    record_write = run_counts.record_write

    def terminate_and_record(*arguments: Any) -> None:
        terminate_database_connections()
        record_write(*arguments)

    monkeypatch.setattr(run_counts, "record_write", terminate_and_record)

    response = api.post("/runs/batch", {"post": [run]})

    assert response.status_code == 503
    assert response["Retry-After"] == "1"
    assert count_stored_runs() == 1
    monkeypatch.undo()
    assert api.post("/runs/batch", {"post": [run]}).status_code == 202
    assert count_stored_runs() == 2
