"""What a graph looks like from outside: its JSON schemas and its drawing."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from langgraph.pregel import Pregel
from pydantic import BaseModel, TypeAdapter, create_model

from .graphs import AnyGraph


def schemas(graph: AnyGraph) -> dict[str, Any]:
    """The five schemas of an assistant; null where none can be made."""
    context = _tried(lambda: _context_schema(graph))
    return {
        "input_schema": _tried(graph.get_input_jsonschema),
        "output_schema": _tried(graph.get_output_jsonschema),
        "state_schema": _tried(lambda: _state_schema(graph)),
        "config_schema": context or {},
        "context_schema": context,
    }


async def drawing(graph: AnyGraph, *, xray: bool | int = False) -> dict[str, Any]:
    """Nodes and edges; `xray` opens subgraphs, a number that many levels of them."""
    return _as_json(await graph.aget_graph(xray=xray))


async def subgraphs(graph: AnyGraph, namespace: str | None, *, recurse: bool) -> dict[str, Any]:
    """The schemas of the graphs inside, by namespace."""
    found = {}
    async for name, inner in graph.aget_subgraphs(namespace=namespace, recurse=recurse):
        if isinstance(inner, Pregel):
            found[name] = schemas(inner)
    return found


def _tried(make: Callable[[], Any]) -> Any:
    for way in (contextlib.nullcontext, _typed_dicts_of_typing):
        try:
            with way():
                return make()
        except Exception:  # noqa: BLE001, S112 (a type without a schema fails in many ways)
            continue
    return None


@contextlib.contextmanager
def _typed_dicts_of_typing() -> Iterator[None]:
    """Have pydantic take `typing.TypedDict` as it takes that of `typing_extensions`.

    Before Python 3.12 it refuses them, because they do not know which keys a parent made optional.
    That is worth less than a schema. Versions of pydantic without the switch change nothing.
    """
    from pydantic._internal import _generate_schema as inner  # noqa: PLC0415 (has no public door)

    before = getattr(inner, "_SUPPORTS_TYPEDDICT", None)
    if before is None:
        yield
        return
    inner._SUPPORTS_TYPEDDICT = True  # noqa: SLF001
    try:
        yield
    finally:
        inner._SUPPORTS_TYPEDDICT = before  # noqa: SLF001


def _context_schema(graph: AnyGraph) -> dict[str, Any] | None:
    schema = getattr(graph, "context_schema", None) or getattr(graph, "config_type", None)
    if schema is None:
        return None
    made: dict[str, Any] = TypeAdapter(schema).json_schema()
    return made


def _state_schema(graph: AnyGraph) -> dict[str, Any] | None:
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    if schema is not None and inspect.isclass(schema):
        described: dict[str, Any] = TypeAdapter(schema).json_schema()
        return described
    fields: dict[str, Any] = {
        name: (getattr(graph.channels[name], "ValueType", Any), None)
        for name in graph.stream_channels_list
    }
    model: type[BaseModel] = create_model(graph.get_name("State"), **fields)
    return model.model_json_schema()


def _as_json(drawn: Any) -> dict[str, Any]:
    made = drawn.to_json()
    nodes = [_node(node) for node in made["nodes"]]
    return {"nodes": nodes, "edges": made["edges"]}


def _node(node: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if value not in (None, {})}
