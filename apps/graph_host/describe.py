"""JSON schemas and drawing of a graph."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from langgraph.pregel import Pregel
from pydantic import BaseModel, TypeAdapter, create_model

from .graphs import AnyGraph


def schemas(graph: AnyGraph) -> dict[str, Any]:
    """Return the five schemas of an assistant; None if a schema cannot be generated."""
    context = _or_none(lambda: _context_schema(graph))
    return {
        "input_schema": _or_none(graph.get_input_jsonschema),
        "output_schema": _or_none(graph.get_output_jsonschema),
        "state_schema": _or_none(lambda: _state_schema(graph)),
        "config_schema": context or {},
        "context_schema": context,
    }


async def drawing(graph: AnyGraph, *, xray: bool | int = False) -> dict[str, Any]:
    """Return nodes and edges; `xray` expands subgraphs, a number limits the levels."""
    return _as_json(await graph.aget_graph(xray=xray))


async def subgraphs(graph: AnyGraph, namespace: str | None, *, recurse: bool) -> dict[str, Any]:
    """Return the schemas of subgraphs by namespace."""
    result = {}
    async for name, inner in graph.aget_subgraphs(namespace=namespace, recurse=recurse):
        if isinstance(inner, Pregel):
            result[name] = schemas(inner)
    return result


def _or_none(make: Callable[[], Any]) -> Any:
    for context in (contextlib.nullcontext, _typed_dicts_of_typing):
        try:
            with context():
                return make()
        except Exception:  # noqa: BLE001, S112 (a type without a schema fails in many ways)
            continue
    return None


@contextlib.contextmanager
def _typed_dicts_of_typing() -> Iterator[None]:
    """Make pydantic accept `typing.TypedDict` like that of `typing_extensions`.

    Before Python 3.12 pydantic rejects it, because it lacks the optional keys of a parent class.
    A slightly inexact schema is better than none. No effect on pydantic versions without the flag.
    """
    from pydantic._internal import _generate_schema as inner  # noqa: PLC0415 (no public API)

    previous = getattr(inner, "_SUPPORTS_TYPEDDICT", None)
    if previous is None:
        yield
        return
    inner._SUPPORTS_TYPEDDICT = True  # noqa: SLF001
    try:
        yield
    finally:
        inner._SUPPORTS_TYPEDDICT = previous  # noqa: SLF001


def _context_schema(graph: AnyGraph) -> dict[str, Any] | None:
    schema = getattr(graph, "context_schema", None) or getattr(graph, "config_type", None)
    if schema is None:
        return None
    json_schema: dict[str, Any] = TypeAdapter(schema).json_schema()
    return json_schema


def _state_schema(graph: AnyGraph) -> dict[str, Any] | None:
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    if schema is not None and inspect.isclass(schema):
        json_schema: dict[str, Any] = TypeAdapter(schema).json_schema()
        return json_schema
    fields: dict[str, Any] = {
        name: (getattr(graph.channels[name], "ValueType", Any), None)
        for name in graph.stream_channels_list
    }
    model: type[BaseModel] = create_model(graph.get_name("State"), **fields)
    return model.model_json_schema()


def _as_json(drawn: Any) -> dict[str, Any]:
    drawing_json = drawn.to_json()
    nodes = [_node(node) for node in drawing_json["nodes"]]
    return {"nodes": nodes, "edges": drawing_json["edges"]}


def _node(node: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if value not in (None, {})}
