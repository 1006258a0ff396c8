"""Issuing, finding and revoking API keys."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from apps.api_keys.models import ApiKey
from apps.core import errors
from apps.core.access import Caller
from apps.core.fresh import Fresh
from apps.organizations.models import Organization, User, Workspace
from apps.organizations.permissions import of_scopes

PREFIX = "slip_"
_CACHE_SECONDS = 0.8  # a revoked key must be dead on every process within a second
_LAST_USED_STEP = timedelta(minutes=1)


def issue_key(
    *,
    organization: Organization,
    name: str,
    scopes: list[str],
    workspace: Workspace | None = None,
    created_by: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret, which cannot be had again."""
    secret = PREFIX + secrets.token_urlsafe(32)
    key = ApiKey.objects.create(
        organization=organization,
        workspace=workspace,
        name=name,
        prefix=secret[: len(PREFIX) + 6],
        digest=digest(secret),
        scopes=scopes,
        created_by=created_by,
        expires_at=expires_at,
    )
    return key, secret


def revoke_key(*, key: ApiKey) -> None:
    """End the key's life; safe to repeat, the first time stands."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


_known: Fresh[bytes, tuple[Caller, UUID | None]] = Fresh(_CACHE_SECONDS)


def caller_of(*, secret: str, workspace_id: UUID | None = None) -> Caller:
    """Who holds the key, in the workspace asked for or else the key's own.

    Raises `Unauthenticated` for an unknown, revoked or expired key and `Forbidden` for a workspace
    outside the key's reach. Look-ups are by hash, so timing says nothing about other keys.
    """
    caller, bound_to = _known.get(digest(secret), _look_up)
    if workspace_id is None or workspace_id == caller.workspace_id:
        return caller
    if bound_to is not None or not _belongs(workspace_id, caller.organization_id):
        raise errors.Forbidden("This key does not reach that workspace.")
    return replace(caller, workspace_id=workspace_id)


def _look_up(hashed: bytes) -> tuple[Caller, UUID | None]:
    now = timezone.now()
    live = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
    key = ApiKey.objects.filter(live, digest=hashed).first()
    if key is None:
        raise errors.Unauthenticated("Invalid API key.")
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _LAST_USED_STEP)
    if key.last_used_at is None or key.last_used_at < now - _LAST_USED_STEP:
        ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)
    workspace_id = key.workspace_id
    if workspace_id is None:
        first = Workspace.objects.filter(organization_id=key.organization_id)
        workspace_id = first.order_by("created_at").values_list("pk", flat=True).first()
        if workspace_id is None:
            raise errors.Unauthenticated("The key's organization has no workspace.")
    caller = Caller(
        organization_id=key.organization_id,
        workspace_id=workspace_id,
        permissions=of_scopes(key.scopes),
        key_id=key.pk,
        user_id=key.created_by_id,
    )
    return caller, key.workspace_id


def _belongs(workspace_id: UUID, organization_id: UUID) -> bool:
    return Workspace.objects.filter(pk=workspace_id, organization_id=organization_id).exists()
