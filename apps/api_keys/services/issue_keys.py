"""Making keys, changing their secret, ending their life."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.api_keys.errors import KeyLifetimeTooLong, PersonalKeysDisabled
from apps.api_keys.models import ApiKey, KeyKind
from apps.api_keys.services.key_policies import KeyPolicy
from apps.api_keys.services.secrets import PERSONAL_PREFIX, PREFIX, digest, new_secret, shown
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors
from apps.organizations.models import Organization, User, Workspace
from apps.organizations.permissions import (
    SCOPES,
    Permission,
    organization_scope_permissions,
    scope_permissions,
)
from apps.organizations.services.grants import check_permissions

MAX_OVERLAP = timedelta(days=90)


@transaction.atomic
def issue_key(
    *,
    organization: Organization,
    name: str,
    scopes: Collection[str],
    workspace: Workspace | None = None,
    workspaces: Collection[Workspace] = (),
    created_by: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A service key and its secret, which cannot be had again.

    For the workspaces that are given, or for all of the organization when none is.
    """
    chosen = [workspace] if workspace is not None else list(workspaces)
    key, secret = _made(
        PREFIX,
        organization=organization,
        kind=KeyKind.SERVICE,
        is_organization_wide=not chosen,
        workspace=chosen[0] if len(chosen) == 1 else None,
        name=name,
        scopes=list(scopes),
        created_by=created_by,
        expires_at=expires_at,
    )
    key.workspaces.set(chosen)
    _record(Action.KEY_CREATED, key, after=_told(key))
    return key, secret


@transaction.atomic
def issue_service_key(
    *,
    organization_id: UUID,
    name: str,
    scopes: Collection[str],
    rights: KeyPolicy,
    workspace_ids: Collection[UUID] = (),
    created_by: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """The same on behalf of somebody, who can give it no more than they may do themselves."""
    organization = Organization.objects.get(pk=organization_id)
    wanted = set(workspace_ids)
    present = Workspace.objects.present().filter(organization=organization, pk__in=wanted)
    workspaces = list(present.order_by("pk"))
    if len(workspaces) != len(wanted):
        raise errors.NotFound("There is no such workspace in the organization.")
    words = scope_permissions(_checked_scopes(scopes))
    for workspace in workspaces:
        check_permissions(rights.in_workspace(workspace.pk), words | {str(Permission.KEYS_MANAGE)})
    if not workspaces:
        rights.require_organization()
        check_permissions(rights.on_organization(), organization_scope_permissions(scopes))
    return issue_key(
        organization=organization,
        name=name,
        scopes=scopes,
        workspaces=workspaces,
        created_by=created_by,
        expires_at=_checked_end(organization, expires_at),
    )


@transaction.atomic
def issue_personal_key(
    *,
    organization_id: UUID,
    person: User,
    name: str,
    scopes: Collection[str] = ("admin",),
    workspace_id: UUID | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """A key that acts as the person; `workspace_id` is what it means when none is named.

    Its scopes only narrow what the person may do, so that any of them may be given.
    """
    organization = Organization.objects.get(pk=organization_id)
    if organization.personal_keys_disabled:
        raise PersonalKeysDisabled
    key, secret = _made(
        PERSONAL_PREFIX,
        organization=organization,
        kind=KeyKind.PERSONAL,
        person=person,
        workspace_id=workspace_id,
        name=name,
        scopes=_checked_scopes(scopes),
        created_by=person,
        expires_at=_checked_end(organization, expires_at),
    )
    _record(Action.KEY_CREATED, key, after=_told(key))
    return key, secret


@transaction.atomic
def rotate_key(*, key: ApiKey, overlap: timedelta = timedelta()) -> tuple[ApiKey, str]:
    """A new secret for the same key. The old one lives for the overlap, one still older is dead."""
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise errors.Invalid(f"An overlap is at most {MAX_OVERLAP.days} days.")
    row = ApiKey.objects.live().select_for_update(no_key=True, of=("self",)).filter(pk=key.pk)
    found = row.first()
    if found is None:
        raise errors.Conflict("The key is revoked or expired. Make another one.")
    now = timezone.now()
    secret = new_secret(PERSONAL_PREFIX if found.kind == KeyKind.PERSONAL else PREFIX)
    found.previous_digest = found.digest if overlap else None
    found.previous_prefix = found.prefix if overlap else ""
    found.previous_until = now + overlap if overlap else None
    found.previous_used_at = found.last_used_at if overlap else None
    found.digest, found.prefix = digest(secret), shown(secret)
    found.rotated_at, found.last_used_at = now, None
    found.save()
    _record(Action.KEY_ROTATED, found, after={"overlap_until": found.previous_until})
    return found, secret


@transaction.atomic
def update_key(*, key: ApiKey, name: str) -> ApiKey:
    before = _told(key)
    key.name = name
    key.save(update_fields=["name"])
    _record(Action.KEY_UPDATED, key, before=before, after=_told(key))
    return key


@transaction.atomic
def revoke_key(*, key: ApiKey) -> None:
    """End the key's life, every secret of it; safe to repeat, the first time stands."""
    if ApiKey.objects.unrevoked().filter(pk=key.pk).update(revoked_at=timezone.now()):
        _record(Action.KEY_REVOKED, key, before=_told(key))


def revoke_personal_keys(organization_id: UUID, person_id: UUID) -> None:
    """The person has left: their keys stay dead, also when they come back."""
    keys = ApiKey.objects.unrevoked().of_person(person_id)
    for key in keys.filter(organization_id=organization_id):
        revoke_key(key=key)


def revoke_keys_of_workspace(workspace: Workspace) -> None:
    """The workspace is deleted: keys for it alone end."""
    keys = ApiKey.objects.unrevoked().reaching(workspace.pk).filter(is_organization_wide=False)
    for key in keys:
        if not key.workspaces.present().exclude(pk=workspace.pk).exists():
            revoke_key(key=key)


def _made(prefix: str, **fields: Any) -> tuple[ApiKey, str]:
    secret = new_secret(prefix)
    key = ApiKey.objects.create(prefix=shown(secret), digest=digest(secret), **fields)
    return key, secret


def _checked_scopes(scopes: Collection[str]) -> list[str]:
    if not scopes or (unknown := set(scopes) - set(SCOPES)):
        named = ", ".join(sorted(unknown)) if scopes else "none"
        raise errors.Invalid(f"Scopes are {', '.join(SCOPES)}; not {named}.")
    return [scope for scope in SCOPES if scope in scopes]


def _checked_end(organization: Organization, expires_at: datetime | None) -> datetime | None:
    """When the key ends: as asked for, or as late as the organization lets it."""
    now = timezone.now()
    if expires_at is not None and expires_at <= now:
        raise errors.Invalid("`expires_at` has to be in the future.")
    if organization.max_key_days is None:
        return expires_at
    latest = now + timedelta(days=organization.max_key_days)
    if expires_at is not None and expires_at > latest:
        raise KeyLifetimeTooLong(
            f"The organization's keys live {organization.max_key_days} days at most."
        )
    return expires_at or latest


def _told(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "short_key": key.prefix,
        "kind": key.kind,
        "scopes": key.scopes,
        "expires_at": key.expires_at,
        "owner": key.person.email if key.person is not None else None,
        "workspaces": [str(pk) for pk in key.workspaces.values_list("pk", flat=True)],
    }


def _record(
    action: Action,
    key: ApiKey,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    record(
        action,
        Target("key", key.pk, str(key)),
        before=before,
        after=after,
        organization_id=key.organization_id,
        workspace_id=key.workspace_id,
    )
