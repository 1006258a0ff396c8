"""Builds of an organization that deploys without end do not keep those of others waiting."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from apps.deployments import dispatch
from apps.deployments.models import Deployment, Revision
from apps.deployments.services import build_turns, progress
from apps.deployments.statuses import RevisionStatus as S
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def builder(settings: Any) -> str:
    """The name of a builder with three threads: two for an organization."""
    settings.BUILD_THREADS = 3
    return "machine:1"


def make_waiting(count: int, deployment: Deployment | None = None) -> list[Revision]:
    """Revisions of one organization that wait for a builder, oldest first."""
    workspace = deployment.workspace if deployment else WorkspaceFactory()
    deployments = [DeploymentFactory(workspace=workspace) for _ in range(count)]
    return [RevisionFactory(deployment=row, status=S.AWAITING_BUILD) for row in deployments]


def test_an_organization_leaves_a_thread_to_others(builder: str) -> None:
    attack = make_waiting(10)
    taken = [build_turns.claim_next(revision.pk, owner=builder) for revision in attack]
    other = make_waiting(1)[0]

    assert [revision and revision.pk for revision in taken] == [
        attack[0].pk, attack[1].pk, *[None] * 8,
    ]  # fmt: skip
    assert build_turns.claim_next(other.pk, owner=builder) == other
    assert build_turns.claim_next(attack[2].pk, owner="machine:2") == attack[2]


def test_the_message_of_one_organization_builds_for_another_one(builder: str) -> None:
    """The messages of the attack are older, so they are read first."""
    attack = make_waiting(10)
    build_turns.claim_next(attack[0].pk, owner=builder)
    other = make_waiting(1)[0]

    assert build_turns.claim_next(attack[1].pk, owner=builder) == other
    assert build_turns.claim_next(other.pk, owner=builder) == attack[1]


def test_the_only_thread_builds_for_organizations_in_turn(settings: Any) -> None:
    settings.BUILD_THREADS = 1
    attack, other = make_waiting(5), make_waiting(2)
    order = []
    for revision in attack:
        claimed = build_turns.claim_next(revision.pk, owner="machine:1")
        assert claimed is not None
        order.append(claimed)
        progress.fail(claimed, reason="x", attempt=claimed.attempt)

    # The attack begins, since its revisions are older.
    assert [revision in other for revision in order] == [False, True, False, True, False]


def test_the_named_revision_comes_before_others_of_its_organization(builder: str) -> None:
    waiting = make_waiting(3)

    assert build_turns.claim_next(waiting[2].pk, owner=builder) == waiting[2]
    assert build_turns.claim_next(uuid4(), owner=builder) == waiting[0]


def test_builds_that_ended_or_were_abandoned_hold_no_thread(builder: str) -> None:
    waiting = make_waiting(4)
    first = build_turns.claim_next(waiting[0].pk, owner=builder)
    build_turns.claim_next(waiting[1].pk, owner=builder)
    assert first is not None
    assert build_turns.claim_next(waiting[2].pk, owner=builder) is None

    progress.fail(first, reason="x", attempt=first.attempt)
    assert build_turns.claim_next(waiting[2].pk, owner=builder) == waiting[2]
    past = timezone.now() - timedelta(seconds=1)
    Revision.unscoped.filter(pk=waiting[1].pk).update(lease_expires_at=past)
    assert build_turns.claim_next(waiting[3].pk, owner=builder) == waiting[3]


def test_a_revision_that_was_kept_waiting_is_announced_after_a_build(
    builder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[Any] = []
    monkeypatch.setattr(dispatch, "build_revision", announced.append)
    build_turns.wake_builder()
    assert announced == []

    waiting = make_waiting(2)
    build_turns.wake_builder()

    assert announced == [waiting[0].pk]
