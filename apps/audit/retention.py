"""Deletion of old audit entries by operators."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from apps.audit.actions import Action
from apps.audit.models import Entry
from apps.audit.services import Target, record


@transaction.atomic
def prune(before: datetime, *, organization_id: UUID | None = None) -> int:
    """Delete the entries before the time and return their number. Safe to repeat.

    The deletion itself is recorded.
    """
    old = Entry.objects.filter(at__lt=before)
    if organization_id is not None:
        old = old.of_organization(organization_id)
    with connection.cursor() as cursor:
        # Permits DELETE in the append-only trigger, for this transaction only.
        cursor.execute("SET LOCAL slipway.audit = 'retention'")
    deleted, _ = old.delete()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL slipway.audit = ''")
    record(
        Action.AUDIT_FORGOTTEN,
        Target("audit"),
        after={"before": before, "count": deleted},
        organization_id=organization_id,
    )
    return deleted
