"""Limit factors of organizations, cached for under a second."""

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
"""By organization and category; the empty category applies to all."""

_CACHE_SECONDS = 0.8
_cache: TTLCache[None, Factors] = TTLCache(_CACHE_SECONDS)


def factor_for(organization_id: UUID | None, category: str) -> float:
    """Return the product of the installation's factor and the organization's.

    Few organizations have factors, so all are loaded and cached together.
    """
    installation_factor: float = settings.RATE_LIMIT_FACTOR
    if organization_id is None:
        return installation_factor
    factors = _cache.get(None, _load_factors).get(organization_id)
    if factors is None:
        return installation_factor
    return installation_factor * factors.get(category, factors.get("", 1.0))


def clear_cache() -> None:
    """Clear the cache of this process."""
    _cache.clear()


def _load_factors(_: None) -> Factors:
    factors: dict[UUID, dict[str, float]] = {}
    rows = LimitFactor.objects.values_list("organization_id", "category", "factor")
    for organization_id, category, factor in rows:
        factors.setdefault(organization_id, {})[category] = factor
    return factors


@transaction.atomic
def set_factor(*, organization: Organization, factor: float, category: str = "") -> None:
    """Multiply the organization's limits of a category, or of all without their own factor.

    Safe to repeat; changes are audited.
    """
    if category and category not in CATEGORIES:
        raise errors.Invalid(f"`category` must be one of {', '.join(CATEGORIES)}.")
    if not MIN_FACTOR <= factor <= MAX_FACTOR:
        raise errors.Invalid(f"`factor` must be between {MIN_FACTOR:g} and {MAX_FACTOR:g}.")
    rows = LimitFactor.objects.select_for_update().filter(
        organization=organization, category=category
    )
    before = rows.values_list("factor", flat=True).first()
    # A category's factor of 1 is stored: it overrides the factor for all categories.
    if factor == 1.0 and not category:
        rows.delete()
    else:
        LimitFactor.objects.update_or_create(
            organization=organization, category=category, defaults={"factor": factor}
        )
    record_change(organization, category, before, factor)


def record_change(
    organization: Organization, category: str, before: float | None, after: float | None
) -> None:
    """Record a changed factor in the audit log; None counts as 1."""
    old, new = (1.0 if value is None else value for value in (before, after))
    if old == new:
        return
    row = category or "all rows"
    record(
        Action.RATE_LIMIT_CHANGED,
        Target("rate_limit", organization.pk, row),
        before={"row": row, "factor": old},
        after={"row": row, "factor": new},
        organization_id=organization.pk,
    )
