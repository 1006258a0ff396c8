"""The agent store for API callers. Runs use it through their engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from apps.agent_server import prepared_sql
from apps.agent_server.schemas.store import ItemReference, ItemSearch, NamespaceSearch, NewItem
from apps.agent_server.scope import Scope
from apps.agent_server.store import filters, namespaces, statements
from apps.agent_server.store.namespaces import NamespaceMatch
from apps.agent_server.store.statements import ItemKey, Statement, StoreOwner, Vector
from apps.core.json import dumps, storable
from apps.usage import storage
from apps.usage.models import StorageKind

DELETE_BATCH_SIZE = 1_000


class ItemRow(NamedTuple):
    """An item as clients see it; the value as text."""

    namespace: list[str]
    key: str
    value: str
    created_at: datetime
    updated_at: datetime
    score: float | None = None


def get(scope: Scope, reference: ItemReference, *, refresh: bool | None) -> ItemRow | None:
    """The item unless it is missing or expired; reading may extend its time to live."""
    reference.validate_key()
    query = statements.get(owner_of(scope), ItemKey(reference.namespace, reference.key))
    row = prepared_sql.fetch_row(*query)
    if row is None:
        return None
    *fields, row_id, has_ttl = row
    _extend_ttl(scope, [row_id] if has_ttl else [], refresh=refresh)
    return ItemRow(*fields)


@transaction.atomic
def put(scope: Scope, item: NewItem, vectors: Sequence[Vector] = ()) -> None:
    """Create or replace the item. Safe to repeat. Raises `StorageFull`."""
    item.validate_key()
    storage.check(scope.route.workspace_id, StorageKind.STORE)
    owner, key = owner_of(scope), ItemKey(item.namespace, item.key)
    ttl = scope.route.serving.store.ttl
    minutes = item.ttl if item.ttl is not None or ttl is None else ttl.default_ttl
    _execute(statements.put(owner, key, storable(dumps(item.value)).decode(), minutes))
    _execute(statements.delete_vectors(owner, key))
    if vectors:
        _execute(statements.put_vectors(owner, key, vectors))


@transaction.atomic
def delete(scope: Scope, reference: ItemReference) -> None:
    """Delete the item, if it exists."""
    reference.validate_key()
    for query in statements.delete(owner_of(scope), ItemKey(reference.namespace, reference.key)):
        _execute(query)


def search(scope: Scope, body: ItemSearch, query: Vector | None = None) -> list[ItemRow]:
    """Items below a prefix, ordered by similarity to the query or newest first."""
    namespaces.validate_labels(body.namespace_prefix)
    rows = _rows(
        statements.search(
            owner_of(scope),
            body.namespace_prefix,
            filters.compile_filter(body.filter),
            limit=body.limit,
            offset=body.offset,
            query=query,
        )
    )
    statements.check_page(rows)
    _extend_ttl(scope, [row[5] for row in rows if row[6]], refresh=body.refresh_ttl)
    return [ItemRow._make((*row[:5], row[7])) for row in rows]


def list_namespaces(scope: Scope, body: NamespaceSearch) -> list[list[str]]:
    """The namespaces that contain items."""
    namespaces.validate_labels(body.prefix)
    namespaces.validate_labels(body.suffix)
    matches = [NamespaceMatch(True, body.prefix)] if body.prefix else []
    matches += [NamespaceMatch(False, body.suffix)] if body.suffix else []
    query = namespaces.list_namespaces(
        owner_of(scope),
        matches,
        max_depth=body.max_depth,
        limit=body.limit,
        offset=body.offset,
    )
    return [row[0] for row in _rows(query)]


def delete_expired() -> int:
    """Delete the expired items of all workspaces; return how many. Safe to repeat."""
    deleted = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statements.SWEEP, [DELETE_BATCH_SIZE])
            ids = [row[0] for row in cursor.fetchall()]
            cursor.execute(statements.DELETE_VECTORS, [ids])
            cursor.execute(statements.DELETE_ITEMS, [ids])
        deleted += len(ids)
        if len(ids) < DELETE_BATCH_SIZE:
            return deleted


def owner_of(scope: Scope) -> StoreOwner:
    return StoreOwner(scope.route.workspace_id, scope.route.deployment_id)


def _extend_ttl(scope: Scope, ids: list[UUID], *, refresh: bool | None) -> None:
    ttl = scope.route.serving.store.ttl
    refreshes_by_default = ttl is None or ttl.refresh_on_read
    if ids and (refreshes_by_default if refresh is None else refresh):
        _execute(statements.extend_ttl(owner_of(scope), ids))


def _execute(query: Statement) -> None:
    prepared_sql.execute(*query)


def _rows(query: Statement) -> list[tuple[Any, ...]]:
    # Not prepared: the best plan depends on prefix and filter.
    with connection.cursor() as cursor:
        cursor.execute(*query)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
