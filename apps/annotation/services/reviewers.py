"""Who reviews the items of a queue, and how many reviews an item needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.annotation import errors
from apps.annotation.models import AnnotationQueue, QueueReviewer
from apps.annotation.services.queue_lock import lock_queue
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import check_row_limit
from apps.organizations.models import User, Workspace, WorkspaceMembership
from apps.organizations.queries import query_workspace_administrators

MAX_REVIEWERS = 200
"""Of a queue."""


def assigned_ids(queue: AnnotationQueue) -> list[UUID]:
    """Return the users who are assigned to the queue, in the order of assignment."""
    rows = QueueReviewer.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    return list(rows.order_by("created_at", "pk").values_list("user_id", flat=True))


def is_reviewer(queue: AnnotationQueue, reviewer_id: UUID) -> bool:
    """Whether the user may review items: anyone, unless the queue has only its assigned ones."""
    return not queue.needs_all_assigned or reviewer_id in assigned_ids(queue)


def required_reviews(queue: AnnotationQueue) -> int:
    """Return the number of reviews that complete an item; without a number, of all users."""
    if queue.needs_all_assigned:
        return max(1, len(assigned_ids(queue)))
    if queue.num_reviewers_per_item is not None:
        return queue.num_reviewers_per_item
    return max(1, query_users(queue.workspace_id).count())


def query_users(workspace_id: UUID) -> QuerySet[User]:
    """Return the users of the workspace: its members, and those who administer every workspace."""
    organization_id = Workspace.objects.values_list("organization_id", flat=True).get(
        pk=workspace_id
    )
    members = WorkspaceMembership.objects.filter(workspace_id=workspace_id)
    administrators = query_workspace_administrators(organization_id)
    return User.objects.filter(
        Q(pk__in=members.values("user_id")) | Q(pk__in=administrators.values("user_id"))
    )


def names_of(workspace_id: UUID, reviewer_ids: Sequence[UUID]) -> list[str]:
    """Return the names of the reviewers; a key without a user has none."""
    users = query_users(workspace_id).in_bulk(reviewer_ids)
    return [users[pk].display_name if pk in users else "An API key" for pk in reviewer_ids]


def find_users(workspace_id: UUID, identity_ids: Collection[UUID]) -> list[UUID]:
    """Return the users of the workspace with these ids or these ids of memberships, in order.

    Raises `ReviewerNotFound`.
    """
    members = WorkspaceMembership.objects.filter(workspace_id=workspace_id, pk__in=identity_ids)
    by_member = dict(members.values_list("pk", "user_id"))
    wanted = list(dict.fromkeys(by_member.get(pk, pk) for pk in identity_ids))
    existing = set(query_users(workspace_id).filter(pk__in=wanted).values_list("pk", flat=True))
    if len(existing) < len(wanted):
        raise errors.ReviewerNotFound
    return wanted


@transaction.atomic
def assign_reviewers(*, queue: AnnotationQueue, identity_ids: Sequence[UUID]) -> None:
    """Assign the users to the queue. Safe to repeat. Raises `ReviewerNotFound`."""
    lock_queue(queue)
    user_ids = find_users(queue.workspace_id, identity_ids)
    before = assigned_ids(queue)
    rows = QueueReviewer.objects.for_workspace(queue.workspace_id)
    rows.bulk_create(
        [
            QueueReviewer(workspace_id=queue.workspace_id, queue=queue, user_id=user_id)
            for user_id in user_ids
        ],
        ignore_conflicts=True,
    )
    check_row_limit(rows.filter(queue=queue), MAX_REVIEWERS, "reviewers of a queue")
    _record_change(queue, before)


@transaction.atomic
def unassign_reviewer(*, queue: AnnotationQueue, identity_id: UUID) -> None:
    """End the assignment of the user; raises `ReviewerNotFound` without one."""
    lock_queue(queue)
    before = assigned_ids(queue)
    memberships = WorkspaceMembership.objects.filter(
        workspace_id=queue.workspace_id, pk=identity_id
    )
    rows = QueueReviewer.objects.for_workspace(queue.workspace_id).filter(queue=queue)
    ended, _ = rows.filter(
        Q(user_id=identity_id) | Q(user_id__in=memberships.values("user_id"))
    ).delete()
    if not ended:
        raise errors.ReviewerNotFound
    _record_change(queue, before)


def _record_change(queue: AnnotationQueue, before: Sequence[UUID]) -> None:
    after = assigned_ids(queue)
    if after != list(before):
        record(
            Action.ANNOTATION_QUEUE_UPDATED,
            Target("annotation_queue", queue.pk, queue.name),
            before={"reviewers": before},
            after={"reviewers": after},
            workspace_id=queue.workspace_id,
        )


def unassign_member(organization_id: UUID, user_id: UUID) -> None:
    """End all assignments of a user who left the organization."""
    workspaces = Workspace.objects.filter(organization_id=organization_id)
    rows = QueueReviewer.objects.across_workspaces(reason="a member left the organization")
    rows.filter(workspace__in=workspaces, user_id=user_id).delete()
