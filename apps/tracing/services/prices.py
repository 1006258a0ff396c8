"""The price map of a workspace: its own entries change, the built-in ones are only shown."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.tenancy import get_or_404
from apps.trace_store.errors import BuiltInPrice, TooManyPrices
from apps.trace_store.pricing import entries, price_map
from apps.trace_store.pricing.entries import PriceEntry
from apps.tracing.models import ModelPrice

MOST = 1000
"""Entries of a workspace: each is tried on each new name of a model."""


def price_entries(workspace_id: UUID) -> list[ModelPrice | PriceEntry]:
    """All entries in the order in which they are tried, the workspace's own first."""
    own = ModelPrice.objects.for_workspace(workspace_id).newest_first()
    return [*own, *entries.built_in_entries()]


@transaction.atomic
def create_price(*, workspace_id: UUID, **fields: Any) -> ModelPrice:
    """A new entry. Costs of runs that are stored stay what they are."""
    if ModelPrice.objects.for_workspace(workspace_id).count() >= MOST:
        raise TooManyPrices
    price = ModelPrice(workspace_id=workspace_id, **fields)
    price.save(force_insert=True)
    _changed(price, after=_shown(price))
    return price


@transaction.atomic
def replace_price(*, price: ModelPrice, **fields: Any) -> ModelPrice:
    """Another content for an entry, for runs that come from now on."""
    before = _shown(price)
    for name, value in fields.items():
        setattr(price, name, value)
    price.save()
    _changed(price, before=before, after=_shown(price))
    return price


@transaction.atomic
def delete_price(*, price: ModelPrice) -> None:
    _changed(price, before=_shown(price))
    price.delete()


def find_price(workspace_id: UUID, price_id: UUID) -> ModelPrice:
    """The workspace's own entry; `BuiltInPrice` for one that is not anybody's to change."""
    if any(one.id == price_id for one in entries.built_in_entries()):
        raise BuiltInPrice
    return get_or_404(ModelPrice.objects.for_workspace(workspace_id), pk=price_id)


def _changed(
    price: ModelPrice, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> None:
    workspace_id = price.workspace_id
    target = Target("price", price.pk, price.name)
    record(Action.PRICE_CHANGED, target, before=before, after=after, workspace_id=workspace_id)
    transaction.on_commit(lambda: price_map.invalidate(workspace_id))


def _shown(price: ModelPrice) -> dict[str, Any]:
    """What the audit log keeps of an entry."""
    return {
        "name": price.name,
        "match_pattern": price.match_pattern,
        "provider": price.provider,
        "prompt_cost": float(price.prompt_cost),
        "completion_cost": float(price.completion_cost),
        "start_time": None if price.start_time is None else str(price.start_time),
    }
