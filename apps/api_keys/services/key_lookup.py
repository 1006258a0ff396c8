"""Look-up of keys and their permissions.

Results are cached for 0.8 seconds, so that a revoked key, a removed member or a changed role takes
effect in every process within a second, without a message that could be lost. Each result
is read from the database in full: no result combines cached ones.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, cast
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q
from django.utils import timezone

from apps.api_keys.errors import WorkspaceRequired
from apps.api_keys.models import ApiKey, ApiKeyQuerySet, KeyKind
from apps.core import errors, request_context
from apps.core.callers import Caller, OrganizationCaller, PersonCaller
from apps.core.ttl_cache import TTLCache
from apps.organizations.models import Workspace
from apps.organizations.permissions import (
    OrganizationPermission,
    organization_scope_permissions,
    person_scope_permissions,
    scope_permissions,
)
from apps.organizations.services import caller_for, callers_for, organization_caller_for

PREFIX = "slip_"
PERSONAL_PREFIX = "slip_pt_"
ACCESS_PREFIX = "slip_at_"
"""Of access tokens, which clients get for a user (`client_sign_in`)."""
_VISIBLE_CHARACTERS = 6


def generate_secret(prefix: str = PREFIX) -> str:
    return prefix + secrets.token_urlsafe(32)


def visible_prefix(secret: str) -> str:
    """Return the visible prefix, which distinguishes keys and reveals too little to guess one."""
    prefixes = (PERSONAL_PREFIX, ACCESS_PREFIX)
    prefix = next((each for each in prefixes if secret.startswith(each)), PREFIX)
    return secret[: len(prefix) + _VISIBLE_CHARACTERS]


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _WorkspaceIds(TypedDict):
        workspace_ids: list[UUID]

    KeyWithWorkspaceIds = WithAnnotations[ApiKey, _WorkspaceIds]

CACHE_SECONDS = 0.8
_LAST_USED_INTERVAL = timedelta(minutes=1)
_NO_WORKSPACE_ACCESS = "The API key has no access to this workspace."


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """The identity of a valid key, independent of a workspace."""

    key_id: UUID
    organization_id: UUID
    person_id: UUID | None


# With the audiences of the keys.
_callers: TTLCache[tuple[bytes, UUID | None], tuple[Caller, str]] = TTLCache(CACHE_SECONDS)
_organization_callers: TTLCache[bytes, tuple[OrganizationCaller, str]] = TTLCache(CACHE_SECONDS)
_key_info: TTLCache[bytes, KeyInfo] = TTLCache(CACHE_SECONDS)


def caller_for_key(*, secret: str, workspace_id: UUID | None = None) -> Caller:
    """Return the key's caller in the workspace, by default the key's own.

    Raises `Unauthenticated` for an unknown, revoked or expired key, `Forbidden` for a workspace
    without access, `WorkspaceRequired` if it is for several and none is named. Look-ups are by
    hash, so timing reveals nothing about other keys.
    """
    caller, audience = _callers.get((digest(secret), workspace_id), _look_up_caller)
    _check_audience(audience)
    return caller


def _check_audience(audience: str) -> None:
    """Raise `Unauthenticated` if the key is for another MCP server than the request is."""
    if not audience:
        return
    context = request_context.current()
    if context is None or context.audience != audience:
        raise errors.Unauthenticated("The token is for another resource.")


def callers_for_keys(pairs: Collection[tuple[bytes, UUID]]) -> dict[tuple[bytes, UUID], Caller]:
    """Return the current callers of many (digest, workspace) pairs in a constant number of queries.

    Pairs without access are left out. `last_used_at` is not updated.
    """
    keys = _get_live_keys_by_digest({key_digest for key_digest, _ in pairs})
    valid = [(pair, keys[pair[0]]) for pair in pairs if pair[0] in keys]
    user_callers = callers_for(
        {(key.person_id, pair[1]) for pair, key in valid if key.person_id is not None}
    )
    present = Workspace.objects.present().filter(pk__in={workspace for _, workspace in pairs})
    organization_ids = dict(present.values_list("pk", "organization_id"))
    callers = {}
    for (key_digest, workspace_id), key in valid:
        caller: Caller | None = None
        if key.person_id is not None:
            caller = _caller_for_person(key, user_callers.get((key.person_id, workspace_id)))
        elif (
            organization_ids.get(workspace_id) == key.organization_id
            if key.is_organization_wide
            else workspace_id in key.workspace_ids
        ):
            caller = _caller_for_service_key(key, workspace_id)
        if caller is not None:
            callers[key_digest, workspace_id] = caller
    return callers


def organization_caller_for_key(*, secret: str) -> OrganizationCaller:
    """Return the key's caller on its organization."""
    caller, audience = _organization_callers.get(digest(secret), _look_up_organization_caller)
    _check_audience(audience)
    return caller


def get_key_info(*, secret: str) -> KeyInfo:
    """Return the key's identity without permissions. Raises `Unauthenticated`."""
    return _key_info.get(digest(secret), _look_up_key_info)


def cached_organization_id(secret: str) -> UUID | None:
    """Return the organization of a key that `get_key_info` looked up just before, or None."""
    info = _key_info.peek(digest(secret))
    return None if info is None else info.organization_id


def person_caller_for_key(*, secret: str) -> PersonCaller:
    """Return the user of a personal key; raises `NotFound` for service keys."""
    key = _get_live_key(digest(secret))
    _check_audience(key.audience)
    if key.person_id is None:
        raise errors.NotFound("Service keys have no user. Use a personal key.")
    return PersonCaller(
        user_id=key.person_id,
        permissions=person_scope_permissions(key.scopes),
        key_id=key.pk,
        organization_id=key.organization_id,
    )


def clear_cache() -> None:
    """Clear the caches. For tests."""
    for cache in (_callers, _organization_callers, _key_info):
        cache.clear()


def _look_up_caller(pair: tuple[bytes, UUID | None]) -> tuple[Caller, str]:
    key_digest, workspace_id = pair
    key = _get_live_key(key_digest)
    if workspace_id is None:
        workspace_id = _get_default_workspace_id(key)
    if key.person is not None:
        caller = _caller_for_person(key, caller_for(user=key.person, workspace_id=workspace_id))
    else:
        caller = (
            _caller_for_service_key(key, workspace_id) if _has_access(key, workspace_id) else None
        )
    if caller is None:
        raise errors.Forbidden(_NO_WORKSPACE_ACCESS)
    return caller, key.audience


def _caller_for_person(key: ApiKey, person: Caller | None) -> Caller | None:
    """Restrict the user's caller to the key's scopes."""
    if person is None or person.organization_id != key.organization_id:
        return None
    allowed = person.permissions & scope_permissions(key.scopes)
    return replace(person, permissions=allowed, key_id=key.pk)


def _caller_for_service_key(key: ApiKey, workspace_id: UUID) -> Caller:
    """Return the caller of a service key in an accessible workspace."""
    return Caller(
        organization_id=key.organization_id,
        workspace_id=workspace_id,
        permissions=scope_permissions(key.scopes),
        key_id=key.pk,
        user_id=key.created_by_id,
    )


def _look_up_organization_caller(key_digest: bytes) -> tuple[OrganizationCaller, str]:
    key = _get_live_key(key_digest)
    return _organization_caller(key), key.audience


def _organization_caller(key: KeyWithWorkspaceIds) -> OrganizationCaller:
    permissions = organization_scope_permissions(key.scopes)
    if key.person is not None:
        person = organization_caller_for(user=key.person, organization_id=key.organization_id)
        if person is None:
            raise errors.Unauthenticated("The key's user has left the organization.")
        allowed = permissions & person.permissions
        return replace(
            person,
            permissions=allowed,
            key_id=key.pk,
            key_permissions=scope_permissions(key.scopes),
        )
    workspace_ids = None if key.is_organization_wide else frozenset(key.workspace_ids)
    read_only = frozenset({str(OrganizationPermission.ORGANIZATION_READ)})
    return OrganizationCaller(
        key.organization_id,
        permissions if workspace_ids is None else permissions & read_only,
        key_id=key.pk,
        workspace_ids=workspace_ids,
        key_permissions=scope_permissions(key.scopes),
    )


def _look_up_key_info(key_digest: bytes) -> KeyInfo:
    key = _get_live_key(key_digest)
    return KeyInfo(key.pk, key.organization_id, key.person_id)


def _get_live_key(key_digest: bytes) -> KeyWithWorkspaceIds:
    """Return the live key with this digest, and with the ids of its undeleted workspaces."""
    now = timezone.now()
    before_rotation = Q(previous_digest=key_digest, previous_until__gt=now)
    key = _query_live_keys().filter(Q(digest=key_digest) | before_rotation).first()
    if key is None or not _has_digest(key, key_digest):
        raise errors.Unauthenticated("Invalid API key.")
    if (rejection := find_rejection(key)) is not None:
        raise rejection
    _update_last_used(key, key_digest, now)
    return cast("KeyWithWorkspaceIds", key)


def _get_live_keys_by_digest(hashes: Collection[bytes]) -> dict[bytes, KeyWithWorkspaceIds]:
    """Return the live keys by requested hash."""
    before_rotation = Q(previous_digest__in=hashes, previous_until__gt=timezone.now())
    keys: dict[bytes, KeyWithWorkspaceIds] = {}
    for key in _query_live_keys().filter(Q(digest__in=hashes) | before_rotation):
        if find_rejection(key) is not None:
            continue
        digests = {bytes(key.digest)}
        if key.previous_until is not None and key.previous_until > timezone.now():
            digests.add(bytes(key.previous_digest or b""))
        keys |= dict.fromkeys(digests, cast("KeyWithWorkspaceIds", key))
    return keys


def _query_live_keys() -> ApiKeyQuerySet:
    """Query live keys with the ids of their undeleted workspaces."""
    through = ApiKey.workspaces.through.objects
    workspace_links = through.filter(apikey_id=OuterRef("pk"), workspace__deleted_at=None)
    rows = ApiKey.objects.live().select_related("person", "organization")
    return rows.annotate(workspace_ids=ArraySubquery(workspace_links.values("workspace_id")))


def find_rejection(key: ApiKey) -> errors.AppError | None:
    """Return the reason to reject a live key."""
    if key.person is None:
        return None
    if not key.person.is_active:
        return errors.Unauthenticated("Invalid API key.")
    if key.organization.personal_keys_disabled:
        return errors.Unauthenticated("Personal keys are disabled in this organization.")
    return None


def _has_digest(key: ApiKey, key_digest: bytes) -> bool:
    """Compare in constant time."""
    current = hmac.compare_digest(bytes(key.digest), key_digest)
    previous = hmac.compare_digest(bytes(key.previous_digest or b""), key_digest)
    return current | previous


def _update_last_used(key: ApiKey, key_digest: bytes, now: datetime) -> None:
    """Update when each secret was last used, at most once a minute."""
    is_current = bytes(key.digest) == key_digest
    field = "last_used_at" if is_current else "previous_used_at"
    last_used_at = key.last_used_at if is_current else key.previous_used_at
    if last_used_at is None or last_used_at < now - _LAST_USED_INTERVAL:
        stale = Q(**{field: None}) | Q(**{f"{field}__lt": now - _LAST_USED_INTERVAL})
        ApiKey.objects.filter(stale, pk=key.pk).update(**{field: now})


def _get_default_workspace_id(key: KeyWithWorkspaceIds) -> UUID:
    """Return the workspace for a request that names none."""
    if key.kind == KeyKind.PERSONAL and key.workspace_id is not None:
        return key.workspace_id
    if key.kind == KeyKind.SERVICE and not key.is_organization_wide:
        if len(key.workspace_ids) == 1:
            return key.workspace_ids[0]
        if not key.workspace_ids:
            raise errors.Unauthenticated("All workspaces of the API key are deleted.")
    raise WorkspaceRequired


def _has_access(key: KeyWithWorkspaceIds, workspace_id: UUID) -> bool:
    if not key.is_organization_wide:
        return workspace_id in key.workspace_ids
    present = Workspace.objects.present()
    return present.filter(pk=workspace_id, organization_id=key.organization_id).exists()
