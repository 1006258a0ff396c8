"""Several writers at once, each on its own connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connections

from apps.ingest.services import ingest_log
from apps.trace_store import Status, run_store
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import begun, ended, read, rows, wire_run

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=False)


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    def own_connection(call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(own_connection, calls))


@pytest.fixture
def workspace():
    return WorkspaceFactory()


def test_a_new_project_is_made_once(workspace):
    project_ids = at_once([lambda: ensure_project(workspace.pk, "new").pk] * 16)

    assert len(set(project_ids)) == 1
    assert Project.objects.for_workspace(workspace).count() == 1


def test_the_same_runs_from_all_sides_end_as_one_each(api, workspace):
    ensure_project(workspace.pk, "default")
    runs = [wire_run() for _ in range(30)]
    dice = random.Random(7)
    bodies = []
    for _ in range(24):
        some = dice.sample(runs, 20)
        half = dice.randrange(20)
        bodies.append(
            {"post": [begun(r) for r in some[:half]], "patch": [ended(r) for r in some[half:]]}
        )
    bodies.append({"post": [begun(r) for r in runs], "patch": [ended(r) for r in runs]})
    dice.shuffle(bodies)

    answers = at_once([lambda body=body: api.post("/runs/batch", body) for body in bodies])

    assert {answer.status_code for answer in answers} == {202}
    assert rows() == 30
    stored = [read(workspace, run["id"]).row for run in runs]
    assert {(row.status, row.name) for row in stored} == {(Status.SUCCESS, "step")}
    stats = run_store.project_stats(workspace.pk, [stored[0].project_id])
    assert stats[stored[0].project_id].run_count == 30


def hang_up_on_everybody() -> None:
    """What a restart of PostgreSQL looks like from here."""
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
    hang_up_on_everybody()

    assert api.post("/runs/batch", {"post": [wire_run()]}).status_code == 202

    assert rows() == 2


def test_a_restart_in_the_middle_of_a_request_asks_to_send_again(api, workspace, monkeypatch):
    api.post("/runs/batch", {"post": [wire_run()]})
    run = wire_run()
    append = ingest_log.append

    def hang_up_first(*arguments: Any) -> None:
        hang_up_on_everybody()
        append(*arguments)

    monkeypatch.setattr(ingest_log, "append", hang_up_first)

    response = api.post("/runs/batch", {"post": [run]})

    assert response.status_code == 503
    assert response["Retry-After"] == "1"
    assert rows() == 1
    monkeypatch.undo()
    assert api.post("/runs/batch", {"post": [run]}).status_code == 202
    assert rows() == 2
