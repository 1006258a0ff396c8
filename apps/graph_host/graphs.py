"""The graphs of a project: compiled graphs, builders, entrypoints and factories."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore
from langgraph.types import Command, Send

from .project import AgentProject, ProjectError

Access = Literal["threads.create_run", "threads.read", "threads.update", "assistants.read"]
"""`access_context` of a factory call, with LangGraph's values."""

DEFAULT_NAME = "LangGraph"
"""The name that `compile` gives a graph without one."""

if TYPE_CHECKING:
    AnyGraph = Pregel[Any, Any, Any, Any]
else:
    # Older versions of LangGraph have fewer type parameters.
    AnyGraph = Pregel


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
            self._argument_kinds = _parameters(graph_id, target)
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
        """Yield the graph with the platform's checkpointer and store, for a single use."""
        if self._fixed is not None:
            yield self._prepare(self._fixed, checkpointer, store)
            return
        async with contextlib.AsyncExitStack() as stack:
            runtime = _runtime(access, store, context, user)
            result = self._call(config or {"configurable": {}}, runtime)
            if inspect.isawaitable(result):
                result = await result
            if hasattr(result, "__aenter__"):
                result = await stack.enter_async_context(result)
            elif hasattr(result, "__enter__"):
                result = stack.enter_context(result)
            graph = _compiled(result)
            if graph is None:
                raise ProjectError(
                    f"The function of graph `{self.id}` returned a {type(result).__name__}, "
                    "not a graph."
                )
            yield self._prepare(graph, checkpointer, store)

    def _prepare(
        self,
        graph: AnyGraph,
        checkpointer: BaseCheckpointSaver[Any] | None,
        store: BaseStore | None,
    ) -> AnyGraph:
        """Return a shallow copy with checkpointer and store: all runs share the graph itself.

        A graph that kept the library's name has the name of its entry, as on LangGraph's server, so
        that its traces say which agent ran.
        """
        graph_copy = copy.copy(graph)
        graph_copy.checkpointer = checkpointer
        graph_copy.store = store
        if graph_copy.name == DEFAULT_NAME:
            graph_copy.name = self.id
        return graph_copy

    def _call(self, config: RunnableConfig, runtime: Any) -> Any:
        factory = self._factory
        if factory is None:
            raise TypeError("a fixed graph is not called")
        arguments = {
            name: config if kind == "config" else runtime
            for name, kind in self._argument_kinds.items()
        }
        positional_names = _positional_only(factory) if arguments else frozenset()
        positional = [value for name, value in arguments.items() if name in positional_names]
        keywords = {
            name: value for name, value in arguments.items() if name not in positional_names
        }
        return factory(*positional, **keywords)


def load_graphs(project: AgentProject) -> tuple[dict[str, Graph], dict[str, str]]:
    """Return the project's graphs, and the error messages of those that cannot be loaded."""
    graphs, problems = {}, {}
    for graph_id, (target, description) in project.graphs.items():
        try:
            target_object = project.load(target, f"Graph `{graph_id}`")
            graphs[graph_id] = Graph(graph_id, description, target_object)
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
        graph = target.compile()
        return graph if isinstance(graph, Pregel) else None
    return None


def _parameters(graph_id: str, factory: Callable[..., Any]) -> dict[str, str]:
    """Return the argument of each factory parameter: `config` or `runtime`."""
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
        runtime_class = runtime._ExecutionRuntime  # noqa: SLF001
        return runtime_class(access_context=access, user=user, store=store, context=context)  # type: ignore[arg-type]
    read_runtime_class = runtime._ReadRuntime  # noqa: SLF001
    return read_runtime_class(access_context=access, user=user, store=store)  # type: ignore[arg-type]


def known_context(
    graph: AnyGraph, context: Mapping[str, Any] | None, configurable: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the context fields of the graph's schema; None without a context schema.

    Without a context, the `configurable` fields are used, because the two mirror each other.
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
    values = configurable if context is None else context
    supported = {name: value for name, value in values.items() if name in fields}
    if not supported and context is None and any(map(_is_required, fields.values())):
        return None
    return supported


def _is_required(field: Any) -> bool:
    """Return whether a dataclass or pydantic field has no default."""
    if isinstance(field, dataclasses.Field):
        missing = dataclasses.MISSING
        return field.default is missing and field.default_factory is missing
    return bool(getattr(field, "is_required", bool)())


def to_command(fields: dict[str, Any]) -> Command[Any] | None:
    """Parse a command of the API; None for an empty one, which continues the run."""
    goto = fields.get("goto")
    update = fields.get("update")
    if isinstance(update, list):
        update = [tuple(pair) for pair in update]
    if not goto and not update and fields.get("resume") is None:
        return None
    targets = goto if isinstance(goto, list) else [goto] if goto else []
    sends = [_target(target) for target in targets]
    return Command(
        update=update,
        resume=fields.get("resume"),
        goto=sends[0] if len(sends) == 1 else sends,
    )


def _target(target: Any) -> Any:
    return Send(target["node"], target.get("input")) if isinstance(target, dict) else target
