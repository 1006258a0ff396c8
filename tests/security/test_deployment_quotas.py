"""One organization cannot fill the installation with deployments, revisions and builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.deployments import build_dirs, services
from apps.deployments.errors import QuotaReached, RevisionNotBuilt
from apps.deployments.models import Deployment, Revision
from apps.deployments.services import build_storage
from apps.deployments.statuses import RevisionStatus
from apps.organizations.models import Workspace
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db


def create(workspace: Workspace, name: str) -> Deployment:
    return services.create_deployment(
        workspace=workspace, name=name, repo_url="https://git.example/acme/agent.git"
    )


def test_deployments_of_an_organization_are_limited(workspace: Workspace, settings: Any) -> None:
    settings.MAX_DEPLOYMENTS = 2
    sibling = WorkspaceFactory(organization=workspace.organization)
    create(workspace, "one")
    second = create(sibling, "two")

    with pytest.raises(QuotaReached, match="2 deployments, the maximum") as refusal:
        create(sibling, "three")

    assert refusal.value.status == 429
    assert Deployment.unscoped.count() == 2
    create(WorkspaceFactory(), "other-organization")
    services.delete_deployments(workspace_id=sibling.pk, deployment_ids=[second.pk])
    create(sibling, "three")


def test_unfinished_revisions_of_an_organization_are_limited(
    workspace: Workspace, settings: Any
) -> None:
    settings.MAX_QUEUED_BUILDS = 2
    first = create(workspace, "one")
    create(workspace, "two")

    with pytest.raises(QuotaReached, match="2 unfinished revisions"):
        create(workspace, "three")

    assert Deployment.unscoped.count() == 2  # all or nothing
    services.create_revision(deployment=first)
    Revision.unscoped.update(status=RevisionStatus.DEPLOYED)
    create(workspace, "three")


def test_revisions_per_day_of_an_organization_are_limited(
    workspace: Workspace, settings: Any
) -> None:
    settings.MAX_REVISIONS_PER_DAY = 3
    deployment = create(workspace, "one")
    for _ in range(2):
        services.create_revision(deployment=deployment)
    Revision.unscoped.update(status=RevisionStatus.DEPLOYED)

    with pytest.raises(QuotaReached, match="3 revisions in 24 hours"):
        services.create_revision(deployment=deployment)


def add_build(deployment: Deployment, mb: int, *, serves: bool = False) -> Revision:
    """Add a finished build with a folder of files."""
    revision = services.create_revision(deployment=deployment)
    build_dirs.RevisionDir.for_attempt(revision.pk, 1, 1).source.mkdir(parents=True)
    rows = Revision.unscoped.filter(pk=revision.pk)
    rows.update(
        status=RevisionStatus.DEPLOYED, built_attempt=1, facts={"disk_bytes": mb * 1_048_576}
    )
    if serves:
        Deployment.unscoped.filter(pk=deployment.pk).update(active_revision=revision)
    return revision


@pytest.fixture
def storage(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    settings.MAX_BUILD_STORAGE_BYTES = 100 * 1_048_576


def test_oldest_builds_of_an_organization_are_removed_beyond_its_storage(
    workspace: Workspace, storage: None
) -> None:
    sibling = WorkspaceFactory(organization=workspace.organization)
    first, second = create(workspace, "one"), create(sibling, "two")
    other = add_build(create(WorkspaceFactory(), "other"), 500)
    oldest = add_build(first, 40)
    builds = [add_build(first, 30), add_build(second, 30), add_build(second, 30, serves=True)]
    builds += [add_build(first, 10), add_build(first, 10, serves=True)]

    removed = build_storage.remove_old_builds(sibling.pk)

    assert removed == 2
    oldest.refresh_from_db()
    assert not oldest.is_built
    folders = {path.name for path in (build_dirs._revisions_folder()).iterdir()}
    kept = {str(revision.pk) for revision in (*builds[1:], other)}
    assert folders == kept
    with pytest.raises(RevisionNotBuilt):
        services.redeploy(revision=oldest)
    assert build_storage.remove_old_builds(sibling.pk) == 0


def test_serving_builds_beyond_the_storage_refuse_further_revisions(
    workspace: Workspace, storage: None
) -> None:
    deployment = create(workspace, "one")
    add_build(deployment, 60)
    add_build(deployment, 60, serves=True)

    with pytest.raises(QuotaReached, match="120 MiB, the maximum"):
        services.create_revision(deployment=deployment)

    assert build_storage.remove_old_builds(workspace.pk) == 0
    create(WorkspaceFactory(), "other")


def test_build_that_is_deployed_again_meanwhile_is_not_removed(
    workspace: Workspace, storage: None
) -> None:
    deployment = create(workspace, "one")
    oldest = add_build(deployment, 90)
    add_build(deployment, 10)
    add_build(deployment, 10, serves=True)
    Revision.unscoped.filter(pk=oldest.pk).update(status=RevisionStatus.AWAITING_DEPLOY)

    assert build_storage.remove_old_builds(workspace.pk) == 0
    oldest.refresh_from_db()
    assert oldest.is_built
