"""Graph hosts that run before the first message."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.agent_runtime.hosts import warm_hosts
from apps.deployments.models import Deployment, Revision
from tests.agent_runtime.factories import execute, make_revision, make_run, make_thread
from tests.installation import wait_until


@pytest.fixture(autouse=True)
def checks(monkeypatch) -> list[None]:
    """An entry for each time that the engine has started missing hosts, which it does often."""
    monkeypatch.setattr(warm_hosts, "POLL_SECONDS", 0.02)
    start_missing, checks = warm_hosts.WarmHosts._start_missing, []

    async def start_missing_and_count(self) -> None:
        await start_missing(self)
        checks.append(None)

    monkeypatch.setattr(warm_hosts.WarmHosts, "_start_missing", start_missing_and_count)
    return checks


def wait_for_checks(checks: list[None]) -> None:
    until = len(checks) + 4
    wait_until(lambda: len(checks) >= until, "more checks")


def list_hosts(engine) -> set:
    return {host.revision.revision_id for host in engine.engine.hosts.hosts}


def set_age(revision: Revision, **age: int) -> None:
    updated_at = timezone.now() - timedelta(**age)
    Deployment.unscoped.filter(pk=revision.deployment_id).update(updated_at=updated_at)


def test_the_first_run_finds_its_host_running(engines, revision, listen):
    engine = engines(WARM_GRAPH_HOSTS=1)
    wait_until(lambda: list_hosts(engine) == {revision.pk})
    [host] = engine.engine.hosts.hosts
    run = make_run(make_thread(revision), "collect", kwargs={"input": {"items": ["a"]}})

    execute(engine, run.thread)
    list(listen(run.pk))

    assert engine.engine.hosts.hosts == [host]


def test_only_the_most_recently_used_deployments_have_warm_hosts(engines, revision, checks):
    used, unused, deployed = revision, make_revision(), make_revision()
    set_age(used, days=30)
    set_age(unused, hours=2)
    make_run(make_thread(used), "x", status="success")

    engine = engines(WARM_GRAPH_HOSTS=2)

    wait_until(lambda: list_hosts(engine) == {used.pk, deployed.pk})
    wait_for_checks(checks)
    assert list_hosts(engine) == {used.pk, deployed.pk}


def test_organizations_have_warm_hosts_in_turn(engines, revision, checks):
    """One that deploys often does not take the hosts of another."""
    busy = [make_revision(revision.workspace) for _ in range(3)]
    set_age(revision, hours=5)
    other = make_revision()
    set_age(other, days=2)

    engine = engines(WARM_GRAPH_HOSTS=2)

    wait_until(lambda: list_hosts(engine) == {busy[-1].pk, other.pk})
    wait_for_checks(checks)
    assert list_hosts(engine) == {busy[-1].pk, other.pk}


def test_an_organization_that_deploys_without_end_has_few_starts(engines, revision, checks):
    engine = engines(WARM_GRAPH_HOSTS=2)
    wait_until(lambda: list_hosts(engine) == {revision.pk})
    newer = [make_revision(revision.workspace)]
    wait_until(lambda: newer[0].pk in list_hosts(engine))

    newer += [make_revision(revision.workspace) for _ in range(3)]
    wait_for_checks(checks)

    assert list_hosts(engine) == {revision.pk, newer[0].pk}
    other = make_revision()
    wait_until(lambda: other.pk in list_hosts(engine))


def test_a_deployment_that_was_not_used_for_a_week_has_no_warm_host(engines, revision):
    old, recent = revision, make_revision()
    set_age(old, days=8)

    engine = engines(WARM_GRAPH_HOSTS=2)

    wait_until(lambda: list_hosts(engine))
    assert list_hosts(engine) == {recent.pk}


def test_a_new_revision_gets_a_host_once_it_serves(engines, revision):
    engine = engines(WARM_GRAPH_HOSTS=1)
    wait_until(lambda: list_hosts(engine) == {revision.pk})
    deployment = revision.deployment
    newer = Revision(
        workspace=revision.workspace, deployment=deployment, number=2, config_path="langgraph.json"
    )
    newer.save()
    deployment.active_revision = newer
    deployment.save()

    wait_until(lambda: newer.pk in list_hosts(engine))


def test_a_warm_host_that_dies_is_not_restarted_at_once(engines, revision, checks):
    engine = engines(WARM_GRAPH_HOSTS=1)
    wait_until(lambda: list_hosts(engine) == {revision.pk})

    [host] = engine.engine.hosts.hosts
    os.kill(host.pid, signal.SIGKILL)
    wait_until(lambda: not list_hosts(engine))
    wait_for_checks(checks)

    assert list_hosts(engine) == set()


def test_no_host_is_started_without_a_message_if_the_setting_is_zero(engines, revision, checks):
    engine = engines(WARM_GRAPH_HOSTS=0)

    wait_until(engine.engine._warm_hosts.done, "the end of the task that keeps hosts warm")

    assert checks == []
    assert list_hosts(engine) == set()
