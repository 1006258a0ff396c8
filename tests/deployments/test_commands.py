"""`manage.py deploy` and `deploy_sample`, without a builder."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.deployments import sample
from apps.deployments.management.commands import deploy
from apps.deployments.models import Deployment, Revision
from apps.deployments.services import environment
from apps.deployments.statuses import RevisionStatus as S
from tests.factories.deployments import LogLineFactory
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db

URL = "https://git.example/acme/agent.git"


@pytest.fixture(autouse=True)
def configure_settings(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    settings.ALLOW_FILE_GIT = True
    settings.BASE_URL = settings.API_BASE_URL = "https://slipway.example"


@pytest.fixture
def workspace():
    return WorkspaceFactory(organization__name="Acme", name="Main")


def run(command, *arguments):
    out = StringIO()
    call_command(command, "--organization", "Acme", *arguments, stdout=out)
    return out.getvalue()


def deploy_agent(*arguments):
    return run("deploy", "--name", "agent", "--git", URL, *arguments)


def test_deploy_command_creates_the_deployment_and_prints_its_url(workspace):
    result = json.loads(deploy_agent("--ref", "main", "--env", "MOOD=a=b", "--json"))

    deployment, revision = Deployment.unscoped.get(), Revision.unscoped.get()
    assert result == {
        "deployment_id": str(deployment.pk),
        "revision_id": str(revision.pk),
        "status": "AWAITING_BUILD",
        "agent_url": "https://slipway.example/agents/agent",
    }
    assert (deployment.workspace_id, revision.ref) == (workspace.pk, "main")
    assert environment.revision_variables(revision) == {"MOOD": "a=b"}


def test_second_deploy_creates_a_revision_and_keeps_unnamed_fields(workspace):
    deploy_agent("--ref", "main", "--env", "MOOD=good", "--config", "app/langgraph.json")

    deploy_agent()

    newest = Revision.unscoped.order_by("-number").first()
    assert Deployment.unscoped.count() == 1
    assert (newest.number, newest.ref, newest.config_path) == (2, "main", "app/langgraph.json")
    assert environment.revision_variables(newest) == {"MOOD": "good"}


def test_second_deploy_changes_single_variables(workspace):
    deploy_agent("--env", "MOOD=good", "--env", "TONE=calm", "--env", "NAME=Ann")

    deploy_agent("--env", "MOOD=bad", "--unset-env", "NAME", "--unset-env", "MISSING")

    newest = Revision.unscoped.order_by("-number").first()
    assert Revision.unscoped.count() == 2
    assert environment.revision_variables(newest) == {"MOOD": "bad", "TONE": "calm"}


def test_wait_prints_the_log_and_fails_with_the_reason(workspace):
    deploy_agent()
    revision = Revision.unscoped.get()
    LogLineFactory(revision=revision, message="Looking for it")
    Revision.unscoped.update(status=S.BUILD_FAILED, failure="There is no file.")
    lines = []

    finished = deploy.wait_until_finished(revision, on_line=lambda line: lines.append(line.message))

    assert (finished.status, lines) == ("BUILD_FAILED", ["Looking for it"])
    with pytest.raises(CommandError, match=r"^There is no file\.$"):
        deploy.Command().report(revision.deployment, revision, wait=True, as_json=True)


def report_of_failed_revision(*, as_json=False):
    out = StringIO()
    command = deploy.Command(stdout=out)
    revision = Revision.unscoped.get()
    with pytest.raises(CommandError) as caught:
        command.report(revision.deployment, revision, wait=True, as_json=as_json)
    return out.getvalue(), str(caught.value)


def test_reason_in_the_log_is_printed_once(workspace):
    deploy_agent()
    revision = Revision.unscoped.get()
    Revision.unscoped.update(status=S.BUILD_FAILED, failure="Cannot import.\n  line \x1b[1m7")
    for message in ("Cannot import.", "  line 7"):
        LogLineFactory(revision=revision, message=message)

    out, error = report_of_failed_revision()
    assert out.count("Cannot import.") == 1
    assert error == "Revision 1 ended as BUILD_FAILED."

    # Without the log, the error is the only place of the reason.
    _, error = report_of_failed_revision(as_json=True)
    assert error == "Cannot import.\n  line \x1b[1m7"


def test_reason_that_is_not_in_the_log_is_the_error(workspace):
    deploy_agent()
    revision = Revision.unscoped.get()
    Revision.unscoped.update(status=S.BUILD_FAILED, failure="The builder process died.")
    LogLineFactory(revision=revision, message="==> Cloning")

    assert report_of_failed_revision()[1] == "The builder process died."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--organization", "Unknown"], "There is no organization named 'Unknown'."),
        (["--workspace", "Other"], "Acme has no workspace named 'Other'."),
        (["--env", "MOOD"], "--env 'MOOD' must be KEY=VALUE."),
        (["--env", "REDIS_URI=x"], "The platform sets these variables: REDIS_URI."),
        (["--git", "nonsense"], "'nonsense' is not a Git address"),
        (["--name", "a b"], "The name must have 1 to 63 letters"),
    ],
)
def test_invalid_input_is_rejected_with_a_message(workspace, arguments, message):
    with pytest.raises(CommandError) as caught:
        deploy_agent(*arguments)

    assert str(caught.value).startswith(message)
    assert Deployment.unscoped.count() == 0


def test_sample_repository_has_the_same_commit_every_time():
    first, second = sample.ensure_repository(), sample.ensure_repository()

    assert first == second
    assert first[0].startswith("file:///")
    assert len(first[1]) == 40


def test_the_sample_is_deployed_once_per_content(workspace):
    run("deploy_sample")
    _, commit = sample.ensure_repository()
    Revision.unscoped.update(status=S.DEPLOYED, commit_sha=commit)

    run("deploy_sample")
    assert Revision.unscoped.count() == 1

    Revision.unscoped.update(commit_sha="0" * 40)
    run("deploy_sample")
    assert Revision.unscoped.count() == 2


def test_failed_sample_is_deployed_again(workspace):
    run("deploy_sample")
    Revision.unscoped.update(status=S.BUILD_FAILED)

    run("deploy_sample")

    assert Revision.unscoped.count() == 2
