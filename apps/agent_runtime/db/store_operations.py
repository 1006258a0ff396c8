"""Store operations of runs, requested by graph hosts.

As in LangGraph's own stores, a batch reads before it writes and the last write to a key wins. The
writes share a transaction that locks the run's row, so a stale attempt writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import psycopg

from apps.agent_runtime.db.connection_pool import (
    TRANSIENT,
    Connection,
    ConnectionPool,
    retry_transient,
)
from apps.agent_runtime.db.write_batch import ClaimedRun, FencingToken, StaleToken
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_server.store import filters, namespaces, statements
from apps.agent_server.store.filters import FilterClause
from apps.agent_server.store.namespaces import NamespaceMatch
from apps.agent_server.store.statements import ItemKey, Statement, StoreOwner, Vector
from apps.core import errors
from apps.core.json import loads_small, storable
from apps.graph_host.wire import MALFORMED, as_bytes
from apps.usage import storage
from apps.usage.models import StorageKind

logger = logging.getLogger(__name__)

CONNECTIONS = 4
MAX_RESULTS = 10_000
READ_ONLY = "A graph call is read-only."
ResultShape = Literal["item", "items", "namespaces"]


class ReadOperation(NamedTuple):
    shape: ResultShape
    query: Statement
    refreshes_ttl: bool = False


class PutOperation(NamedTuple):
    """`value` is None for a deletion."""

    value: str | None
    ttl_minutes: float | None
    vectors: list[Vector]


class StoreExecutor:
    """Executes operations on its own connections, so that long searches delay no other query."""

    def __init__(self) -> None:
        self._pool = ConnectionPool(CONNECTIONS)

    async def close(self) -> None:
        await self._pool.close()

    async def execute(
        self,
        owner: StoreOwner,
        operations: Any,
        token: FencingToken | None,
        reply: Callable[[bool, Any], None],
    ) -> None:
        """Execute a batch and reply with its results, or with an error message.

        Without a token, writes are rejected. Raises `StaleToken` after the reply.
        """
        try:
            reply(True, await self._execute_batch(owner, operations, token))
        except StaleToken:
            reply(False, "This run now belongs to another attempt.")
            raise
        except errors.AppError as error:
            reply(False, error.detail)
        except MALFORMED as error:
            # The host runs untrusted code, so malformed operations fail their own call only.
            reply(False, f"Malformed store operation: {error}")
        except psycopg.DataError as error:
            reply(False, f"The value cannot be stored: {str(error).strip()}")
        except TRANSIENT as error:
            logger.warning("A store operation failed: %s", str(error).strip())
            reply(False, "The platform cannot reach the store now.")

    async def _execute_batch(
        self, owner: StoreOwner, operations: Any, token: FencingToken | None
    ) -> list[Any]:
        results: list[Any] = [None] * len(operations)
        reads: dict[int, ReadOperation] = {}
        puts: dict[tuple[tuple[str, ...], str], PutOperation] = {}
        for number, (kind, *fields) in enumerate(operations):
            if kind == "put":
                namespace, key, *options = fields
                puts[tuple(namespace), key] = _parse_put(namespace, key, *options)
            else:
                reads[number] = _READ_PARSERS[kind](owner, *fields)
        if puts and token is None:
            raise errors.Invalid(READ_ONLY)
        if reads:
            values = await retry_transient(lambda: self._read(owner, list(reads.values()), token))
            for number, result in zip(reads, values, strict=True):
                results[number] = result
        if puts and token is not None:
            valid_token = token
            await retry_transient(lambda: self._write(owner, puts, valid_token))
        return results

    async def _read(
        self, owner: StoreOwner, reads: Sequence[ReadOperation], token: FencingToken | None
    ) -> list[Any]:
        async with self._pool.connection() as connection:
            results = [await cursor.fetchall() for cursor in await _run_reads(connection, reads)]
            for read, rows in zip(reads, results, strict=True):
                if read.shape == "items":
                    statements.check_page(rows)
            item_ids = [
                row[5]
                for read, rows in zip(reads, results, strict=True)
                if read.refreshes_ttl
                for row in rows
                if row[6]
            ]
            if item_ids and token is not None:
                fence = statements.fence(*token)
                await connection.execute(
                    *statements.extend_ttl(owner, sorted(set(item_ids)), fence)
                )
        return [_encode_result(read.shape, rows) for read, rows in zip(reads, results, strict=True)]

    async def _write(
        self,
        owner: StoreOwner,
        puts: dict[tuple[tuple[str, ...], str], PutOperation],
        token: FencingToken,
    ) -> None:
        fence = statements.fence(*token)
        kind = StorageKind.STORE
        full = Statement(storage.IS_FULL, [owner.workspace_id, kind.value, storage.limit_of(kind)])
        async with self._pool.transaction() as connection:
            async with connection.pipeline():
                lock = await _run(connection, statements.lock_attempt(*token))
                fullness = await _run(connection, full)
                # All transactions write in key order, which prevents deadlocks.
                for namespace, key in sorted(puts):
                    item_key = ItemKey(list(namespace), key)
                    for query in _put_queries(owner, item_key, puts[namespace, key], fence):
                        await _run(connection, query)
            if await lock.fetchone() is None:
                raise StaleToken
            is_growing = any(put.value is not None for put in puts.values())
            if is_growing and await fullness.fetchone() is not None:
                raise storage.StorageFull(kind)


async def _run_reads(connection: Connection, reads: Sequence[ReadOperation]) -> list[Any]:
    # Not prepared: the best plan depends on prefix and filter.
    if len(reads) == 1:
        return [await connection.execute(*reads[0].query, prepare=False, binary=True)]
    async with connection.pipeline():
        return [await connection.execute(*read.query, prepare=False, binary=True) for read in reads]


async def _run(connection: Connection, query: Statement) -> Any:
    return await connection.execute(*query, prepare=True, binary=True)


def _put_queries(
    owner: StoreOwner, item_key: ItemKey, put: PutOperation, fence: FilterClause
) -> list[Statement]:
    if put.value is None:
        return statements.delete(owner, item_key, fence)
    queries = [
        statements.put(owner, item_key, put.value, put.ttl_minutes, fence),
        statements.delete_vectors(owner, item_key, fence),
    ]
    if put.vectors:
        queries.append(statements.put_vectors(owner, item_key, put.vectors, fence))
    return queries


# Parsing of frames. A host is as untrusted as a client.


def _parse_put(
    namespace: Any, key: Any, value: bytes | None, ttl_minutes: Any, vectors: Any
) -> PutOperation:
    if value is None:
        namespaces.validate_labels(namespace)
        return PutOperation(None, None, [])
    namespaces.validate_item_key(namespace, key)
    if value[:1] != b"{":
        raise errors.Invalid("A store value must be a JSON object.")
    minutes = None if ttl_minutes is None else float(ttl_minutes)
    if minutes is not None and not 0 < minutes < 1e8:
        raise errors.Invalid("ttl: must be a positive number of minutes")
    return PutOperation(
        storable(as_bytes(value)).decode(),
        minutes,
        [statements.unpack_vector(str(path), as_bytes(packed)) for path, packed in vectors],
    )


def _parse_get(owner: StoreOwner, namespace: Any, key: Any, refreshes_ttl: Any) -> ReadOperation:
    namespaces.validate_labels(namespace)
    return ReadOperation(
        "item", statements.get(owner, ItemKey(namespace, _parse_key(key))), bool(refreshes_ttl)
    )


def _parse_search(  # noqa: PLR0917  (the order of the frame)
    owner: StoreOwner,
    prefix: Any,
    filter_json: bytes | None,
    limit: Any,
    offset: Any,
    packed: bytes | None,
    refreshes_ttl: Any,
) -> ReadOperation:
    namespaces.validate_labels(prefix)
    query = statements.search(
        owner,
        prefix,
        filters.compile_filter(loads_small(filter_json) if filter_json else None),
        limit=_parse_count(limit),
        offset=_parse_count(offset, 2**31),
        query=statements.unpack_vector("", as_bytes(packed)) if packed else None,
    )
    return ReadOperation("items", query, bool(refreshes_ttl))


def _parse_namespaces(
    owner: StoreOwner, matches: Any, max_depth: Any, limit: Any, offset: Any
) -> ReadOperation:
    for _, path in matches:
        namespaces.validate_labels(path)
    query = namespaces.list_namespaces(
        owner,
        [NamespaceMatch(kind == "prefix", path) for kind, path in matches],
        max_depth=None if max_depth is None else max(1, _parse_count(max_depth)),
        limit=_parse_count(limit),
        offset=_parse_count(offset, 2**31),
    )
    return ReadOperation("namespaces", query)


_READ_PARSERS: dict[str, Callable[..., ReadOperation]] = {
    "get": _parse_get,
    "search": _parse_search,
    "namespaces": _parse_namespaces,
}


def _parse_key(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise errors.Invalid("key: must be a string without NUL")
    return value


def _parse_count(value: Any, maximum: int = MAX_RESULTS) -> int:
    return max(0, min(int(value), maximum))


# Results for frames


def _encode_result(shape: ResultShape, rows: list[Any]) -> Any:
    if shape == "namespaces":
        return [row[0] for row in rows]
    if shape == "items":
        return [[*_encode_item(row), row[7]] for row in rows]
    return _encode_item(rows[0]) if rows else None


def _encode_item(row: Sequence[Any]) -> list[Any]:
    namespace, key, value, created_at, updated_at, *_ = row
    return [namespace, key, value.encode(), _format_time(created_at), _format_time(updated_at)]


def _format_time(value: datetime) -> str:
    return value.isoformat(timespec="microseconds")


def store_owner(source: ClaimedRun | RevisionRef) -> StoreOwner:
    """Return the deployment whose store a run or revision uses."""
    return StoreOwner(source.workspace_id, source.deployment_id)
