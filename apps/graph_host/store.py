"""LangGraph's store interface, backed by the platform through the worker's socket."""

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
from .project import AgentProject, ProjectError
from .rpc import RpcClient, RunChannel

if TYPE_CHECKING:
    from langgraph.store.base import TTLConfig

    from .embeddings import TextEmbedder

current_run_key: ContextVar[int] = ContextVar("current_run_key", default=0)
"""Key of the run or call that the current code belongs to."""

OPERATORS = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})


class SocketStore(BaseStore):
    """The store of all runs and calls of a host.

    Values are encoded as JSON. Indexed texts are embedded here, with the project's model.
    """

    supports_ttl = True

    def __init__(
        self,
        rpc: RpcClient,
        embedder: TextEmbedder | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._rpc = rpc
        self._embedder = embedder
        self.ttl_config = ttl

    @classmethod
    def load(cls, rpc: RpcClient, project: AgentProject) -> SocketStore:
        """Create the store that langgraph.json configures."""
        settings = project.config.get("store") or {}
        embedder = None
        if settings.get("index"):
            from .embeddings import TextEmbedder  # noqa: PLC0415  (older LangGraph versions lack its imports)

            embedder = TextEmbedder.load(project, settings["index"])
        return cls(rpc, embedder, settings.get("ttl") or None)

    async def embed(self, params: dict[str, Any]) -> Any:
        """Embed a query or a value for the platform."""
        if self._embedder is None:
            raise ProjectError("This revision has no `store.index`.")
        return await self._embedder.execute(params)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = _validate(list(ops))
        plan = _BatchPlan(operations, self._embedder)
        if self._embedder is not None:
            vectors = self._embedder.embed(plan.texts)
            plan.set_vectors(vectors, [self._embedder.embed_query(query) for query in plan.queries])
        return _parse_results(
            operations, self._run_channel().request_blocking("store", plan.frames())
        )

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        operations = _validate(list(ops))
        plan = _BatchPlan(operations, self._embedder)
        if self._embedder is not None:
            vectors = await self._embedder.aembed(plan.texts)
            plan.set_vectors(vectors, [await self._embedder.aembed_query(q) for q in plan.queries])
        return _parse_results(operations, await self._run_channel().request("store", plan.frames()))

    def _run_channel(self) -> RunChannel:
        return self._rpc.channel(current_run_key.get())


def _validate(ops: list[Op]) -> list[Op]:
    for op in ops:
        if isinstance(op, PutOp) and not isinstance(op.value, Mapping | None):
            raise TypeError(f"A store value must be a mapping, not {type(op.value).__name__}.")
        if isinstance(op, SearchOp):
            _check_filter(op.filter)
    return ops


def _check_filter(conditions: Mapping[str, Any] | None) -> None:
    for condition in (conditions or {}).values():
        if isinstance(condition, dict) and any(name.startswith("$") for name in condition):
            for name in condition:
                if name not in OPERATORS:
                    raise ValueError(f"Unsupported operator: {name}")


class _BatchPlan:
    """The operations of a batch, with the texts whose vectors they need."""

    def __init__(self, ops: list[Op], embedder: TextEmbedder | None) -> None:
        self._ops = ops
        self._values = [
            encoding.dumps(op.value) if isinstance(op, PutOp) and op.value is not None else None
            for op in ops
        ]
        self._paths: dict[int, list[str]] = {}
        self.texts: list[str] = []
        """Texts of documents; models embed `queries` differently."""
        self.queries: list[str] = []
        if embedder is not None:
            self._find_texts(embedder)
        self._vectors: list[bytes] = []
        self._query_vectors: list[bytes] = []

    def _find_texts(self, embedder: TextEmbedder) -> None:
        for index, op in enumerate(self._ops):
            if isinstance(op, PutOp):
                value = self._values[index]
                if value is not None and op.index is not False:
                    # Extract texts from the JSON, because the JSON is stored.
                    texts = embedder.texts(encoding.loads(value), op.index)
                    self._paths[index] = [path for path, _ in texts]
                    self.texts += [text for _, text in texts]
            elif isinstance(op, SearchOp) and op.query:
                self.queries.append(op.query)

    def set_vectors(self, vectors: list[bytes], query_vectors: list[bytes]) -> None:
        self._vectors, self._query_vectors = vectors, query_vectors

    def frames(self) -> list[list[Any]]:
        """Return the operations as lists for a frame."""
        vectors, queries = iter(self._vectors), iter(self._query_vectors)
        frames = []
        for index, op in enumerate(self._ops):
            if isinstance(op, PutOp):
                pairs = [[path, next(vectors)] for path in self._paths.get(index, ())]
                name = [list(op.namespace), str(op.key)]
                frames.append(["put", *name, self._values[index], op.ttl, pairs])
            elif isinstance(op, SearchOp):
                vector = next(queries, None) if op.query else None
                frames.append(_build_search_frame(op, vector))
            else:
                frames.append(_build_frame(op))
        return frames


def _build_search_frame(op: SearchOp, vector: bytes | None) -> list[Any]:
    filter_json = encoding.dumps(op.filter) if op.filter else None
    prefix = list(op.namespace_prefix)
    return ["search", prefix, filter_json, op.limit, op.offset, vector, op.refresh_ttl]


def _build_frame(op: Op) -> list[Any]:
    if isinstance(op, GetOp):
        return ["get", list(op.namespace), str(op.key), op.refresh_ttl]
    if isinstance(op, ListNamespacesOp):
        conditions = [[c.match_type, list(c.path)] for c in op.match_conditions or ()]
        return ["namespaces", conditions, op.max_depth, op.limit, op.offset]
    raise TypeError(f"The store does not support {type(op).__name__}.")


def _parse_results(operations: list[Op], values: list[Any]) -> list[Result]:
    return [_parse_result(op, value) for op, value in zip(operations, values, strict=True)]


def _parse_result(op: Op, value: Any) -> Result:
    if isinstance(op, GetOp):
        return Item(**_parse_item(value)) if value is not None else None
    if isinstance(op, SearchOp):
        return [SearchItem(**_parse_item(item), score=item[5]) for item in value]
    if isinstance(op, ListNamespacesOp):
        return [tuple(namespace) for namespace in value]
    return None


def _parse_item(item: list[Any]) -> dict[str, Any]:
    namespace, key, value, created_at, updated_at = item[:5]
    return {
        "namespace": tuple(namespace),
        "key": key,
        "value": encoding.loads(value),
        "created_at": datetime.fromisoformat(created_at),
        "updated_at": datetime.fromisoformat(updated_at),
    }
