"""The long-term memory of agents, kept by the platform at the other end of the socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any

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
from .project import Project, ProjectError
from .rpc import Desk, Door

if TYPE_CHECKING:
    from langgraph.store.base import TTLConfig

    from .embeddings import Embedder

speaker: ContextVar[int] = ContextVar("speaker", default=0)
"""The run or call in whose name the current code uses the store."""

OPERATORS = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})


class SocketStore(BaseStore):
    """LangGraph's store interface over the socket; one for the whole host.

    Values become JSON, and what the project wants to find by meaning is embedded here.
    """

    supports_ttl = True

    def __init__(
        self,
        desk: Desk,
        embedder: Embedder | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._desk = desk
        self._embedder = embedder
        self.ttl_config = ttl

    @classmethod
    def of(cls, desk: Desk, project: Project) -> SocketStore:
        """The store as langgraph.json wants it."""
        settings = project.config.get("store") or {}
        embedder = None
        if settings.get("index"):
            from .embeddings import Embedder  # noqa: PLC0415  (older LangGraphs have no such helpers)

            embedder = Embedder.of(project, settings["index"])
        return cls(desk, embedder, settings.get("ttl") or None)

    async def embed(self, params: dict[str, Any]) -> Any:
        """What the platform asks to have embedded."""
        if self._embedder is None:
            raise ProjectError("This revision has no `store.index`.")
        return await self._embedder.answer(params)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        asked = _checked(list(ops))
        plan = _Plan(asked, self._embedder)
        if self._embedder is not None:
            vectors = self._embedder.embed(plan.texts)
            plan.know(vectors, [self._embedder.embed_query(query) for query in plan.queries])
        return _results(asked, self._door().ask_blocking("store", plan.frames()))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = _checked(list(ops))
        plan = _Plan(asked, self._embedder)
        if self._embedder is not None:
            vectors = await self._embedder.aembed(plan.texts)
            plan.know(vectors, [await self._embedder.aembed_query(q) for q in plan.queries])
        return _results(asked, await self._door().ask("store", plan.frames()))

    def _door(self) -> Door:
        return self._desk.door(speaker.get())


def _checked(ops: list[Op]) -> list[Op]:
    for op in ops:
        if isinstance(op, PutOp) and not isinstance(op.value, Mapping | None):
            raise TypeError(f"A value of the store is a mapping, not a {type(op.value).__name__}.")
        if isinstance(op, SearchOp):
            _check_filter(op.filter)
    return ops


def _check_filter(given: Mapping[str, Any] | None) -> None:
    for wanted in (given or {}).values():
        if isinstance(wanted, dict) and any(name.startswith("$") for name in wanted):
            for name in wanted:
                if name not in OPERATORS:
                    raise ValueError(f"Unsupported operator: {name}")


class _Plan:
    """The operations of a batch, with the texts whose vectors they need."""

    def __init__(self, ops: list[Op], embedder: Embedder | None) -> None:
        self._ops = ops
        self._values = [
            encoding.dumps(op.value) if isinstance(op, PutOp) and op.value is not None else None
            for op in ops
        ]
        self._paths: dict[int, list[str]] = {}
        self.texts: list[str] = []
        """Of documents; `queries` are embedded by models in their own way."""
        self.queries: list[str] = []
        if embedder is not None:
            self._find_texts(embedder)
        self._vectors: list[bytes] = []
        self._query_vectors: list[bytes] = []

    def _find_texts(self, embedder: Embedder) -> None:
        for place, op in enumerate(self._ops):
            if isinstance(op, PutOp):
                value = self._values[place]
                if value is not None and op.index is not False:
                    # What is stored is JSON, so that is what is read, whatever the value was.
                    found = embedder.texts(encoding.loads(value), op.index)
                    self._paths[place] = [path for path, _ in found]
                    self.texts += [text for _, text in found]
            elif isinstance(op, SearchOp) and op.query:
                self.queries.append(op.query)

    def know(self, vectors: list[bytes], query_vectors: list[bytes]) -> None:
        self._vectors, self._query_vectors = vectors, query_vectors

    def frames(self) -> list[list[Any]]:
        """The operations as they travel."""
        vectors, queries = iter(self._vectors), iter(self._query_vectors)
        written = []
        for place, op in enumerate(self._ops):
            if isinstance(op, PutOp):
                pairs = [[path, next(vectors)] for path in self._paths.get(place, ())]
                name = [list(op.namespace), str(op.key)]
                written.append(["put", *name, self._values[place], op.ttl, pairs])
            elif isinstance(op, SearchOp):
                vector = next(queries, None) if op.query else None
                written.append(_search(op, vector))
            else:
                written.append(_written(op))
        return written


def _search(op: SearchOp, vector: bytes | None) -> list[Any]:
    wanted = encoding.dumps(op.filter) if op.filter else None
    place = list(op.namespace_prefix)
    return ["search", place, wanted, op.limit, op.offset, vector, op.refresh_ttl]


def _written(op: Op) -> list[Any]:
    if isinstance(op, GetOp):
        return ["get", list(op.namespace), str(op.key), op.refresh_ttl]
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
