"""The factors of organizations, as every process knows them within a second."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.conf import settings
from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors
from apps.core.ttl_cache import TTLCache
from apps.organizations.models import Organization
from apps.rate_limits.models import MAX_FACTOR, MIN_FACTOR, LimitFactor
from apps.rate_limits.table import CATEGORIES

Factors = Mapping[UUID, Mapping[str, float]]
"""By organization and category; the empty one is for all."""

_CACHE_SECONDS = 0.8
_known: TTLCache[None, Factors] = TTLCache(_CACHE_SECONDS)


def factor_for(organization_id: UUID | None, category: str) -> float:
    """What the limit is to be multiplied by: the installation's factor and the organization's.

    Few organizations have factors, so all are looked up at once, whoever asks.
    """
    everywhere: float = settings.RATE_LIMIT_FACTOR
    if organization_id is None:
        return everywhere
    found = _known.get(None, _look_up).get(organization_id)
    return everywhere if found is None else everywhere * found.get(category, found.get("", 1.0))


def forget() -> None:
    """Drop what is cached in this process."""
    _known.clear()


def _look_up(_: None) -> Factors:
    factors: dict[UUID, dict[str, float]] = {}
    rows = LimitFactor.objects.values_list("organization_id", "category", "factor")
    for organization_id, category, factor in rows:
        factors.setdefault(organization_id, {})[category] = factor
    return factors


@transaction.atomic
def set_factor(*, organization: Organization, factor: float, category: str = "") -> None:
    """Multiply a category's limits, or all, for the organization. 1 is as the table has it.

    Other categories keep factors of their own. Safe to repeat; what changes is audited.
    """
    if category and category not in CATEGORIES:
        raise errors.Invalid(f"There is no category {category!r}.")
    if not MIN_FACTOR <= factor <= MAX_FACTOR:
        raise errors.Invalid(f"A factor is from {MIN_FACTOR:g} to {MAX_FACTOR:g}.")
    rows = LimitFactor.objects.select_for_update().filter(
        organization=organization, category=category
    )
    before = rows.values_list("factor", flat=True).first()
    # A category's 1 stays as a row: it shields the category from the factor for all.
    if factor == 1.0 and not category:
        rows.delete()
    else:
        LimitFactor.objects.update_or_create(
            organization=organization, category=category, defaults={"factor": factor}
        )
    note_change(organization, category, before, factor)


def note_change(
    organization: Organization, category: str, before: float | None, after: float | None
) -> None:
    """Write a changed factor into the audit log; none is 1."""
    was, is_now = (1.0 if value is None else value for value in (before, after))
    if was == is_now:
        return
    row = category or "all rows"
    record(
        Action.RATE_LIMIT_CHANGED,
        Target("rate_limit", organization.pk, row),
        before={"row": row, "factor": was},
        after={"row": row, "factor": is_now},
        organization_id=organization.pk,
    )
