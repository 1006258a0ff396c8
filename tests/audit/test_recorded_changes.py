"""Audit entries of the services' actions."""

import pytest

from apps.audit.models import Entry
from apps.deployments import services as deployments
from apps.tracing.services import deletion, projects, retention, sharing
from tests.factories.organizations import WorkspaceFactory
from tests.tenant_fixtures import plant

pytestmark = pytest.mark.django_db


@pytest.fixture
def workspace():
    return WorkspaceFactory()


def present(workspace):
    """Actions of the workspace, oldest first."""
    entries = Entry.objects.of_organization(workspace.organization_id)
    return [(e.action, e.target_name, e.before, e.after) for e in entries.order_by("at", "id")]


def test_deployment_changes_are_recorded_with_names_of_secrets_only(workspace, settings):
    settings.ALLOW_FILE_GIT = True
    deployment = deployments.create_deployment(
        workspace=workspace,
        name="helper",
        repo_url="https://git.example/helper",
        variables={"OPENAI_API_KEY": "sk-hunter2"},
    )
    deployments.update_deployment(
        deployment=deployment,
        changes={"branch": "next"},
        variables={"OTHER": "hunter2", "OPENAI_API_KEY": "hunter2"},
    )
    deployments.delete_deployments(workspace_id=workspace.pk, deployment_ids=[deployment.pk])

    entries = present(workspace)
    assert [entry[:2] for entry in entries if not entry[0].startswith("key.")] == [
        ("deployment.created", "helper"),
        ("revision.created", "helper #1"),
        ("deployment.updated", "helper"),
        ("deployment.secrets_changed", "helper"),
        ("revision.created", "helper #2"),
        ("deployment.deleted", "helper"),
    ]
    of_updates = [entry[2:] for entry in entries if entry[0] == "deployment.updated"]
    assert of_updates == [({"repo_ref": ""}, {"repo_ref": "next"})]
    of_secrets = [entry[2:] for entry in entries if entry[0] == "deployment.secrets_changed"]
    assert of_secrets == [
        ({"names": ["OPENAI_API_KEY"]}, {"names": ["OPENAI_API_KEY", "OTHER"]}),
    ]
    assert "hunter2" not in repr(entries)


def test_deletions_and_links_of_traces_are_recorded(workspace):
    planted = plant(workspace, "word", "word")
    project = projects.Project.objects.for_workspace(workspace).get(pk=planted["project_id"])

    sharing.revoke_trace_link(workspace.pk, planted["run_id"])
    before = len(present(workspace))
    share = sharing.share_trace(workspace.pk, planted["run_id"])
    sharing.share_trace(workspace.pk, planted["run_id"])
    sharing.revoke_links(workspace.pk, [share.token])
    sharing.revoke_links(workspace.pk, [share.token])
    deletion.delete_traces(project=project, metadata={"customer": "secret-name"})
    projects.delete_project(project=project)

    entries = present(workspace)[before:]
    assert [entry[0] for entry in entries] == [
        "run.shared", "run.unshared", "traces.deleted", "project.deleted",
    ]  # fmt: skip
    assert entries[2][3]["filter"] == ["customer"]
    assert "secret-name" not in repr(entries)
    assert str(share.token) not in repr(entries)


def test_retention_change_is_recorded_with_old_and_new_values(workspace):
    for days in (1, 2):
        retention.set_policy(
            organization_id=workspace.organization_id,
            workspace_id=workspace.pk,
            changes={"shortlived_ttl_seconds": days * 86_400},
        )

    assert [entry[2:] for entry in present(workspace)] == [
        ({"shortlived_ttl_seconds": None}, {"shortlived_ttl_seconds": 86_400}),
        ({"shortlived_ttl_seconds": 86_400}, {"shortlived_ttl_seconds": 172_800}),
    ]
