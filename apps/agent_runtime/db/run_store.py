"""The store as runs use it: what their hosts ask for, in the name of one attempt.

As in LangGraph's own stores, all reading of a batch comes before its writing, and the last write to
a place counts. Writing is one transaction that holds the run's row: a stale attempt writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import psycopg

from apps.agent_runtime.db.database import TRANSIENT, Connection, Database, patiently
from apps.agent_runtime.db.write_batch import Stale, Token
from apps.agent_server.store import filters, namespace_rules, namespaces, statements
from apps.agent_server.store.filters import Condition
from apps.agent_server.store.namespaces import Match
from apps.agent_server.store.statements import ItemKey, Owner, Query, Vector
from apps.agent_server.store.vectors import unpack_vector
from apps.core import errors
from apps.core.json import loads, storable

logger = logging.getLogger(__name__)

CONNECTIONS = 4
MOST_FOUND = 10_000
READ_ONLY = "A question changes nothing."
Kind = Literal["item", "items", "namespaces"]


class Read(NamedTuple):
    kind: Kind
    query: Query
    refreshes: bool = False


class Put(NamedTuple):
    """`value` is None for what is to be deleted."""

    value: str | None
    ttl_minutes: float | None
    vectors: list[Vector]


class RunStore:
    """The store at connections of its own: long searches hold up nothing else."""

    def __init__(self) -> None:
        self._database = Database(CONNECTIONS)

    async def close(self) -> None:
        await self._database.close()

    async def answer(
        self,
        owner: Owner,
        ops: Any,
        token: Token | None,
        reply: Callable[[bool, Any], None],
    ) -> None:
        """Do what a host asks for and tell it what came of it; `Stale` when the token is worthless.

        Without a token nothing may be written.
        """
        try:
            reply(True, await self._perform(owner, ops, token))
        except Stale:
            reply(False, "This run now belongs to another attempt.")
            raise
        except errors.AppError as error:
            reply(False, error.detail)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            # The host runs hostile code: what makes no sense is the run's own misfortune.
            reply(False, f"malformed `store`: {error}")
        except psycopg.DataError as error:
            reply(False, f"It cannot be stored: {str(error).strip()}")
        except TRANSIENT as error:
            logger.warning("A store could not be asked: %s", str(error).strip())
            reply(False, "The platform cannot reach the store now.")

    async def _perform(self, owner: Owner, ops: Any, token: Token | None) -> list[Any]:
        results: list[Any] = [None] * len(ops)
        reads: dict[int, Read] = {}
        puts: dict[tuple[tuple[str, ...], str], Put] = {}
        for number, (kind, *rest) in enumerate(ops):
            if kind == "put":
                namespace, key, *what = rest
                puts[tuple(namespace), key] = _put(namespace, key, *what)
            else:
                reads[number] = _READS[kind](owner, *rest)
        if puts and token is None:
            raise errors.Invalid(READ_ONLY)
        if reads:
            found = await patiently(lambda: self._read(owner, list(reads.values()), token))
            for number, result in zip(reads, found, strict=True):
                results[number] = result
        if puts and token is not None:
            fence = token
            await patiently(lambda: self._write(owner, puts, fence))
        return results

    async def _read(self, owner: Owner, reads: Sequence[Read], token: Token | None) -> list[Any]:
        async with self._database.connection() as connection:
            found = [await cursor.fetchall() for cursor in await _ask(connection, reads)]
            read = [
                row[5]
                for asked, rows in zip(reads, found, strict=True)
                if asked.refreshes
                for row in rows
                if row[6]
            ]
            if read and token is not None:
                held = statements.fence(*token)
                await connection.execute(*statements.extend_ttl(owner, sorted(set(read)), held))
        return [_result(asked.kind, rows) for asked, rows in zip(reads, found, strict=True)]

    async def _write(
        self, owner: Owner, puts: dict[tuple[tuple[str, ...], str], Put], token: Token
    ) -> None:
        held = statements.fence(*token)
        async with self._database.transaction() as connection:
            async with connection.pipeline():
                holding = await _run(connection, statements.lock_attempt(*token))
                # In one order for all, so that two runs never wait for each other.
                for namespace, key in sorted(puts):
                    place = ItemKey(list(namespace), key)
                    for query in _writing(owner, place, puts[namespace, key], held):
                        await _run(connection, query)
            if await holding.fetchone() is None:
                raise Stale


async def _ask(connection: Connection, reads: Sequence[Read]) -> list[Any]:
    # Planned anew each time: what is best depends on prefix and filter.
    if len(reads) == 1:
        return [await connection.execute(*reads[0].query, prepare=False, binary=True)]
    async with connection.pipeline():
        return [await connection.execute(*read.query, prepare=False, binary=True) for read in reads]


async def _run(connection: Connection, query: Query) -> Any:
    return await connection.execute(*query, prepare=True, binary=True)


def _writing(owner: Owner, place: ItemKey, put: Put, held: Condition) -> list[Query]:
    if put.value is None:
        return statements.delete(owner, place, held)
    queries = [
        statements.put(owner, place, put.value, put.ttl_minutes, held),
        statements.delete_vectors(owner, place, held),
    ]
    if put.vectors:
        queries.append(statements.put_vectors(owner, place, put.vectors, held))
    return queries


# From frames. Whatever a host sends is checked as if a client had sent it.


def _put(namespace: Any, key: Any, value: bytes | None, ttl_minutes: Any, vectors: Any) -> Put:
    if value is None:  # deleting asks no more of a place than that it can be one
        namespace_rules.validate_labels(namespace)
        return Put(None, None, [])
    namespace_rules.validate_item_key(namespace, key)
    if value[:1] != b"{":
        raise errors.Invalid("A value of the store is an object.")
    minutes = None if ttl_minutes is None else float(ttl_minutes)
    if minutes is not None and not 0 < minutes < 1e8:
        raise errors.Invalid("ttl: must be a number of minutes above 0")
    return Put(
        storable(bytes(value)).decode(),
        minutes,
        [unpack_vector(str(path), bytes(packed)) for path, packed in vectors],
    )


def _get(owner: Owner, namespace: Any, key: Any, refreshes: Any) -> Read:
    namespace_rules.validate_labels(namespace)
    return Read("item", statements.get(owner, ItemKey(namespace, _text(key))), bool(refreshes))


def _search(  # noqa: PLR0917  (the order of the frame)
    owner: Owner,
    prefix: Any,
    wanted: bytes | None,
    limit: Any,
    offset: Any,
    packed: bytes | None,
    refreshes: Any,
) -> Read:
    namespace_rules.validate_labels(prefix)
    query = statements.search(
        owner,
        prefix,
        filters.compile_filter(loads(wanted) if wanted else None),
        limit=_count(limit),
        offset=_count(offset, 2**31),
        query=unpack_vector("", bytes(packed)) if packed else None,
    )
    return Read("items", query, bool(refreshes))


def _namespaces(owner: Owner, matches: Any, max_depth: Any, limit: Any, offset: Any) -> Read:
    for _, path in matches:
        namespace_rules.validate_labels(path)
    query = namespaces.list_namespaces(
        owner,
        [Match(kind == "prefix", path) for kind, path in matches],
        max_depth=None if max_depth is None else max(1, _count(max_depth)),
        limit=_count(limit),
        offset=_count(offset, 2**31),
    )
    return Read("namespaces", query)


_READS: dict[str, Callable[..., Read]] = {
    "get": _get,
    "search": _search,
    "namespaces": _namespaces,
}


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise errors.Invalid("key: must be a text without NUL")
    return value


def _count(value: Any, most: int = MOST_FOUND) -> int:
    return max(0, min(int(value), most))


# To frames


def _result(kind: Kind, rows: list[Any]) -> Any:
    if kind == "namespaces":
        return [row[0] for row in rows]
    if kind == "items":
        return [[*_item(row), row[7]] for row in rows]
    return _item(rows[0]) if rows else None


def _item(row: Sequence[Any]) -> list[Any]:
    namespace, key, value, created_at, updated_at, *_ = row
    return [namespace, key, value.encode(), _moment(created_at), _moment(updated_at)]


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="microseconds")


def owner_of(ref: Any) -> Owner:
    """Whose store a run or a revision uses."""
    workspace: UUID = ref.workspace_id
    deployment: UUID = ref.deployment_id
    return Owner(workspace, deployment)
