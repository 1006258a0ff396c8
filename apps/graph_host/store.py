"""The long-term memory of agents, kept by the platform at the other end of the socket."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from . import encoding
from .door import Desk, Door

speaker: ContextVar[int] = ContextVar("speaker", default=0)
"""The run or call in whose name the current code uses the store."""


class SocketStore(BaseStore):
    """LangGraph's store interface over the socket; one for the whole host."""

    supports_ttl = True

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        return _results(asked, self._door().ask_blocking("store", [_written(op) for op in asked]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        return _results(asked, await self._door().ask("store", [_written(op) for op in asked]))

    def _door(self) -> Door:
        return self._desk.door(speaker.get())


def _written(op: Op) -> list[Any]:
    if isinstance(op, GetOp):
        return ["get", list(op.namespace), str(op.key), op.refresh_ttl]
    if isinstance(op, PutOp):
        value = None if op.value is None else encoding.dumps(op.value)
        index = list(op.index) if isinstance(op.index, list | tuple) else op.index
        return ["put", list(op.namespace), str(op.key), value, index, op.ttl]
    if isinstance(op, SearchOp):
        wanted = None if not op.filter else encoding.dumps(op.filter)
        place = list(op.namespace_prefix)
        return ["search", place, wanted, op.limit, op.offset, op.query, op.refresh_ttl]
    if isinstance(op, ListNamespacesOp):
        conditions = [[c.match_type, list(c.path)] for c in op.match_conditions or ()]
        return ["namespaces", conditions, op.max_depth, op.limit, op.offset]
    raise TypeError(f"The store does not know {type(op).__name__}.")


def _results(asked: list[Op], answers: list[Any]) -> list[Result]:
    return [_result(op, given) for op, given in zip(asked, answers, strict=True)]


def _result(op: Op, given: Any) -> Result:
    if isinstance(op, GetOp):
        return Item(**_fields(given)) if given is not None else None
    if isinstance(op, SearchOp):
        return [SearchItem(**_fields(item), score=item[5]) for item in given]
    if isinstance(op, ListNamespacesOp):
        return [tuple(namespace) for namespace in given]
    return None


def _fields(given: list[Any]) -> dict[str, Any]:
    namespace, key, value, created_at, updated_at = given[:5]
    return {
        "namespace": tuple(namespace),
        "key": key,
        "value": encoding.loads(value),
        "created_at": datetime.fromisoformat(created_at),
        "updated_at": datetime.fromisoformat(updated_at),
    }
