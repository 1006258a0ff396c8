"""Saved configurations of models, which evaluators and the public API refer to."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from django.db import connection, transaction

from apps.core import errors as core_errors
from apps.core.callers import Caller
from apps.playground import errors
from apps.playground.models import SavedSettings
from apps.playground.setting import MAX_NAME_LENGTH
from apps.playground.wire import SavedSettingsBody, SavedSettingsChanges

MAX_SAVED = 500
"""Configurations of a workspace."""
MAX_BYTES = 262_144
MAX_DESCRIPTION_LENGTH = 5000


@transaction.atomic
def create(*, caller: Caller, body: SavedSettingsBody) -> SavedSettings:
    """Raises `BadSetting` and `Conflict`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"playground settings of workspace {caller.workspace_id}"],
        )
    rows = SavedSettings.objects.for_workspace(caller.workspace_id)
    if rows.count() >= MAX_SAVED:
        raise core_errors.Conflict(f"A workspace has at most {MAX_SAVED} saved settings.")
    row = SavedSettings(
        workspace_id=caller.workspace_id,
        name=body.name or "",
        description=body.description or "",
        settings=body.settings,
        options=body.options or {},
        created_by_id=caller.user_id,
    )
    _check(row)
    row.save(force_insert=True)
    return row


def update(*, row: SavedSettings, changes: SavedSettingsChanges) -> SavedSettings:
    """Raises `BadSetting`."""
    for name in ("name", "description"):
        value = getattr(changes, name)
        if value is not msgspec.UNSET:
            setattr(row, name, value or "")
    if changes.settings is not msgspec.UNSET:
        row.settings = changes.settings
    if changes.options is not msgspec.UNSET:
        row.options = changes.options or {}
    _check(row)
    row.save(update_fields=["name", "description", "settings", "options", "updated_at"])
    return row


def _check(row: SavedSettings) -> None:
    if len(row.name) > MAX_NAME_LENGTH or len(row.description) > MAX_DESCRIPTION_LENGTH:
        raise errors.BadSetting(
            f"A name has at most {MAX_NAME_LENGTH} characters, a description"
            f" {MAX_DESCRIPTION_LENGTH}."
        )
    if len(msgspec.json.encode([row.settings, row.options])) > MAX_BYTES:
        raise errors.BadSetting(f"Settings and options have at most {MAX_BYTES} bytes.")


def get(workspace_id: UUID, settings_id: UUID) -> SavedSettings:
    """Raises `SettingsNotFound`."""
    row = SavedSettings.objects.for_workspace(workspace_id).filter(pk=settings_id).first()
    if row is None:
        raise errors.SettingsNotFound
    return row


def as_json(row: SavedSettings) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name or None,
        "description": row.description or None,
        "settings": row.settings,
        "options": row.options,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
