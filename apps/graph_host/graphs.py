"""The graphs of a project: compiled ones, builders, entrypoints, and factories that make them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore

from .project import Project, ProjectError

Access = Literal["threads.create_run", "threads.read", "threads.update", "assistants.read"]
"""Why a factory is called; LangGraph's words."""

AnyGraph = Pregel[Any, Any, Any, Any]


class Graph:
    """One entry of `graphs`."""

    def __init__(self, graph_id: str, description: str | None, target: Any) -> None:
        self.id = graph_id
        self.description = description
        self._fixed: AnyGraph | None = None
        self._factory: Callable[..., Any] | None = None
        compiled = _compiled(target)
        if compiled is not None:
            self._fixed = compiled
        elif callable(target) and target is not None:
            self._factory = target
            self._takes = _parameters(graph_id, target)
        else:
            raise ProjectError(
                f"Graph `{graph_id}` is a {type(target).__name__}; it must be a compiled graph, "
                "a graph builder, or a function that returns one."
            )

    @contextlib.asynccontextmanager
    async def open(
        self,
        access: Access,
        *,
        checkpointer: BaseCheckpointSaver[Any] | None,
        store: BaseStore | None,
        config: RunnableConfig | None = None,
        context: Any = None,
        user: Any = None,
    ) -> AsyncIterator[AnyGraph]:
        """The graph, ready to be used once with the platform's checkpointer and store."""
        if self._fixed is not None:
            yield _lent(self._fixed, checkpointer, store)
            return
        async with contextlib.AsyncExitStack() as stack:
            runtime = _runtime(access, store, context, user)
            made = self._call(config or {"configurable": {}}, runtime)
            if inspect.isawaitable(made):
                made = await made
            if hasattr(made, "__aenter__"):
                made = await stack.enter_async_context(made)
            elif hasattr(made, "__enter__"):
                made = stack.enter_context(made)
            graph = _compiled(made)
            if graph is None:
                raise ProjectError(
                    f"The function of graph `{self.id}` returned a {type(made).__name__}, "
                    "not a graph."
                )
            yield _lent(graph, checkpointer, store)

    def _call(self, config: RunnableConfig, runtime: Any) -> Any:
        factory = self._factory
        if factory is None:
            raise TypeError("a fixed graph is not called")
        given = {
            name: config if kind == "config" else runtime for name, kind in self._takes.items()
        }
        unnamed = _positional_only(factory) if given else frozenset()
        positional = [value for name, value in given.items() if name in unnamed]
        named = {name: value for name, value in given.items() if name not in unnamed}
        return factory(*positional, **named)


def load_graphs(project: Project) -> tuple[dict[str, Graph], dict[str, str]]:
    """The project's graphs, and for each that cannot be had, why."""
    graphs, problems = {}, {}
    for graph_id, (target, description) in project.graphs.items():
        try:
            found = project.load(target, f"Graph `{graph_id}`")
            graphs[graph_id] = Graph(graph_id, description, found)
        except ProjectError as error:
            problems[graph_id] = str(error)
        except Exception as error:  # noqa: BLE001 (a builder's compile runs the author's code)
            problems[graph_id] = (
                f"Graph `{graph_id}` (`{target}`) could not be compiled: "
                f"{type(error).__name__}: {error}"
            )
    return graphs, problems


def _compiled(target: Any) -> AnyGraph | None:
    if isinstance(target, Pregel):
        return target
    if not isinstance(target, type) and callable(getattr(target, "compile", None)):
        made = target.compile()
        return made if isinstance(made, Pregel) else None
    return None


def _lent(
    graph: AnyGraph, checkpointer: BaseCheckpointSaver[Any] | None, store: BaseStore | None
) -> AnyGraph:
    """A copy that saves with the platform: the graph itself is shared by all runs."""
    lent = copy.copy(graph)
    lent.checkpointer = checkpointer
    lent.store = store
    return lent


def _parameters(graph_id: str, factory: Callable[..., Any]) -> dict[str, str]:
    """What each parameter of a factory wants: `config` or `runtime`."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return {}
    takes: dict[str, str] = {}
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        annotation = str(parameter.annotation)
        if "ServerRuntime" in annotation or parameter.name == "runtime":
            takes[parameter.name] = "runtime"
        elif "RunnableConfig" in annotation or parameter.name == "config":
            takes[parameter.name] = "config"
        elif parameter.default is not parameter.empty:
            continue
        elif not takes:
            takes[parameter.name] = "config"
        else:
            raise ProjectError(
                f"The function of graph `{graph_id}` takes `{parameter.name}`; "
                "it may take `config: RunnableConfig` and `runtime: ServerRuntime`."
            )
    return takes


def _positional_only(factory: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(factory).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)


def _runtime(access: Access, store: BaseStore | None, context: Any, user: Any) -> Any:
    try:
        from langgraph_sdk import runtime  # noqa: PLC0415 (older versions have none)
    except ImportError:
        return None
    # The public name is only an alias of these two types.
    if access == "threads.create_run":
        made = runtime._ExecutionRuntime  # noqa: SLF001
        return made(access_context=access, user=user, store=store, context=context)  # type: ignore[arg-type]
    made_to_read = runtime._ReadRuntime  # noqa: SLF001
    return made_to_read(access_context=access, user=user, store=store)  # type: ignore[arg-type]


def known_context(
    graph: AnyGraph, context: Mapping[str, Any] | None, configurable: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The keys of a context that the graph's schema knows; None for a graph without one.

    Without a context, what is configured is one: the two mirror each other.
    """
    schema = getattr(graph, "context_schema", None)
    if schema is None:
        return None
    fields = (
        getattr(schema, "model_fields", None)
        or getattr(schema, "__dataclass_fields__", None)
        or getattr(schema, "__annotations__", None)
        or {}
    )
    given = configurable if context is None else context
    known = {name: value for name, value in given.items() if name in fields}
    if not known and context is None and any(map(_is_required, fields.values())):
        return None
    return known


def _is_required(field: Any) -> bool:
    """Whether a field of a dataclass or of a pydantic model has to be given."""
    if isinstance(field, dataclasses.Field):
        missing = dataclasses.MISSING
        return field.default is missing and field.default_factory is missing
    return bool(getattr(field, "is_required", bool)())
