"""Audit entries of the services' actions."""

import pytest

from apps.audit.models import Entry
from apps.deployments import services as deployments
from apps.organizations.services import organizations
from apps.tracing.services import deletion, projects, retention, sharing
from tests.tenant_fixtures import create_tracing_rows

pytestmark = pytest.mark.django_db


def list_entries(workspace):
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

    entries = list_entries(workspace)
    assert [entry[:2] for entry in entries if not entry[0].startswith("key.")] == [
        ("deployment.created", "helper"),
        ("revision.created", "helper #1"),
        ("deployment.updated", "helper"),
        ("deployment.secrets_changed", "helper"),
        ("revision.created", "helper #2"),
        ("deployment.deleted", "helper"),
    ]
    update_entries = [entry[2:] for entry in entries if entry[0] == "deployment.updated"]
    assert update_entries == [({"repo_ref": ""}, {"repo_ref": "next"})]
    secret_entries = [entry[2:] for entry in entries if entry[0] == "deployment.secrets_changed"]
    assert secret_entries == [
        ({"names": ["OPENAI_API_KEY"]}, {"names": ["OPENAI_API_KEY", "OTHER"]}),
    ]
    assert "hunter2" not in repr(entries)


def test_deletions_and_links_of_traces_are_recorded(workspace):
    rows = create_tracing_rows(workspace, "word", "word")
    project = projects.Project.objects.for_workspace(workspace).get(pk=rows["project_id"])

    sharing.revoke_trace_link(workspace.pk, rows["run_id"])
    initial_count = len(list_entries(workspace))
    share = sharing.share_trace(workspace.pk, rows["run_id"])
    sharing.share_trace(workspace.pk, rows["run_id"])
    sharing.revoke_links(workspace.pk, [share.token])
    sharing.revoke_links(workspace.pk, [share.token])
    deletion.delete_traces(project=project, metadata={"customer": "secret-name"})
    projects.delete_project(project=project)

    entries = list_entries(workspace)[initial_count:]
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

    assert [entry[2:] for entry in list_entries(workspace)] == [
        ({"shortlived_ttl_seconds": None}, {"shortlived_ttl_seconds": 86_400}),
        ({"shortlived_ttl_seconds": 86_400}, {"shortlived_ttl_seconds": 172_800}),
    ]


def test_changes_of_key_policies_and_revoked_links_are_recorded(workspace):
    organizations.update_organization(
        organization_id=workspace.organization_id,
        changes={"personal_keys_disabled": True, "max_key_days": 30},
        unshare_all=True,
    )

    assert list_entries(workspace)[-1][2:] == (
        {"personal_keys_disabled": False, "max_key_days": None},
        {"personal_keys_disabled": True, "max_key_days": 30, "unshare_all": True},
    )
