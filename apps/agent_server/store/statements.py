"""SQL of the agent store, for connections of the engine and of Django.

Writes of a run are fenced by its token: a stale token writes nothing. The order of locks in one
transaction: the run, then items, then their vectors.
"""
# ruff: noqa: S608  (the pieces are constants; all values are parameters)

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_server.store.filters import FilterClause
from apps.core.errors import TooLarge


class Statement(NamedTuple):
    text: str
    parameters: list[Any]


class StoreOwner(NamedTuple):
    """The deployment that owns a store."""

    workspace_id: UUID
    deployment_id: UUID


class ItemKey(NamedTuple):
    namespace: Sequence[str]
    key: str


class Vector(NamedTuple):
    """The embedding of a text in a value; `embedding` in pgvector's text form."""

    path: str
    dims: int
    embedding: str


NO_FENCE = FilterClause("true", [])

NOT_EXPIRED = "(expires_at IS NULL OR expires_at > statement_timestamp())"
AGENT = "workspace_id = %s AND deployment_id = %s"
_ITEM = f"{AGENT} AND namespace = %s::text[] AND key = %s"
_ITEM_COLUMNS = "namespace, key, value::text, created_at, updated_at"
MAX_PAGE_BYTES = 67_108_864
"""JSON of the values that a search returns at once."""
# The value is null on a page with more bytes than the first parameter.
_PAGE_COLUMNS = (
    "namespace, key,"
    " CASE WHEN sum(octet_length(value::text)) OVER () <= %s THEN value::text END,"
    " created_at, updated_at"
)
_EXPIRY = "statement_timestamp() + make_interval(secs => {} * 60)"


def fence(run_id: UUID, attempt: int) -> FilterClause:
    """The SQL condition that the attempt may still write."""
    return FilterClause(
        "EXISTS (SELECT FROM agent_server_agentrun"
        " WHERE id = %s AND attempt = %s AND status = 'running')",
        [run_id, attempt],
    )


def lock_attempt(run_id: UUID, attempt: int) -> Statement:
    """Lock the run against other attempts; returns a row if the attempt may write."""
    return Statement(
        "SELECT 1 FROM agent_server_agentrun"
        " WHERE id = %s AND attempt = %s AND status = 'running' FOR SHARE",
        [run_id, attempt],
    )


def get(owner: StoreOwner, item_key: ItemKey) -> Statement:
    """Columns: the item's fields, the row's id, whether it has a time to live."""
    return Statement(
        f"SELECT {_ITEM_COLUMNS}, id, ttl_minutes IS NOT NULL FROM agent_server_storeitem"
        f" WHERE {_ITEM} AND {NOT_EXPIRED}",
        [*owner, list(item_key.namespace), item_key.key],
    )


def extend_ttl(
    owner: StoreOwner, ids: Sequence[UUID], fence_condition: FilterClause = NO_FENCE
) -> Statement:
    """Restart the time to live of these items."""
    return Statement(
        f"UPDATE agent_server_storeitem SET expires_at = {_EXPIRY.format('ttl_minutes')}"
        f" WHERE {AGENT} AND id = ANY(%s::uuid[]) AND ttl_minutes IS NOT NULL"
        f" AND {fence_condition.text}",
        [*owner, list(ids), *fence_condition.parameters],
    )


def put(
    owner: StoreOwner,
    item_key: ItemKey,
    value: str,
    ttl_minutes: float | None,
    fence_condition: FilterClause = NO_FENCE,
) -> Statement:
    """Write an item; `created_at` is kept unless the earlier one had expired."""
    return Statement(
        f"""
        INSERT INTO agent_server_storeitem AS i (
            id, workspace_id, deployment_id, namespace, key, value, created_at, updated_at,
            ttl_minutes, expires_at
        )
        SELECT uuidv7(), %s, %s, %s::text[], %s, %s::text::jsonb, now, now, ttl,
            {_EXPIRY.format("ttl")}
        FROM (SELECT clock_timestamp() AS now, %s::float8 AS ttl) input WHERE {fence_condition.text}
        ON CONFLICT (workspace_id, deployment_id, namespace, key) DO UPDATE
        SET value = excluded.value, updated_at = excluded.updated_at,
            ttl_minutes = excluded.ttl_minutes, expires_at = excluded.expires_at,
            created_at = CASE WHEN i.expires_at <= statement_timestamp() THEN excluded.created_at
                ELSE i.created_at END
        """,
        [
            *owner,
            list(item_key.namespace),
            item_key.key,
            value,
            ttl_minutes,
            *fence_condition.parameters,
        ],
    )


def delete_vectors(
    owner: StoreOwner, item_key: ItemKey, fence_condition: FilterClause = NO_FENCE
) -> Statement:
    return Statement(
        "DELETE FROM agent_server_storevector WHERE item_id = ("
        f"SELECT id FROM agent_server_storeitem WHERE {_ITEM} AND {fence_condition.text})",
        [*owner, list(item_key.namespace), item_key.key, *fence_condition.parameters],
    )


def put_vectors(
    owner: StoreOwner,
    item_key: ItemKey,
    vectors: Sequence[Vector],
    fence_condition: FilterClause = NO_FENCE,
) -> Statement:
    """Add vectors to an item that has none."""
    columns = [list(column) for column in zip(*vectors, strict=True)]
    return Statement(
        f"""
        INSERT INTO agent_server_storevector (item_id, position, path, dims, embedding)
        SELECT i.id, v.position - 1, v.path, v.dims, v.embedding::vector
        FROM agent_server_storeitem i,
            unnest(%s::text[], %s::int[], %s::text[]) WITH ORDINALITY
                AS v(path, dims, embedding, position)
        WHERE {_ITEM} AND {fence_condition.text}
        """,
        [*columns, *owner, list(item_key.namespace), item_key.key, *fence_condition.parameters],
    )


def delete(
    owner: StoreOwner, item_key: ItemKey, fence_condition: FilterClause = NO_FENCE
) -> list[Statement]:
    """Delete an item with its vectors. Locks it first, against concurrent vector inserts."""
    parameters = [*owner, list(item_key.namespace), item_key.key, *fence_condition.parameters]
    from_item = f"FROM agent_server_storeitem WHERE {_ITEM} AND {fence_condition.text}"
    return [
        Statement(f"SELECT id {from_item} FOR UPDATE", parameters),
        delete_vectors(owner, item_key, fence_condition),
        Statement(f"DELETE {from_item}", parameters),
    ]


def prefix_upper_bound(prefix: Sequence[str]) -> list[str]:
    """The least array that sorts after all namespaces with the prefix, compared bytewise."""
    *labels, last = prefix
    return [*labels, f"{last}\x01"]


def prefix_condition(prefix: Sequence[str]) -> FilterClause:
    """The condition for namespaces with the prefix, as a range of the index."""
    if not prefix:
        return FilterClause("", [])
    return FilterClause(
        " AND namespace >= %s::text[] AND namespace < %s::text[]",
        [list(prefix), prefix_upper_bound(prefix)],
    )


def search(
    owner: StoreOwner,
    prefix: Sequence[str],
    condition: FilterClause,
    *,
    limit: int,
    offset: int,
    query: Vector | None = None,
) -> Statement:
    """Items below a prefix, ordered by similarity to the query if there is one, then newest first.

    Columns: the item's fields, the row's id, whether it has a time to live, the score or null.
    `check_page` refuses the rows of a page that is too large.
    """
    prefix_range = prefix_condition(prefix)
    conditions = f"{AGENT}{prefix_range.text} AND {NOT_EXPIRED}{condition.text}"
    parameters = [*owner, *prefix_range.parameters, *condition.parameters]
    if query is None:
        return Statement(
            f"""
            SELECT {_PAGE_COLUMNS}, id, ttl_minutes IS NOT NULL, NULL::float8
            FROM (
                SELECT * FROM agent_server_storeitem WHERE {conditions}
                ORDER BY updated_at DESC, id DESC LIMIT %s OFFSET %s
            ) page ORDER BY updated_at DESC, id DESC
            """,
            [MAX_PAGE_BYTES, *parameters, limit, offset],
        )
    return Statement(
        f"""
        SELECT {_PAGE_COLUMNS}, id, ttl_minutes IS NOT NULL, best.score
        FROM (
            SELECT matching.id, scored.score
            FROM (
                SELECT id, updated_at FROM agent_server_storeitem WHERE {conditions}
            ) matching
            LEFT JOIN LATERAL (
                SELECT NULLIF(max(1 - (v.embedding <=> %s::text::vector)), 'NaN') AS score
                FROM agent_server_storevector v WHERE v.item_id = matching.id AND v.dims = %s
            ) scored ON true
            ORDER BY scored.score DESC NULLS LAST, matching.updated_at DESC, matching.id DESC
            LIMIT %s OFFSET %s
        ) best JOIN agent_server_storeitem USING (id)
        ORDER BY best.score DESC NULLS LAST, updated_at DESC, id DESC
        """,
        [MAX_PAGE_BYTES, *parameters, query.embedding, query.dims, limit, offset],
    )


def check_page(rows: Sequence[Sequence[Any]]) -> None:
    """Raise `TooLarge` for the rows of a search whose values were too many bytes."""
    if any(row[2] is None for row in rows):
        size = MAX_PAGE_BYTES // 1_048_576
        raise TooLarge(f"The items have more than {size} MB: search with a smaller `limit`.")


SWEEP = """
SELECT id FROM agent_server_storeitem WHERE expires_at <= now()
ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
DELETE_VECTORS = "DELETE FROM agent_server_storevector WHERE item_id = ANY(%s::uuid[])"
DELETE_ITEMS = "DELETE FROM agent_server_storeitem WHERE id = ANY(%s::uuid[])"


def unpack_vector(path: str, packed: bytes) -> Vector:
    """Unpack a vector of a graph host: little-endian 32-bit floats."""
    numbers = array.array("f", packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return Vector(path, len(numbers), f"[{','.join(map(str, numbers))}]")
