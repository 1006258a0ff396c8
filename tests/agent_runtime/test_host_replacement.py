"""Runs and hosts of deployments that are stopped, started and restarted."""

from __future__ import annotations

import pytest
from django.db import connections

from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_runtime.hosts import host_replacement
from apps.agent_server import recovery
from apps.agent_server.models import AgentRun
from apps.deployments import hosts, services
from apps.deployments.models import Deployment, Revision
from tests.agent_runtime.conftest import AGENT
from tests.agent_runtime.factories import execute, let_continue, make_run, make_thread
from tests.agent_runtime.host_launch import launch_unconfined
from tests.installation import wait_until


@pytest.fixture
def engine(settings, transactional_db, tmp_path, monkeypatch, empty_queues):
    """An engine whose hosts have the generation of their deployment."""
    settings.DATA_DIR = tmp_path
    settings.WARM_GRAPH_HOSTS = 0
    monkeypatch.setattr(host_replacement, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(host_replacement, "GRACE_SECONDS", 1.0)

    def launch(revision_id):
        try:
            revision = Revision.unscoped.select_related("deployment").get(pk=revision_id)
        finally:
            connections.close_all()
        launched = launch_unconfined(AGENT)
        launched.generation = revision.deployment.host_generation
        return launched

    thread = EngineThread("worker@here", launch)
    yield thread
    thread.stop(0)


def pids(engine) -> set[int]:
    return {host.pid for host in engine.engine.hosts.hosts}


def status_of(run) -> str:
    return AgentRun.unscoped.get(pk=run.pk).status


def start_slow_run(engine, revision, file):
    """Start a run whose second step waits until `let_continue`."""
    kwargs = {"input": {"file": str(file), "wait_at": "two"}}
    run = make_run(make_thread(revision), "steps", kwargs=kwargs)
    execute(engine, run.thread)
    wait_until(lambda: file.exists() and "two" in file.read_text())
    return run


def test_restart_replaces_the_host_and_the_run_continues(engine, revision, file, listen):
    run = start_slow_run(engine, revision, file)
    before = pids(engine)

    services.restart_deployment(deployment=revision.deployment)
    wait_until(lambda: before and not before & pids(engine) and pids(engine))
    let_continue(file)
    list(listen(run.pk))

    row = AgentRun.unscoped.get(pk=run.pk)
    assert (row.status, row.attempt, row.crash_count) == ("success", 2, 0)
    assert file.read_text().splitlines()[:3] == ["one 1", "two 1", "two 2"]


def test_stop_ends_the_host_and_the_run_waits_for_the_start(engine, revision, file, listen):
    run = start_slow_run(engine, revision, file)

    services.stop_deployment(deployment=revision.deployment)
    wait_until(lambda: not pids(engine) and status_of(run) == "pending")
    execute(engine, run.thread)
    engine.run(engine.engine.writer.flush())
    assert (status_of(run), pids(engine)) == ("pending", set())

    let_continue(file)
    services.start_deployment(deployment=revision.deployment)
    recovery.resume_runs(revision.deployment_id)
    list(listen(run.pk))

    row = AgentRun.unscoped.get(pk=run.pk)
    assert (row.status, row.attempt, row.crash_count) == ("success", 2, 0)
    assert file.read_text().splitlines()[:3] == ["one 1", "two 1", "two 2"]


def test_deleted_deployment_has_no_host(engine, revision, file):
    start_slow_run(engine, revision, file)

    services.delete_deployments(
        workspace_id=revision.workspace_id, deployment_ids=[revision.deployment_id]
    )

    wait_until(lambda: not pids(engine))


def test_host_of_a_stopped_deployment_does_not_start(revision):
    Deployment.unscoped.filter(pk=revision.deployment_id).update(status="UNUSED")

    with pytest.raises(hosts.LaunchFailed, match="stopped"):
        hosts.launch(revision.pk)
