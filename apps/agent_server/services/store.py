"""The long-term memory of agents, for callers from outside. Runs use it through their engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from apps.agent_server import prepared_sql
from apps.agent_server.schemas.store import ItemPlace, ItemSearch, NamespaceSearch, NewItem
from apps.agent_server.scope import Scope
from apps.agent_server.store import filters, namespace_rules, namespaces, statements
from apps.agent_server.store.namespaces import Match
from apps.agent_server.store.statements import Owner, Place, Query, Vector
from apps.core.json import dumps, storable

MOST_AT_ONCE = 1_000


class Item(NamedTuple):
    """An item as clients see it; the value as text."""

    namespace: list[str]
    key: str
    value: str
    created_at: datetime
    updated_at: datetime
    score: float | None = None


def get(scope: Scope, place: ItemPlace, *, refresh: bool | None) -> Item | None:
    """The item, if it is there and has not expired; reading may prolong its life."""
    place.check_place()
    query = statements.get(owner(scope), Place(place.namespace, place.key))
    row = prepared_sql.row(*query)
    if row is None:
        return None
    *shown, row_id, has_ttl = row
    _read(scope, [row_id] if has_ttl else [], refresh=refresh)
    return Item(*shown)


@transaction.atomic
def put(scope: Scope, item: NewItem, vectors: Sequence[Vector] = ()) -> None:
    """Write the item over what is there. Safe to repeat."""
    item.check_place()
    whose, place = owner(scope), Place(item.namespace, item.key)
    ttl = scope.route.serving.store.ttl
    minutes = item.ttl if item.ttl is not None or ttl is None else ttl.default_ttl
    _do(statements.put(whose, place, storable(dumps(item.value)).decode(), minutes))
    _do(statements.forget_vectors(whose, place))
    if vectors:
        _do(statements.put_vectors(whose, place, vectors))


@transaction.atomic
def delete(scope: Scope, place: ItemPlace) -> None:
    """Remove the item, if it is there."""
    place.check_place()
    for query in statements.delete(owner(scope), Place(place.namespace, place.key)):
        _do(query)


def search(scope: Scope, body: ItemSearch, query: Vector | None = None) -> list[Item]:
    """Items below a prefix: by likeness to the query if there is one, else the newest first."""
    namespace_rules.checked_labels(body.namespace_prefix)
    found = _rows(
        statements.search(
            owner(scope),
            body.namespace_prefix,
            filters.compiled(body.filter),
            limit=body.limit,
            offset=body.offset,
            query=query,
        )
    )
    _read(scope, [row[5] for row in found if row[6]], refresh=body.refresh_ttl)
    return [Item._make((*row[:5], row[7])) for row in found]


def list_namespaces(scope: Scope, body: NamespaceSearch) -> list[list[str]]:
    """The namespaces in which there is something."""
    namespace_rules.checked_labels(body.prefix)
    namespace_rules.checked_labels(body.suffix)
    matches = [Match(True, body.prefix)] if body.prefix else []
    matches += [Match(False, body.suffix)] if body.suffix else []
    query = namespaces.list_namespaces(
        owner(scope),
        matches,
        max_depth=body.max_depth,
        limit=body.limit,
        offset=body.offset,
    )
    return [row[0] for row in _rows(query)]


def sweep() -> int:
    """Delete what has expired, everywhere; return how many. Safe to repeat."""
    deleted = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statements.SWEEP, [MOST_AT_ONCE])
            ids = [row[0] for row in cursor.fetchall()]
            cursor.execute(statements.FORGET_VECTORS, [ids])
            cursor.execute(statements.FORGET_ITEMS, [ids])
        deleted += len(ids)
        if len(ids) < MOST_AT_ONCE:
            return deleted


def owner(scope: Scope) -> Owner:
    return Owner(scope.route.workspace_id, scope.route.deployment_id)


def _read(scope: Scope, ids: list[UUID], *, refresh: bool | None) -> None:
    ttl = scope.route.serving.store.ttl
    by_default = ttl is None or ttl.refresh_on_read
    if ids and (by_default if refresh is None else refresh):
        _do(statements.touch(owner(scope), ids))


def _do(query: Query) -> None:
    prepared_sql.perform(*query)


def _rows(query: Query) -> list[tuple[Any, ...]]:
    # Planned anew each time: what is best depends on prefix and filter.
    with connection.cursor() as cursor:
        cursor.execute(*query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found
