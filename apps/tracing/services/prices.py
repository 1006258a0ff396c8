"""The price map of a workspace: its own entries change, the built-in ones are only shown."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core.tenancy import get_or_404
from apps.tracing import errors
from apps.tracing.models import ModelPrice
from apps.tracing.pricing import entries, price_map
from apps.tracing.pricing.entries import Entry

MOST = 1000
"""Entries of a workspace: each is tried on each new name of a model."""


def price_entries(workspace_id: UUID) -> list[ModelPrice | Entry]:
    """All entries in the order in which they are tried, the workspace's own first."""
    own = ModelPrice.objects.for_workspace(workspace_id).newest_first()
    return [*own, *entries.built_in()]


def create_price(*, workspace_id: UUID, **fields: Any) -> ModelPrice:
    """A new entry. Costs of runs that are stored stay what they are."""
    if ModelPrice.objects.for_workspace(workspace_id).count() >= MOST:
        raise errors.TooManyPrices
    price = ModelPrice(workspace_id=workspace_id, **fields)
    price.save(force_insert=True)
    _changed(workspace_id)
    return price


def replace_price(*, price: ModelPrice, **fields: Any) -> ModelPrice:
    """Another content for an entry, for runs that come from now on."""
    for name, value in fields.items():
        setattr(price, name, value)
    price.save()
    _changed(price.workspace_id)
    return price


def delete_price(*, price: ModelPrice) -> None:
    price.delete()
    _changed(price.workspace_id)


def find_price(workspace_id: UUID, price_id: UUID) -> ModelPrice:
    """The workspace's own entry; `BuiltInPrice` for one that is not anybody's to change."""
    if any(one.id == price_id for one in entries.built_in()):
        raise errors.BuiltInPrice
    return get_or_404(ModelPrice.objects.for_workspace(workspace_id), pk=price_id)


def _changed(workspace_id: UUID) -> None:
    transaction.on_commit(lambda: price_map.forget(workspace_id))
