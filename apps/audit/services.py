"""Recording of audit entries, and their deletion by operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import connection, transaction

from apps.audit.actions import FIELDS, FORBIDDEN_WHILE_IMPERSONATING, Action
from apps.audit.actors import actor_of
from apps.audit.models import Entry
from apps.core import errors, request_context
from apps.core.json import dumps, loads, storable

IMPERSONATOR_SESSION_KEY = "impersonator"
"""The session key of the impersonating operator."""
_MAX_TEXT_LENGTH = 500
_MAX_LIST_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Target:
    """The changed object; `kind` is a key of `actions.FIELDS`."""

    kind: str
    id: object = ""
    name: str = ""


def record(
    action: Action,
    target: Target,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    organization_id: UUID | None = None,
    workspace_id: UUID | None = None,
) -> Entry:
    """Record the action in the caller's transaction, so that both commit or neither.

    Raises `Forbidden` for a `FORBIDDEN_WHILE_IMPERSONATING` action of an impersonated session.

    Actor and IP address come from the request context. `before` and `after` keep only the fields
    that `actions.FIELDS` lists for the target's kind, and only the differing ones if both are
    given. `organization_id` defaults to the workspace's organization.
    """
    context = request_context.current()
    actor = actor_of(context)
    impersonator = _impersonator(context)
    if impersonator and action in FORBIDDEN_WHILE_IMPERSONATING:
        raise errors.Forbidden("This action is not allowed while impersonating a user.")
    if organization_id is None and workspace_id is not None:
        organization_id = _organization_of(workspace_id, context)
    before_fields, after_fields = _changed_fields(
        _allowed_fields(target.kind, before), _allowed_fields(target.kind, after)
    )
    return Entry.objects.create(
        organization_id=organization_id,
        workspace_id=workspace_id,
        action=action,
        target_kind=target.kind,
        target_id=str(target.id)[:64],
        target_name=target.name.replace("\0", "\ufffd")[:200],
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_label=actor.label[:254],
        impersonator_id=impersonator.get("id"),
        impersonator_label=impersonator.get("email", ""),
        ip=context.ip if context is not None else None,
        request_id=context.request_id if context is not None else "",
        before=before_fields,
        after=after_fields,
    )


def is_impersonated() -> bool:
    """Return whether an operator acts as the user of the current request.

    Links and secrets that would remain usable afterwards are hidden then.
    """
    return bool(_impersonator(request_context.current()))


def _organization_of(
    workspace_id: UUID, context: request_context.RequestContext | None
) -> UUID | None:
    caller = context.caller if context is not None else None
    if caller is not None and caller.workspace_id == workspace_id:
        return caller.organization_id
    workspaces = apps.get_model("organizations", "Workspace")._base_manager  # noqa: SLF001
    rows = workspaces.filter(pk=workspace_id).values_list("organization_id", flat=True)
    organization_id: UUID | None = rows.first()
    return organization_id


def _impersonator(context: request_context.RequestContext | None) -> Mapping[str, str]:
    session = getattr(context.request, "session", None) if context is not None else None
    impersonator: Mapping[str, str] = (
        session.get(IMPERSONATOR_SESSION_KEY) if session is not None else None
    ) or {}
    return impersonator


def _allowed_fields(kind: str, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the allowed fields as JSON values of bounded size."""
    allowed = FIELDS[kind]
    if values is None:
        return None
    fields = {name: _truncate(value) for name, value in values.items() if name in allowed}
    details: dict[str, Any] = loads(storable(dumps(fields)))
    return details


def _truncate(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT_LENGTH else f"{value[:_MAX_TEXT_LENGTH]}…"
    if isinstance(value, list | tuple | set | frozenset):
        members = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        truncated = [_truncate(member) for member in members[:_MAX_LIST_LENGTH]]
        if len(members) > _MAX_LIST_LENGTH:
            truncated.append(f"… {len(members)} in all")
        return truncated
    if isinstance(value, Mapping):
        return {str(name): _truncate(member) for name, member in value.items()}
    return value


def _changed_fields(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    if before is None or after is None:
        return before, after
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return (
        {name: value for name, value in before.items() if name in changed},
        {name: value for name, value in after.items() if name in changed},
    )


@transaction.atomic
def prune(before: datetime, *, organization_id: UUID | None = None) -> int:
    """Delete the entries before the time and return their number. Safe to repeat.

    The deletion itself is recorded.
    """
    expired = Entry.objects.filter(at__lt=before)
    if organization_id is not None:
        expired = expired.of_organization(organization_id)
    with connection.cursor() as cursor:
        # Permits DELETE in the append-only trigger, for this transaction only.
        cursor.execute("SET LOCAL slipway.audit = 'retention'")
    deleted, _ = expired.delete()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL slipway.audit = ''")
    record(
        Action.AUDIT_FORGOTTEN,
        Target("audit"),
        after={"before": before, "count": deleted},
        organization_id=organization_id,
    )
    return deleted
