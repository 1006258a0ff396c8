"""What a graph host gets from the platform, without starting one."""

import pytest

from apps.core import secrets
from apps.core.ids import uuid7
from apps.deployments import hosts, services
from apps.deployments.build_dirs import RevisionDir
from apps.deployments.services import environment
from tests.factories.deployments import DeploymentFactory, RevisionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment(settings):
    settings.INTERNAL_URL = "http://127.0.0.1:8123"
    return DeploymentFactory(name="agent", ingest_secret=secrets.encrypt("slip_key"))


def variables(deployment, **own):
    environment.replace_variables(deployment=deployment, variables=own)
    revision = services.create_revision(deployment=deployment)
    return hosts.host_environment(revision, RevisionDir.for_attempt(revision.pk, 1, 1))


def test_a_host_traces_into_the_project_of_its_deployment(deployment):
    given = variables(deployment)

    expected = {
        "ENDPOINT": "http://127.0.0.1:8123/api/v1",
        "API_KEY": "slip_key",
        "PROJECT": "agent",
    }
    for prefix in ("LANGSMITH_", "LANGCHAIN_"):
        assert {name: given[prefix + name] for name in expected} == expected
    assert (given["LANGSMITH_TRACING"], given["LANGCHAIN_TRACING_V2"]) == ("true", "true")


def test_tracing_is_switched_off_by_the_deployment_or_by_its_author(deployment):
    by_author = variables(deployment, LANGSMITH_TRACING="false")
    deployment.tracing = False
    deployment.save()
    by_deployment = variables(deployment)

    for given in (by_author, by_deployment):
        assert (given["LANGSMITH_TRACING"], given["LANGCHAIN_TRACING_V2"]) == ("false", "false")
    assert "LANGSMITH_API_KEY" not in by_deployment


def test_host_environment_has_the_authors_variables_and_keeps_its_own(deployment):
    given = variables(deployment, MOOD="good", PYTHONPATH="/mine", PYTHONDONTWRITEBYTECODE="0")

    assert given["MOOD"] == "good"
    assert given["PYTHONPATH"] == f"{hosts.PROGRAM.parent}:/mine"
    assert given["PYTHONDONTWRITEBYTECODE"] == "1"


def test_platform_environment_is_not_passed_to_the_host(deployment, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://platform")

    assert "postgresql://platform" not in variables(deployment).values()


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
