"""Public links to datasets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.datasets.models import Dataset, DatasetShare
from apps.organizations.models import Organization
from apps.tracing.errors import ShareNotFound, ShareTokenTaken, SharingForbidden
from apps.tracing.services.sharing import is_sharing_allowed


def find_share(dataset: Dataset) -> DatasetShare:
    """Return the dataset's link; raises `ShareNotFound`."""
    shares = DatasetShare.objects.for_workspace(dataset.workspace_id)
    share = shares.filter(dataset=dataset).first()
    if share is None:
        raise ShareNotFound("The dataset is not shared.")
    return share


def share_dataset(
    *, dataset: Dataset, token: UUID | None = None, with_experiments: bool | None = None
) -> DatasetShare:
    """Share the latest version, as it changes; a repeated call returns the existing link.

    `with_experiments` also shows, or hides, the experiments; None leaves an existing link as it
    is. Raises `SharingForbidden`, and `ShareTokenTaken` if another link has the token.
    """
    if not is_sharing_allowed(dataset.workspace_id):
        raise SharingForbidden
    share = DatasetShare(
        workspace_id=dataset.workspace_id,
        dataset=dataset,
        token=token or uuid4(),
        with_experiments=bool(with_experiments),
    )
    try:
        with transaction.atomic():
            share.save(force_insert=True)
            _record_shared(share)
    except IntegrityError:
        try:
            existing = find_share(dataset)
        except ShareNotFound:
            raise ShareTokenTaken from None
        if with_experiments is not None:
            _show_experiments(existing, with_experiments=with_experiments)
        return existing
    return share


@transaction.atomic
def _show_experiments(share: DatasetShare, *, with_experiments: bool) -> None:
    if share.with_experiments != with_experiments:
        share.with_experiments = with_experiments
        share.save(update_fields=["with_experiments"])
        _record_shared(share)


@transaction.atomic
def unshare_dataset(*, dataset: Dataset) -> None:
    """Revoke the link, if any. Idempotent."""
    shares = DatasetShare.objects.for_workspace(dataset.workspace_id)
    count, _ = shares.filter(dataset=dataset).delete()
    if count:
        _record(Action.DATASET_UNSHARED, dataset)


def list_newest(workspace_id: UUID, limit: int) -> list[dict[str, Any]]:
    """Return the workspace's newest links as JSON, see `apps.tracing.hooks.LinkSource`."""
    shares = DatasetShare.objects.for_workspace(workspace_id).select_related("dataset")
    return [
        {
            "type": "dataset",
            "share_token": share.token,
            "created_at": share.created_at,
            "dataset_id": share.dataset_id,
            "dataset_name": share.dataset.name,
        }
        for share in shares.order_by("-created_at", "-pk")[:limit]
    ]


@transaction.atomic
def revoke_links(workspace_id: UUID, tokens: Collection[UUID]) -> None:
    """Revoke the workspace's links with these tokens; other tokens are ignored."""
    shares = DatasetShare.objects.for_workspace(workspace_id).filter(token__in=tokens)
    for share in shares.select_related("dataset").order_by("pk"):
        unshare_dataset(dataset=share.dataset)


def revoke_organization_links(organization: Organization) -> None:
    """Revoke all public links of the organization's datasets."""
    for workspace_id in organization.workspaces.values_list("pk", flat=True):
        DatasetShare.objects.for_workspace(workspace_id).delete()


def resolve_link(token: UUID) -> Dataset:
    """Return the dataset of the link; raises `ShareNotFound` if it is unknown or revoked."""
    return find_shared(token).dataset


def resolve_experiments_link(token: UUID) -> Dataset:
    """Return the dataset of the link; raises `ShareNotFound` also if it shows no experiments."""
    share = find_shared(token)
    if not share.with_experiments:
        raise ShareNotFound("The link does not share experiments.")
    return share.dataset


def find_shared(token: UUID) -> DatasetShare:
    """Return the link with its dataset; raises `ShareNotFound` if it is unknown or revoked."""
    shares = DatasetShare.objects.across_workspaces(reason="the token determines the workspace")
    share = shares.filter(token=token, dataset__deleted_at=None).select_related("dataset").first()
    if share is None or not is_sharing_allowed(share.workspace_id):
        raise ShareNotFound
    return share


def _record_shared(share: DatasetShare) -> None:
    _record(Action.DATASET_SHARED, share.dataset, with_experiments=share.with_experiments)


def _record(action: Action, dataset: Dataset, **after: bool) -> None:
    """Record the change without the token, with which readers of the audit log could open it."""
    record(
        action,
        Target("dataset", dataset.pk, dataset.name),
        after={"name": dataset.name, **after},
        workspace_id=dataset.workspace_id,
    )
