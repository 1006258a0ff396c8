from datetime import timedelta

import pytest
from django.utils import timezone

from apps.deployments import errors, services
from apps.deployments.models import Revision
from apps.deployments.services import progress
from apps.deployments.statuses import RevisionStatus as S
from tests.factories.deployments import DeploymentFactory, RevisionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment():
    return DeploymentFactory()


@pytest.fixture
def revision(deployment):
    return RevisionFactory(deployment=deployment, number=1, status=S.AWAITING_BUILD)


def list_status_changes(revision):
    return [(c.status, c.detail) for c in revision.status_changes.in_order()]


def list_statuses(deployment):
    return list(deployment.revisions.order_by("number").values_list("status", flat=True))


def expire_lease(revision):
    past = timezone.now() - timedelta(minutes=5)
    Revision.unscoped.filter(pk=revision.pk).update(lease_expires_at=past, updated_at=past)


def test_status_change_is_recorded(revision):
    progress.advance(revision.pk, to=S.BUILDING, detail="Begun.")

    revision.refresh_from_db()
    assert revision.status == "BUILDING"
    assert list_status_changes(revision) == [("BUILDING", "Begun.")]


def test_invalid_transition_is_rejected(revision):
    with pytest.raises(errors.InvalidTransition):
        progress.advance(revision.pk, to=S.DEPLOYED)

    revision.refresh_from_db()
    assert revision.status == "AWAITING_BUILD"
    assert list_status_changes(revision) == []


def test_older_attempt_cannot_change_the_revision(revision):
    claimed = progress.claim(revision.pk, owner="a")
    Revision.unscoped.filter(pk=revision.pk).update(attempt=2)

    with pytest.raises(errors.LeaseLost):
        progress.advance(revision.pk, to=S.AWAITING_DEPLOY, attempt=claimed.attempt)
    with pytest.raises(errors.LeaseLost):
        progress.renew_lease(claimed)

    revision.refresh_from_db()
    assert revision.status == "BUILDING"


def test_only_one_builder_gets_a_revision(revision):
    first = progress.claim(revision.pk, owner="a")

    assert (first.status, first.attempt, first.lease_owner) == ("BUILDING", 1, "a")
    assert progress.claim(revision.pk, owner="b") is None


@pytest.mark.parametrize("status", [S.QUEUED, S.DEPLOYED, S.BUILD_FAILED, S.INTERRUPTED])
def test_revision_that_is_not_pending_cannot_be_claimed(deployment, status):
    revision = RevisionFactory(deployment=deployment, status=status)

    assert progress.claim(revision.pk, owner="a") is None


def test_failure_releases_the_lease(revision):
    claimed = progress.claim(revision.pk, owner="a")

    progress.fail(claimed, reason="No such file.", attempt=1)

    revision.refresh_from_db()
    assert (revision.status, revision.failure) == ("BUILD_FAILED", "No such file.")
    assert revision.lease_expires_at is None
    assert revision.finished_at is not None


def test_newest_pending_revision_is_next_and_others_are_skipped(deployment, revision):
    progress.claim(revision.pk, owner="a")

    for _ in range(3):
        services.create_revision(deployment=deployment)

    assert list_statuses(deployment) == ["BUILDING", "SKIPPED", "SKIPPED", "QUEUED"]

    progress.fail(Revision.unscoped.get(pk=revision.pk), reason="x")
    progress.promote_next(deployment.pk)

    assert list_statuses(deployment) == ["BUILD_FAILED", "SKIPPED", "SKIPPED", "AWAITING_BUILD"]


def test_abandoned_build_starts_again(revision):
    progress.claim(revision.pk, owner="a")
    expire_lease(revision)

    progress.sweep()

    second_attempt = progress.claim(revision.pk, owner="b")
    assert (second_attempt.status, second_attempt.attempt, second_attempt.crash_count) == (
        "BUILDING",
        2,
        1,
    )


def test_abandoned_redeployment_reuses_the_build(deployment):
    revision = RevisionFactory(deployment=deployment, status=S.AWAITING_DEPLOY, built_attempt=1)
    progress.claim(revision.pk, owner="a")
    expire_lease(revision)

    progress.sweep()

    assert progress.claim(revision.pk, owner="b").status == "DEPLOYING"


def test_third_crash_fails_the_revision(revision):
    for _ in range(3):
        progress.claim(revision.pk, owner="a")
        expire_lease(revision)
        progress.sweep()

    revision.refresh_from_db()
    assert revision.status == "BUILD_FAILED"
    assert revision.failure == "The builder process died 3 times during this revision."


def test_sweep_does_not_change_a_live_build(revision):
    progress.claim(revision.pk, owner="a")

    progress.sweep()

    revision.refresh_from_db()
    assert (revision.status, revision.lease_owner) == ("BUILDING", "a")


def test_activation_switches_the_active_revision(deployment):
    revision = RevisionFactory(deployment=deployment, status=S.AWAITING_DEPLOY, built_attempt=1)
    claimed = progress.claim(revision.pk, owner="a")

    progress.activate(claimed)

    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("READY", revision.pk)


def test_deleted_deployment_cannot_be_activated(deployment):
    revision = RevisionFactory(deployment=deployment, status=S.AWAITING_DEPLOY, built_attempt=1)
    claimed = progress.claim(revision.pk, owner="a")
    services.delete_deployments(
        workspace_id=deployment.workspace_id, deployment_ids=[deployment.pk]
    )

    with pytest.raises(errors.LeaseLost):
        progress.activate(claimed)

    deployment.refresh_from_db()
    assert deployment.active_revision_id is None


def test_interruption_ends_the_lease_and_starts_the_next_revision(deployment, revision):
    claimed = progress.claim(revision.pk, owner="a")
    services.create_revision(deployment=deployment)

    services.interrupt_revision(revision=revision)

    assert list_statuses(deployment) == ["INTERRUPTED", "AWAITING_BUILD"]
    with pytest.raises(errors.LeaseLost):
        progress.renew_lease(claimed)


def test_finished_revision_cannot_be_interrupted(deployment):
    revision = RevisionFactory(deployment=deployment, status=S.DEPLOYED)

    with pytest.raises(errors.RevisionFinished):
        services.interrupt_revision(revision=revision)


def test_redeploy_requires_a_finished_build(deployment):
    revision = RevisionFactory(deployment=deployment, status=S.BUILD_FAILED)

    with pytest.raises(errors.RevisionNotBuilt):
        services.redeploy(revision=revision)


@pytest.mark.parametrize("status", [S.AWAITING_BUILD, S.BUILDING, S.DEPLOYING])
def test_redeploy_is_refused_while_another_revision_is_unfinished(deployment, status):
    revision = RevisionFactory(
        deployment=deployment, number=1, status=S.DEPLOYED, attempt=1, built_attempt=1
    )
    RevisionFactory(deployment=deployment, number=2, status=status)

    with pytest.raises(errors.OtherRevisionInProgress, match=r"^Revision 2 is in progress\."):
        services.redeploy(revision=revision)

    revision.refresh_from_db()
    assert revision.status == S.DEPLOYED


def test_second_redeploy_has_no_effect(deployment):
    revision = RevisionFactory(deployment=deployment, status=S.DEPLOYED, built_attempt=1)

    services.redeploy(revision=revision)
    services.redeploy(revision=revision)

    assert list_status_changes(revision) == [("AWAITING_DEPLOY", "Redeployed.")]


def test_status_change_is_published_after_commit(
    revision, django_capture_on_commit_callbacks, monkeypatch
):
    published = []
    monkeypatch.setattr("apps.deployments.dispatch._send_revision_changed", published.append)

    with django_capture_on_commit_callbacks(execute=True):
        progress.advance(revision.pk, to=S.BUILDING)
        assert published == []

    assert published == [f"revision.{revision.pk}"]


def test_stopped_deployment_serves_a_new_revision_only_after_a_start(deployment):
    deployment.active_revision = RevisionFactory(deployment=deployment, status="DEPLOYED")
    deployment.status = "READY"
    deployment.save()
    services.stop_deployment(deployment=deployment)
    revision = RevisionFactory(deployment=deployment, status="DEPLOYING")

    progress.activate(revision)

    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("UNUSED", revision.pk)
    services.start_deployment(deployment=deployment)
    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("READY", revision.pk)
