import pytest

from apps.api_keys.services import caller_for_key
from apps.core import secrets
from apps.core.errors import Invalid, NotFound, Unauthenticated
from apps.deployments import errors, queries, services
from apps.deployments.models import Deployment, EnvironmentVariable, Revision
from apps.deployments.services import environment
from apps.tracing.models import Project
from tests.factories.deployments import RevisionFactory
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db

URL = "https://git.example/acme/agent.git"


def create(workspace, name="agent", **options):
    return services.create_deployment(
        workspace=workspace, name=name, **{"repo_url": URL, **options}
    )


def read_variables(deployment):
    rows = EnvironmentVariable.unscoped.filter(deployment=deployment)
    return {row.name: secrets.decrypt(row.value) for row in rows}


def test_a_deployment_has_its_first_revision_key_and_project(workspace):
    deployment = create(workspace, branch="main", variables={"MOOD": "good"})

    revision = deployment.revisions.get()
    assert (revision.number, revision.status) == (1, "AWAITING_BUILD")
    assert (revision.repo_url, revision.ref, revision.config_path) == (
        URL,
        "main",
        "langgraph.json",
    )
    assert environment.revision_variables(revision) == {"MOOD": "good"}
    assert [c.status for c in revision.status_changes.in_order()] == [
        "CREATING",
        "QUEUED",
        "AWAITING_BUILD",
    ]
    assert Project.objects.for_workspace(workspace).filter(name="agent").count() == 1
    caller = caller_for_key(secret=secrets.decrypt(deployment.ingest_secret))
    assert (caller.workspace_id, caller.permissions) == (workspace.pk, {"runs:ingest"})


def test_values_are_encrypted_at_rest(workspace):
    deployment = create(workspace, variables={"TOKEN": "very secret"})

    row = EnvironmentVariable.unscoped.get(deployment=deployment)
    assert b"very secret" not in bytes(row.value)
    assert b"very secret" not in bytes(deployment.revisions.get().environment)


def test_duplicate_name_creates_nothing(workspace):
    create(workspace)

    with pytest.raises(errors.NameTaken):
        create(workspace)

    assert Deployment.unscoped.count() == 1
    assert Revision.unscoped.count() == 1


def test_two_workspaces_may_use_one_name_at_two_addresses(workspace):
    first = create(workspace, "Agent_One")
    second = create(WorkspaceFactory(), "agent-one")

    assert first.slug == "agent-one"
    assert second.slug.startswith("agent-one-")
    assert len(second.slug) == len("agent-one-") + 6


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ä", "a" * 64, "a/b"])
def test_invalid_names_are_rejected(workspace, name):
    with pytest.raises(Invalid):
        create(workspace, name)

    assert Deployment.unscoped.count() == 0


def test_reserved_variables_are_named(workspace):
    with pytest.raises(errors.ReservedVariables) as caught:
        create(workspace, variables={"REDIS_URI": "x", "LANGSMITH_PROJECT": "y", "FINE": "z"})

    assert caught.value.errors == [{"name": "LANGSMITH_PROJECT"}, {"name": "REDIS_URI"}]
    assert Deployment.unscoped.count() == 0


def test_variables_of_the_deploying_client_are_ignored(workspace):
    deployment = create(workspace, variables={"LANGGRAPH_HOST_API_KEY": "x", "FINE": "z"})

    assert read_variables(deployment) == {"FINE": "z"}


@pytest.mark.parametrize("pair", [("1X", "v"), ("A B", "v"), ("A", "v\0"), ("A", "x" * 300_000)])
def test_invalid_variables_are_rejected(workspace, pair):
    with pytest.raises(errors.InvalidVariables):
        create(workspace, variables=dict([pair]))


def test_a_new_branch_makes_a_revision(workspace):
    deployment = create(workspace)

    revision = services.update_deployment(deployment=deployment, changes={"branch": "next"})

    assert (revision.number, revision.ref) == (2, "next")


@pytest.mark.parametrize(
    "changes", [{"repo_url": URL + "2"}, {"display_name": "Ann"}, {"tracing": False}, {}]
)
def test_other_changes_create_no_revision(workspace, changes):
    deployment = create(workspace)

    assert services.update_deployment(deployment=deployment, changes=changes) is None

    assert deployment.revisions.count() == 1


def test_variables_replace_all_and_no_variables_change_nothing(workspace):
    deployment = create(workspace, variables={"A": "1", "B": "2"})

    assert services.update_deployment(deployment=deployment, changes={}, variables={}) is None
    revision = services.update_deployment(deployment=deployment, changes={}, variables={"C": "3"})

    assert read_variables(deployment) == {"C": "3"}
    assert environment.revision_variables(revision) == {"C": "3"}
    assert environment.revision_variables(deployment.revisions.get(number=1)) == {
        "A": "1",
        "B": "2",
    }


def test_deletion_revokes_the_key_and_frees_the_name(workspace, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    deployment = create(workspace)
    secret = secrets.decrypt(deployment.ingest_secret)

    services.delete_deployments(workspace_id=workspace.pk, deployment_ids=[deployment.pk])

    deployment.refresh_from_db()
    assert deployment.status == "AWAITING_DELETE"
    assert deployment.revisions.get().status == "INTERRUPTED"
    with pytest.raises(Unauthenticated):
        caller_for_key(secret=secret)

    services.purge_deployment(deployment.pk)
    services.purge_deployment(deployment.pk)

    assert Deployment.unscoped.count() == 0
    assert create(workspace).slug == "agent"


def test_unknown_id_deletes_nothing(workspace):
    deployment, foreign = create(workspace), create(WorkspaceFactory(), "other")

    with pytest.raises(NotFound):
        services.delete_deployments(
            workspace_id=workspace.pk, deployment_ids=[deployment.pk, foreign.pk]
        )

    assert Deployment.unscoped.filter(deleted_at=None).count() == 2


def test_existing_deployment_is_not_purged(workspace):
    deployment = create(workspace)

    services.purge_deployment(deployment.pk)

    assert Deployment.unscoped.filter(pk=deployment.pk).exists()


def test_a_revision_that_no_longer_serves_is_shown_as_replaced(workspace):
    deployment = create(workspace)
    first = RevisionFactory(deployment=deployment, number=2, status="DEPLOYED")
    second = RevisionFactory(deployment=deployment, number=3, status="DEPLOYED")
    deployment.active_revision = second
    deployment.save(update_fields=["active_revision"])

    shown, _ = queries.list_revisions(deployment)

    statuses = {row.pk: row.shown_status for row in shown}
    assert (statuses[first.pk], statuses[second.pk]) == ("REPLACED", "DEPLOYED")
