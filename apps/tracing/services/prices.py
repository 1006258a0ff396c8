"""The price map of a workspace: its own entries, then the read-only built-in entries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import get_or_404
from apps.trace_store.errors import BuiltInPrice, TooManyPrices
from apps.trace_store.models import ModelPrice
from apps.trace_store.pricing import entries, price_map
from apps.trace_store.pricing.entries import PriceEntry

MAX_PRICES = 1000
"""The maximum number of entries of a workspace; each new model name is matched with all."""


def list_prices(workspace_id: UUID) -> list[ModelPrice | PriceEntry]:
    """Return all entries in matching order, the workspace's own first."""
    workspace_prices = ModelPrice.objects.for_workspace(workspace_id).newest_first()
    return [*workspace_prices, *entries.built_in_entries()]


@transaction.atomic
def create_price(*, workspace_id: UUID, **fields: Any) -> ModelPrice:
    """Create an entry. Costs of stored runs do not change."""
    if ModelPrice.objects.for_workspace(workspace_id).count() >= MAX_PRICES:
        raise TooManyPrices
    price = ModelPrice(workspace_id=workspace_id, **fields)
    price.save(force_insert=True)
    _record_change(price, after=_audit_values(price))
    return price


@transaction.atomic
def replace_price(*, price: ModelPrice, **fields: Any) -> ModelPrice:
    """Replace an entry's content; it applies to runs received from now on."""
    before = _audit_values(price)
    for name, value in fields.items():
        setattr(price, name, value)
    price.save()
    _record_change(price, before=before, after=_audit_values(price))
    return price


@transaction.atomic
def delete_price(*, price: ModelPrice) -> None:
    _record_change(price, before=_audit_values(price))
    price.delete()


def find_price(workspace_id: UUID, price_id: UUID) -> ModelPrice:
    """Return the workspace's entry; raises `BuiltInPrice` for a built-in one."""
    if any(item.id == price_id for item in entries.built_in_entries()):
        raise BuiltInPrice
    return get_or_404(ModelPrice.objects.for_workspace(workspace_id), pk=price_id)


def _record_change(
    price: ModelPrice, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> None:
    workspace_id = price.workspace_id
    target = Target("price", price.pk, price.name)
    record(Action.PRICE_CHANGED, target, before=before, after=after, workspace_id=workspace_id)
    transaction.on_commit(lambda: price_map.invalidate(workspace_id))


def _audit_values(price: ModelPrice) -> dict[str, Any]:
    """Return the audit log's representation of an entry."""
    return {
        "name": price.name,
        "match_pattern": price.match_pattern,
        "provider": price.provider,
        "prompt_cost": float(price.prompt_cost),
        "completion_cost": float(price.completion_cost),
        "start_time": None if price.start_time is None else str(price.start_time),
    }
