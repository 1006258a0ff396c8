"""Who holds a key, and what it may do at this moment.

What was looked up is kept for 0.8 seconds, so that a revoked key, a removed member and a changed
role are felt by every process within a second, without a message that could be lost. Each answer
is read from the database as a whole: none is put together of answers that have an age themselves.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, cast
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q
from django.utils import timezone

from apps.api_keys.errors import WorkspaceRequired
from apps.api_keys.models import ApiKey, KeyKind
from apps.api_keys.querysets import ApiKeyQuerySet
from apps.api_keys.services.secrets import digest
from apps.core import errors
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

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class Reach(TypedDict):
        reach: list[UUID]

    Found = WithAnnotations[ApiKey, Reach]

CACHE_SECONDS = 0.8
_LAST_USED_STEP = timedelta(minutes=1)
_OUT_OF_REACH = "This key does not reach that workspace."


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What a good key is, wherever it is used."""

    key_id: UUID
    organization_id: UUID
    person_id: UUID | None


_callers: TTLCache[tuple[bytes, UUID | None], Caller] = TTLCache(CACHE_SECONDS)
_organization_callers: TTLCache[bytes, OrganizationCaller] = TTLCache(CACHE_SECONDS)
_key_info: TTLCache[bytes, KeyInfo] = TTLCache(CACHE_SECONDS)


def caller_for_key(*, secret: str, workspace_id: UUID | None = None) -> Caller:
    """Who holds the key, in the workspace asked for or else the key's own.

    Raises `Unauthenticated` for an unknown, revoked or expired key, `Forbidden` for a workspace
    outside its reach, `WorkspaceRequired` when it is for several and none is named. Look-ups are by
    hash, so timing says nothing about other keys.
    """
    return _callers.get((digest(secret), workspace_id), _look_up_caller)


def callers_for_keys(asked: Collection[tuple[bytes, UUID]]) -> dict[tuple[bytes, UUID], Caller]:
    """Who holds keys of these digests in workspaces, at this moment, in a handful of queries.

    What would be refused is left out. This counts as no use of a key.
    """
    keys = _live_by_digest({hashed for hashed, _ in asked})
    found = [(pair, keys[pair[0]]) for pair in asked if pair[0] in keys]
    people = callers_for(
        {(key.person_id, pair[1]) for pair, key in found if key.person_id is not None}
    )
    present = Workspace.objects.present().filter(pk__in={workspace for _, workspace in asked})
    places = dict(present.values_list("pk", "organization_id"))
    callers = {}
    for (hashed, workspace_id), key in found:
        caller: Caller | None = None
        if key.person_id is not None:
            caller = _for_person(key, people.get((key.person_id, workspace_id)))
        elif (
            places.get(workspace_id) == key.organization_id
            if key.is_organization_wide
            else workspace_id in key.reach
        ):
            caller = _for_nobody(key, workspace_id)
        if caller is not None:
            callers[hashed, workspace_id] = caller
    return callers


def organization_caller_for_key(*, secret: str) -> OrganizationCaller:
    """What the key may do with its organization itself."""
    return _organization_callers.get(digest(secret), _look_up_organization_caller)


def get_key_info(*, secret: str) -> KeyInfo:
    """Whose key it is, for what needs no permission; `Unauthenticated` when it is nobody's."""
    return _key_info.get(digest(secret), _look_up_key_info)


def person_caller_for_key(*, secret: str) -> PersonCaller:
    """The person behind a personal key; other keys have nothing of their own."""
    key = _find(digest(secret))
    if key.person_id is None:
        raise errors.NotFound("This is a person's own: use a personal key.")
    return PersonCaller(
        user_id=key.person_id,
        permissions=person_scope_permissions(key.scopes),
        key_id=key.pk,
        organization_id=key.organization_id,
    )


def clear_cache() -> None:
    """For tests: what was looked up is not known any more."""
    for known in (_callers, _organization_callers, _key_info):
        known.clear()


def _look_up_caller(asked: tuple[bytes, UUID | None]) -> Caller:
    hashed, workspace_id = asked
    key = _find(hashed)
    if workspace_id is None:
        workspace_id = _meant(key)
    if key.person is not None:
        caller = _for_person(key, caller_for(user=key.person, workspace_id=workspace_id))
    else:
        caller = _for_nobody(key, workspace_id) if _reaches(key, workspace_id) else None
    if caller is None:
        raise errors.Forbidden(_OUT_OF_REACH)
    return caller


def _for_person(key: ApiKey, person: Caller | None) -> Caller | None:
    """What the key may do where its person may do that much."""
    if person is None or person.organization_id != key.organization_id:
        return None
    allowed = person.permissions & scope_permissions(key.scopes)
    return replace(person, permissions=allowed, key_id=key.pk)


def _for_nobody(key: ApiKey, workspace_id: UUID) -> Caller:
    """What a service key may do in a workspace that it reaches."""
    return Caller(
        organization_id=key.organization_id,
        workspace_id=workspace_id,
        permissions=scope_permissions(key.scopes),
        key_id=key.pk,
        user_id=key.created_by_id,
    )


def _look_up_organization_caller(hashed: bytes) -> OrganizationCaller:
    key = _find(hashed)
    permissions = organization_scope_permissions(key.scopes)
    if key.person is not None:
        person = organization_caller_for(user=key.person, organization_id=key.organization_id)
        if person is None:
            raise errors.Unauthenticated("The key's person has left the organization.")
        allowed = permissions & person.permissions
        return replace(
            person,
            permissions=allowed,
            key_id=key.pk,
            key_permissions=scope_permissions(key.scopes),
        )
    reach = None if key.is_organization_wide else frozenset(key.reach)
    reading = frozenset({str(OrganizationPermission.ORGANIZATION_READ)})
    return OrganizationCaller(
        key.organization_id,
        permissions if reach is None else permissions & reading,
        key_id=key.pk,
        workspace_ids=reach,
        key_permissions=scope_permissions(key.scopes),
    )


def _look_up_key_info(hashed: bytes) -> KeyInfo:
    key = _find(hashed)
    return KeyInfo(key.pk, key.organization_id, key.person_id)


def _find(hashed: bytes) -> Found:
    """The live key of that hash, with `reach`: the workspaces chosen for it that are present."""
    now = timezone.now()
    before_rotation = Q(previous_digest=hashed, previous_until__gt=now)
    key = _live().filter(Q(digest=hashed) | before_rotation).first()
    if key is None or not _is_same(key, hashed):
        raise errors.Unauthenticated("Invalid API key.")
    if (refusal := _refusal(key)) is not None:
        raise refusal
    _note_use(key, hashed, now)
    return cast("Found", key)


def _live_by_digest(hashes: Collection[bytes]) -> dict[bytes, Found]:
    """The live keys of those hashes, by the hash that was asked for."""
    before_rotation = Q(previous_digest__in=hashes, previous_until__gt=timezone.now())
    found: dict[bytes, Found] = {}
    for key in _live().filter(Q(digest__in=hashes) | before_rotation):
        if _refusal(key) is not None:
            continue
        own = {bytes(key.digest)}
        if key.previous_until is not None and key.previous_until > timezone.now():
            own.add(bytes(key.previous_digest or b""))
        found |= dict.fromkeys(own, cast("Found", key))
    return found


def _live() -> ApiKeyQuerySet:
    """Live keys, with `reach`: the workspaces chosen for them that are present."""
    through = ApiKey.workspaces.through.objects
    chosen = through.filter(apikey_id=OuterRef("pk"), workspace__deleted_at=None)
    rows = ApiKey.objects.live().select_related("person", "organization")
    return rows.annotate(reach=ArraySubquery(chosen.values("workspace_id")))


def _refusal(key: ApiKey) -> errors.AppError | None:
    """Why a key that is live is good for nothing all the same."""
    if key.person is None:
        return None
    if not key.person.is_active:
        return errors.Unauthenticated("Invalid API key.")
    if key.organization.personal_keys_disabled:
        return errors.Unauthenticated("The organization allows no personal keys any more.")
    return None


def _is_same(key: ApiKey, hashed: bytes) -> bool:
    """Compared once more, in a time that does not tell how much of it agrees."""
    current = hmac.compare_digest(bytes(key.digest), hashed)
    before = hmac.compare_digest(bytes(key.previous_digest or b""), hashed)
    return current | before


def _note_use(key: ApiKey, hashed: bytes, now: datetime) -> None:
    """When each of the two secrets was last used, to the minute."""
    is_current = bytes(key.digest) == hashed
    field = "last_used_at" if is_current else "previous_used_at"
    last = key.last_used_at if is_current else key.previous_used_at
    if last is None or last < now - _LAST_USED_STEP:
        stale = Q(**{field: None}) | Q(**{f"{field}__lt": now - _LAST_USED_STEP})
        ApiKey.objects.filter(stale, pk=key.pk).update(**{field: now})


def _meant(key: Found) -> UUID:
    """The workspace that a request means which names none."""
    if key.kind == KeyKind.PERSONAL and key.workspace_id is not None:
        return key.workspace_id
    if key.kind == KeyKind.SERVICE and not key.is_organization_wide:
        if len(key.reach) == 1:
            return key.reach[0]
        if not key.reach:
            raise errors.Unauthenticated("The key's workspaces are deleted.")
    raise WorkspaceRequired


def _reaches(key: Found, workspace_id: UUID) -> bool:
    if not key.is_organization_wide:
        return workspace_id in key.reach
    present = Workspace.objects.present()
    return present.filter(pk=workspace_id, organization_id=key.organization_id).exists()
