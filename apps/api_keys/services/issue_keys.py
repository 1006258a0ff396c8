"""Creation, rotation, renaming and revocation of keys."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.api_keys.errors import KeyLifetimeTooLong, KeyOfClientSession, PersonalKeysDisabled
from apps.api_keys.models import ApiKey, ClientSession, KeyKind
from apps.api_keys.services.key_lookup import (
    PERSONAL_PREFIX,
    PREFIX,
    digest,
    generate_secret,
    visible_prefix,
)
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors
from apps.core.tenancy import check_row_limit
from apps.organizations.models import Organization, User, Workspace
from apps.organizations.permissions import (
    SCOPES,
    OrganizationPermission,
    Permission,
    organization_scope_permissions,
    scope_permissions,
)
from apps.organizations.services import caller_for, organization_caller_for
from apps.organizations.services.roles import check_permissions

MAX_KEYS = 10_000
"""Valid keys of an organization, with those that clients get when a user signs in."""
MAX_OVERLAP = timedelta(days=90)


@dataclass(frozen=True)
class KeyPolicy:
    """The caller's permissions per workspace and on the organization, resolved on demand."""

    in_workspace: Callable[[UUID], frozenset[str]]
    on_organization: Callable[[], frozenset[str]]

    @classmethod
    def of_user(cls, user: User, organization_id: UUID) -> KeyPolicy:
        def in_workspace(workspace_id: UUID) -> frozenset[str]:
            caller = caller_for(user=user, workspace_id=workspace_id)
            return caller.permissions if caller is not None else frozenset()

        def on_organization() -> frozenset[str]:
            caller = organization_caller_for(user=user, organization_id=organization_id)
            return caller.permissions if caller is not None else frozenset()

        return cls(in_workspace, on_organization)

    def check_manages(self, key: ApiKey) -> None:
        """Raise `Forbidden` unless the caller manages every workspace of the key."""
        if key.is_organization_wide:
            self.require_organization()
            return
        workspace_ids = list(key.workspaces.present().values_list("pk", flat=True))
        if not workspace_ids or not all(self._manages(pk) for pk in workspace_ids):
            self.require_organization()

    def require_organization(self) -> None:
        permission = OrganizationPermission.SERVICE_KEYS_MANAGE
        if permission not in self.on_organization():
            raise errors.Forbidden(f"Permission {permission} is required.")

    def _manages(self, workspace_id: UUID) -> bool:
        return Permission.KEYS_MANAGE in self.in_workspace(workspace_id)


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
    """Create a service key; returns it with its secret, which is not stored.

    It is for the given workspaces, or for all of the organization if none are given.
    """
    key_workspaces = [workspace] if workspace is not None else list(workspaces)
    key, secret = _insert_key(
        PREFIX,
        organization=organization,
        kind=KeyKind.SERVICE,
        is_organization_wide=not key_workspaces,
        workspace=key_workspaces[0] if len(key_workspaces) == 1 else None,
        name=name,
        scopes=list(scopes),
        created_by=created_by,
        expires_at=expires_at,
    )
    key.workspaces.set(key_workspaces)
    _record(Action.KEY_CREATED, key, after=_audit_values(key))
    return key, secret


@transaction.atomic
def issue_service_key(
    *,
    organization_id: UUID,
    name: str,
    scopes: Collection[str],
    policy: KeyPolicy,
    workspace_ids: Collection[UUID] = (),
    created_by: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Create a service key for a caller. Raises `PermissionEscalation` beyond its policy."""
    organization = Organization.objects.get(pk=organization_id)
    requested = set(workspace_ids)
    present = Workspace.objects.present().filter(organization=organization, pk__in=requested)
    workspaces = list(present.order_by("pk"))
    if len(workspaces) != len(requested):
        raise errors.NotFound("`workspaces` contains a workspace that is not in the organization.")
    permissions = scope_permissions(_validate_scopes(scopes))
    for workspace in workspaces:
        check_permissions(
            policy.in_workspace(workspace.pk), permissions | {str(Permission.KEYS_MANAGE)}
        )
    if not workspaces:
        policy.require_organization()
        check_permissions(policy.on_organization(), organization_scope_permissions(scopes))
    return issue_key(
        organization=organization,
        name=name,
        scopes=scopes,
        workspaces=workspaces,
        created_by=created_by,
        expires_at=_validate_expiry(organization, expires_at),
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
    audience: str = "",
) -> tuple[ApiKey, str]:
    """Create a key that acts as the user; `workspace_id` is its default workspace.

    `audience` is the only MCP server that accepts it; empty for no limit.
    Its scopes only restrict the user's permissions, so any scope is allowed.
    """
    organization = Organization.objects.get(pk=organization_id)
    if organization.personal_keys_disabled:
        raise PersonalKeysDisabled
    key, secret = _insert_key(
        PERSONAL_PREFIX,
        organization=organization,
        kind=KeyKind.PERSONAL,
        person=person,
        workspace_id=workspace_id,
        name=name,
        scopes=_validate_scopes(scopes),
        created_by=person,
        expires_at=_validate_expiry(organization, expires_at),
        audience=audience,
    )
    _record(Action.KEY_CREATED, key, after=_audit_values(key))
    return key, secret


@transaction.atomic
def rotate_key(*, key: ApiKey, overlap: timedelta = timedelta()) -> tuple[ApiKey, str]:
    """Replace the secret. The old one stays valid for the overlap; earlier ones do not."""
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise errors.Invalid(f"`overlap_seconds` must be at most {MAX_OVERLAP.days} days.")
    rows = ApiKey.objects.live().select_for_update(no_key=True, of=("self",)).filter(pk=key.pk)
    row = rows.first()
    if row is None:
        raise errors.Conflict("The key is revoked or expired. Create a new key.")
    if ClientSession.objects.filter(key=row).exists():
        raise KeyOfClientSession
    now = timezone.now()
    secret = generate_secret(PERSONAL_PREFIX if row.kind == KeyKind.PERSONAL else PREFIX)
    row.previous_digest = row.digest if overlap else None
    row.previous_prefix = row.prefix if overlap else ""
    row.previous_until = now + overlap if overlap else None
    row.previous_used_at = row.last_used_at if overlap else None
    row.digest, row.prefix = digest(secret), visible_prefix(secret)
    row.rotated_at, row.last_used_at = now, None
    row.save()
    _record(Action.KEY_ROTATED, row, after={"overlap_until": row.previous_until})
    return row, secret


@transaction.atomic
def update_key(*, key: ApiKey, name: str) -> ApiKey:
    before = _audit_values(key)
    key.name = name
    key.save(update_fields=["name"])
    _record(Action.KEY_UPDATED, key, before=before, after=_audit_values(key))
    return key


@transaction.atomic
def revoke_key(*, key: ApiKey) -> None:
    """Revoke the key with all its secrets. Safe to repeat; the first time is kept."""
    if ApiKey.objects.unrevoked().filter(pk=key.pk).update(revoked_at=timezone.now()):
        _record(Action.KEY_REVOKED, key, before=_audit_values(key))


def revoke_personal_keys(organization_id: UUID, person_id: UUID) -> None:
    """Revoke the keys of a user who left; they stay revoked if the user returns."""
    keys = ApiKey.objects.unrevoked().of_person(person_id)
    for key in keys.filter(organization_id=organization_id):
        revoke_key(key=key)


def revoke_keys_of_workspace(workspace: Workspace) -> None:
    """Revoke the keys that were only for the deleted workspace."""
    keys = ApiKey.objects.unrevoked().reaching(workspace.pk).filter(is_organization_wide=False)
    for key in keys:
        if not key.workspaces.present().exclude(pk=workspace.pk).exists():
            revoke_key(key=key)


def _insert_key(prefix: str, **fields: Any) -> tuple[ApiKey, str]:
    secret = generate_secret(prefix)
    key = ApiKey.objects.create(prefix=visible_prefix(secret), digest=digest(secret), **fields)
    keys = ApiKey.objects.live().filter(organization=key.organization)
    check_row_limit(keys, MAX_KEYS, "valid keys of an organization")
    return key, secret


def _validate_scopes(scopes: Collection[str]) -> list[str]:
    if not scopes or (unknown := set(scopes) - set(SCOPES)):
        invalid = ", ".join(sorted(unknown)) if scopes else "none"
        raise errors.Invalid(f"`scopes` must be among {', '.join(SCOPES)}; not {invalid}.")
    return [scope for scope in SCOPES if scope in scopes]


def _validate_expiry(organization: Organization, expires_at: datetime | None) -> datetime | None:
    """Return the requested expiry, or the latest that the organization allows."""
    now = timezone.now()
    if expires_at is not None and expires_at <= now:
        raise errors.Invalid("`expires_at` must be in the future.")
    if organization.max_key_days is None:
        return expires_at
    latest = now + timedelta(days=organization.max_key_days)
    if expires_at is not None and expires_at > latest:
        raise KeyLifetimeTooLong(
            f"`expires_at` exceeds the organization's limit of {organization.max_key_days} days."
        )
    return expires_at or latest


def latest_expiry(organization: Organization, requested: datetime) -> datetime:
    """Return the requested expiry, or an earlier one if the organization limits lifetimes."""
    if organization.max_key_days is None:
        return requested
    return min(requested, timezone.now() + timedelta(days=organization.max_key_days))


def _audit_values(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "short_key": key.prefix,
        "kind": key.kind,
        "scopes": key.scopes,
        **({"audience": key.audience} if key.audience else {}),
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
