"""The environment and launch conditions of a graph host, without starting one."""

import pytest

from apps.core import secrets
from apps.core.ids import uuid7
from apps.deployments import hosts, services, trace_links
from apps.deployments.build_dirs import RevisionDir
from apps.deployments.services import environment
from apps.deployments.trace_links import REVISION_KEY
from apps.tracing.hooks import DeploymentLink
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment(settings):
    settings.INTERNAL_URL = "http://127.0.0.1:8123"
    return DeploymentFactory(name="agent", ingest_secret=secrets.encrypt("slip_key"))


def build_environment(deployment, **variables):
    environment.replace_variables(deployment=deployment, variables=variables)
    revision = services.create_revision(deployment=deployment)
    return hosts.host_environment(revision, RevisionDir.for_attempt(revision.pk, 1, 1))


def test_a_host_traces_into_the_project_of_its_deployment(deployment):
    host_variables = build_environment(deployment)

    expected = {
        "ENDPOINT": "http://127.0.0.1:8123/api/v1",
        "API_KEY": "slip_key",
        "PROJECT": "agent",
    }
    for prefix in ("LANGSMITH_", "LANGCHAIN_"):
        assert {name: host_variables[prefix + name] for name in expected} == expected
    assert (host_variables["LANGSMITH_TRACING"], host_variables["LANGCHAIN_TRACING_V2"]) == (
        "true",
        "true",
    )


def test_runs_of_a_host_name_its_deployment_and_revision(deployment):
    host_variables = build_environment(deployment)

    revision = deployment.revisions.get()
    assert host_variables["LANGSMITH_HOST_PROJECT_NAME"] == "agent"
    assert host_variables["LANGSMITH_HOST_REVISION_ID"] == str(revision.pk)
    assert host_variables["LANGSMITH_REVISION_ID"] == str(revision.number)
    link = trace_links.find_of_run(deployment.workspace_id, metadata_of(host_variables))
    base = f"/o/{deployment.workspace_id}/deployments/{deployment.pk}"
    assert link == DeploymentLink(
        "agent", base, f"revision {revision.number}", f"{base}/revisions/{revision.pk}"
    )
    assert trace_links.find_of_project(deployment.workspace_id, "agent") == DeploymentLink(
        "agent", base
    )


def test_a_deployment_of_another_workspace_or_an_unknown_one_is_no_link(deployment):
    metadata = metadata_of(build_environment(deployment))
    other = WorkspaceFactory().pk

    assert trace_links.find_of_run(other, metadata) is None
    assert trace_links.find_of_project(other, "agent") is None
    for value in (None, "x", str(uuid7()), ["a"]):
        assert (
            trace_links.find_of_run(deployment.workspace_id, {**metadata, REVISION_KEY: value})
            is None
        )
    deployment.tracing = False
    deployment.save()
    assert trace_links.find_of_project(deployment.workspace_id, "agent") is None


def metadata_of(variables):
    """Return the metadata that the SDK makes of a host's variables."""
    return {name: value for name, value in variables.items() if name.startswith("LANGSMITH_HOST_")}


def test_tracing_is_switched_off_by_the_deployment_or_by_its_author(deployment):
    by_author = build_environment(deployment, LANGSMITH_TRACING="false")
    deployment.tracing = False
    deployment.save()
    by_deployment = build_environment(deployment)

    for host_variables in (by_author, by_deployment):
        assert (host_variables["LANGSMITH_TRACING"], host_variables["LANGCHAIN_TRACING_V2"]) == (
            "false",
            "false",
        )
    assert "LANGSMITH_API_KEY" not in by_deployment


def test_host_environment_has_the_authors_variables_and_keeps_its_own(deployment):
    host_variables = build_environment(
        deployment, MOOD="good", PYTHONPATH="/mine", PYTHONDONTWRITEBYTECODE="0"
    )

    assert host_variables["MOOD"] == "good"
    assert host_variables["PYTHONPATH"] == f"{hosts.PROGRAM.parent}:/mine"
    assert host_variables["PYTHONDONTWRITEBYTECODE"] == "1"


def test_platform_environment_is_not_passed_to_the_host(deployment, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://platform")

    assert "postgresql://platform" not in build_environment(deployment).values()


def test_revision_without_a_build_is_not_launched(deployment):
    revision = RevisionFactory(deployment=deployment)

    with pytest.raises(hosts.LaunchFailed, match="no finished build"):
        hosts.launch(revision.pk)
    with pytest.raises(hosts.LaunchFailed, match="no longer exists"):
        hosts.launch(uuid7())


def test_build_on_another_machine_is_not_launched(deployment, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    revision = RevisionFactory(deployment=deployment, built_attempt=1)

    with pytest.raises(hosts.LaunchFailed, match="no longer on this machine"):
        hosts.launch(revision.pk)
