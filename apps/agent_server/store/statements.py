"""The SQL of the store, for the engine's connections and for Django's alike.

Writes of a run carry its token as a fence: once it is stale, they write nothing. The order within
one transaction: the fence, then items, then their vectors.
"""
# ruff: noqa: S608  (the pieces are our own words; everything given is a parameter)

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_server.store.filters import Condition


class Query(NamedTuple):
    text: str
    parameters: list[Any]


class Owner(NamedTuple):
    """Whose store it is."""

    workspace_id: UUID
    deployment_id: UUID


class ItemKey(NamedTuple):
    namespace: Sequence[str]
    key: str


class Vector(NamedTuple):
    """What a text of a value means; `embedding` in pgvector's text form."""

    path: str
    dims: int
    embedding: str


NO_FENCE = Condition("true", [])

_ALIVE = "(expires_at IS NULL OR expires_at > statement_timestamp())"
_AGENT = "workspace_id = %s AND deployment_id = %s"
_PLACE = f"{_AGENT} AND namespace = %s::text[] AND key = %s"
_SHOWN = "namespace, key, value::text, created_at, updated_at"
_LIFETIME = "statement_timestamp() + make_interval(secs => {} * 60)"


def fence(run_id: UUID, attempt: int) -> Condition:
    """Holds while the attempt may write."""
    return Condition(
        "EXISTS (SELECT FROM agent_server_agentrun"
        " WHERE id = %s AND attempt = %s AND status = 'running')",
        [run_id, attempt],
    )


def lock_attempt(run_id: UUID, attempt: int) -> Query:
    """A row if the attempt may write; nobody can take that away before the transaction ends."""
    return Query(
        "SELECT 1 FROM agent_server_agentrun"
        " WHERE id = %s AND attempt = %s AND status = 'running' FOR SHARE",
        [run_id, attempt],
    )


def get(owner: Owner, place: ItemKey) -> Query:
    """Columns: what is shown, the row's id, whether it has a time to live."""
    return Query(
        f"SELECT {_SHOWN}, id, ttl_minutes IS NOT NULL FROM agent_server_storeitem"
        f" WHERE {_PLACE} AND {_ALIVE}",
        [*owner, list(place.namespace), place.key],
    )


def extend_ttl(owner: Owner, ids: Sequence[UUID], held: Condition = NO_FENCE) -> Query:
    """Let the time to live of these items begin anew."""
    return Query(
        f"UPDATE agent_server_storeitem SET expires_at = {_LIFETIME.format('ttl_minutes')}"
        f" WHERE {_AGENT} AND id = ANY(%s::uuid[]) AND ttl_minutes IS NOT NULL AND {held.text}",
        [*owner, list(ids), *held.parameters],
    )


def put(
    owner: Owner, place: ItemKey, value: str, ttl_minutes: float | None, held: Condition = NO_FENCE
) -> Query:
    """Write an item; `created_at` is kept unless the earlier one had expired."""
    return Query(
        f"""
        INSERT INTO agent_server_storeitem AS i (
            id, workspace_id, deployment_id, namespace, key, value, created_at, updated_at,
            ttl_minutes, expires_at
        )
        SELECT uuidv7(), %s, %s, %s::text[], %s, %s::text::jsonb, now, now, ttl,
            {_LIFETIME.format("ttl")}
        FROM (SELECT clock_timestamp() AS now, %s::float8 AS ttl) given WHERE {held.text}
        ON CONFLICT (workspace_id, deployment_id, namespace, key) DO UPDATE
        SET value = excluded.value, updated_at = excluded.updated_at,
            ttl_minutes = excluded.ttl_minutes, expires_at = excluded.expires_at,
            created_at = CASE WHEN i.expires_at <= statement_timestamp() THEN excluded.created_at
                ELSE i.created_at END
        """,
        [*owner, list(place.namespace), place.key, value, ttl_minutes, *held.parameters],
    )


def delete_vectors(owner: Owner, place: ItemKey, held: Condition = NO_FENCE) -> Query:
    return Query(
        "DELETE FROM agent_server_storevector WHERE item_id = ("
        f"SELECT id FROM agent_server_storeitem WHERE {_PLACE} AND {held.text})",
        [*owner, list(place.namespace), place.key, *held.parameters],
    )


def put_vectors(
    owner: Owner, place: ItemKey, vectors: Sequence[Vector], held: Condition = NO_FENCE
) -> Query:
    """Add vectors to an item that has none."""
    columns = [list(column) for column in zip(*vectors, strict=True)]
    return Query(
        f"""
        INSERT INTO agent_server_storevector (item_id, position, path, dims, embedding)
        SELECT i.id, v.position - 1, v.path, v.dims, v.embedding::vector
        FROM agent_server_storeitem i,
            unnest(%s::text[], %s::int[], %s::text[]) WITH ORDINALITY
                AS v(path, dims, embedding, position)
        WHERE {_PLACE} AND {held.text}
        """,
        [*columns, *owner, list(place.namespace), place.key, *held.parameters],
    )


def delete(owner: Owner, place: ItemKey, held: Condition = NO_FENCE) -> list[Query]:
    """Remove an item with its vectors. The lock first: vectors may be on their way to it."""
    parameters = [*owner, list(place.namespace), place.key, *held.parameters]
    of_place = f"FROM agent_server_storeitem WHERE {_PLACE} AND {held.text}"
    return [
        Query(f"SELECT id {of_place} FOR UPDATE", parameters),
        delete_vectors(owner, place, held),
        Query(f"DELETE {of_place}", parameters),
    ]


def prefix_upper_bound(prefix: Sequence[str]) -> list[str]:
    """What comes right after all namespaces that begin with the prefix, compared byte by byte."""
    *before, last = prefix
    return [*before, f"{last}\x01"]


def _below(prefix: Sequence[str]) -> Condition:
    if not prefix:
        return Condition("", [])
    return Condition(
        " AND namespace >= %s::text[] AND namespace < %s::text[]",
        [list(prefix), prefix_upper_bound(prefix)],
    )


def search(
    owner: Owner,
    prefix: Sequence[str],
    wanted: Condition,
    *,
    limit: int,
    offset: int,
    query: Vector | None = None,
) -> Query:
    """Items below a prefix, the newest first; by likeness to the query first, where there is one.

    Columns: what is shown, the row's id, whether it has a time to live, the score or null.
    """
    below = _below(prefix)
    conditions = f"{_AGENT}{below.text} AND {_ALIVE}{wanted.text}"
    parameters = [*owner, *below.parameters, *wanted.parameters]
    if query is None:
        return Query(
            f"""
            SELECT {_SHOWN}, id, ttl_minutes IS NOT NULL, NULL::float8
            FROM agent_server_storeitem WHERE {conditions}
            ORDER BY updated_at DESC, id DESC LIMIT %s OFFSET %s
            """,
            [*parameters, limit, offset],
        )
    return Query(
        f"""
        SELECT {_SHOWN}, id, ttl_minutes IS NOT NULL, best.score
        FROM (
            SELECT found.id, scored.score
            FROM (
                SELECT id, updated_at FROM agent_server_storeitem WHERE {conditions}
            ) found
            LEFT JOIN LATERAL (
                SELECT NULLIF(max(1 - (v.embedding <=> %s::text::vector)), 'NaN') AS score
                FROM agent_server_storevector v WHERE v.item_id = found.id AND v.dims = %s
            ) scored ON true
            ORDER BY scored.score DESC NULLS LAST, found.updated_at DESC, found.id DESC
            LIMIT %s OFFSET %s
        ) best JOIN agent_server_storeitem USING (id)
        ORDER BY best.score DESC NULLS LAST, updated_at DESC, id DESC
        """,
        [*parameters, query.embedding, query.dims, limit, offset],
    )


SWEEP = """
SELECT id FROM agent_server_storeitem WHERE expires_at <= now()
ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
DELETE_VECTORS = "DELETE FROM agent_server_storevector WHERE item_id = ANY(%s::uuid[])"
DELETE_ITEMS = "DELETE FROM agent_server_storeitem WHERE id = ANY(%s::uuid[])"


def unpack_vector(path: str, packed: bytes) -> Vector:
    """A vector as graph hosts pack it: 32-bit floats, the least byte first."""
    numbers = array.array("f", packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return Vector(path, len(numbers), f"[{','.join(map(str, numbers))}]")
