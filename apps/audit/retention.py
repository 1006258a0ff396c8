"""The one stated way in which entries of the log go: an operator forgets old ones."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from apps.audit.actions import Action
from apps.audit.models import Entry
from apps.audit.services import Target, record


@transaction.atomic
def prune(before: datetime, *, organization_id: UUID | None = None) -> int:
    """Remove entries older than that, of one organization or of all; return how many.

    That it was done stands in the log, with whom. Safe to repeat.
    """
    old = Entry.objects.filter(at__lt=before)
    if organization_id is not None:
        old = old.of_organization(organization_id)
    with connection.cursor() as cursor:
        # For this transaction alone; read by the append-only trigger.
        cursor.execute("SET LOCAL slipway.audit = 'retention'")
    gone, _ = old.delete()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL slipway.audit = ''")
    record(
        Action.AUDIT_FORGOTTEN,
        Target("audit"),
        after={"before": before, "count": gone},
        organization_id=organization_id,
    )
    return gone
