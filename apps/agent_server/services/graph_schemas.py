"""A graph's input and output schemas in the form that tools have: self-contained objects.

They come from the build, so they are JSON of untrusted code: references are followed only within
the schema, and values are checked against plain types only, never against patterns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.scope import Scope
from apps.deployments.models import RevisionGraph

JSONObject = dict[str, Any]
MAX_CACHED = 256
INPUT_FIELD, OUTPUT_FIELD = "input", "result"
"""The fields that hold the input or output of a graph whose state is not an object."""
_PREFIX = "#/$defs/"
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_MESSAGES: JSONObject = {
    "title": "Messages",
    "description": "The text of a user message, or a list of messages.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"role": {"type": "string"}, "content": {}},
                "required": ["content"],
            },
        },
    ],
}


@dataclass(frozen=True, slots=True)
class GraphSchemas:
    """What callers send to a graph and get from it."""

    input_schema: JSONObject = field(default_factory=lambda: {"type": "object"})
    output_schema: JSONObject | None = None
    """None if the graph's output has no schema."""
    is_input_wrapped: bool = False
    """The graph's input is the field `INPUT_FIELD`."""
    is_output_wrapped: bool = False
    has_messages: bool = False
    """The input has a list of chat messages."""

    def describe_problem(self, arguments: JSONObject) -> str | None:
        """Why the arguments do not match the input schema; None if no problem is known."""
        return find_problem(self.input_schema, arguments)

    def to_input(self, arguments: JSONObject) -> Any:
        """The graph's input of valid arguments."""
        arguments = _with_integers(self.input_schema, arguments)
        if self.is_input_wrapped:
            return arguments.get(INPUT_FIELD)
        if self.has_messages and isinstance(arguments.get("messages"), str):
            message = {"role": "user", "content": arguments["messages"]}
            return {**arguments, "messages": [message]}
        return arguments


def build(schemas: Mapping[str, Any]) -> GraphSchemas:
    """Convert the schemas that the build recorded; unusable ones become open objects."""
    input_schema, is_input_wrapped = _as_object(schemas.get("input_schema"), INPUT_FIELD)
    has_messages = not is_input_wrapped and _has_messages(input_schema)
    if has_messages:
        properties = {**input_schema["properties"], "messages": _MESSAGES}
        # The other fields of a conversation are the graph's own state, which it sets itself.
        changes = {"properties": properties, "required": ["messages"]}
        input_schema = _without_unused({**input_schema, **changes})
    output_schema, is_output_wrapped = _as_object(schemas.get("output_schema"), OUTPUT_FIELD)
    return GraphSchemas(
        input_schema,
        _with_plain_types(output_schema) if _has_properties(output_schema) else None,
        is_input_wrapped,
        is_output_wrapped,
        has_messages,
    )


class SchemaCache:
    """The schemas of recently used graphs, which never change for a revision."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[tuple[UUID, str], GraphSchemas] = OrderedDict()

    def get(self, scope: Scope, graph_id: str) -> GraphSchemas:
        """The schemas of a graph of the active revision. Raises `GraphGone`."""
        revision_id = scope.route.active_revision_id
        if revision_id is None:
            raise errors.AgentNotReady
        key = revision_id, graph_id
        schemas = self._schemas.get(key)
        if schemas is None:
            graphs = RevisionGraph.objects.for_workspace(scope.route.workspace_id)
            graph = graphs.filter(revision=revision_id, graph_id=graph_id).first()
            if graph is None:
                raise errors.GraphGone(graph_id)
            schemas = self._schemas[key] = build(graph.schemas or {})
            if len(self._schemas) > MAX_CACHED:
                self._schemas.popitem(last=False)
        return schemas


schema_cache = SchemaCache()


def find_problem(schema: JSONObject, value: JSONObject) -> str | None:
    """Compare an object with the schema's required names and the plain types of its properties."""
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"`{name}` is required."
    properties = schema.get("properties")
    for name, member_schema in (properties if isinstance(properties, dict) else {}).items():
        types = _plain_types(member_schema)
        if name in value and types is not None and not _has_type(value[name], types):
            expected = " or ".join(sorted(types))
            return f"`{name}` must be of type {expected}, not {_type_name(value[name])}."
    return None


def _plain_types(schema: Any) -> frozenset[str] | None:
    """The JSON types that a schema allows; None if it has other rules that decide."""
    if not isinstance(schema, dict) or schema.keys() & {"$ref", "allOf", "not", "if"}:
        return None
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        types: frozenset[str] = frozenset()
        for option in options:
            option_types = _plain_types(option) if option is not schema else None
            if option_types is None:
                return None
            types |= option_types
        return types or None
    kinds = schema.get("type")
    names = kinds if isinstance(kinds, list) else [kinds]
    if not all(isinstance(name, str) and name in _TYPES for name in names):
        return None
    return frozenset(names)


def _has_type(value: Any, types: frozenset[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return True
    return any(isinstance(value, _TYPES[name]) for name in types)


def _with_integers(schema: JSONObject, value: JSONObject) -> JSONObject:
    """Replace floats such as 3.0 in integer fields: protobuf clients have no integers."""
    properties = schema.get("properties")
    result = dict(value)
    for name, member_schema in (properties if isinstance(properties, dict) else {}).items():
        member = value.get(name)
        if isinstance(member, float) and member.is_integer():
            types = _plain_types(member_schema) or frozenset()
            if "integer" in types and "number" not in types:
                result[name] = int(member)
    return result


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), "unknown")


def _as_object(schema: Any, field_name: str) -> tuple[JSONObject, bool]:
    """The schema as that of an object, and whether the original value is its only field."""
    if not isinstance(schema, dict) or not _has_local_references(schema):
        return {"type": "object"}, False
    root = schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_PREFIX):
        target = schema["$defs"][reference.removeprefix(_PREFIX)]
        if isinstance(target, dict) and target.get("type") == "object":
            root = {**target, "$defs": schema["$defs"]}
    # With a type, other keywords only restrict it.
    is_object = root.get("type") == "object" or not root.keys() & {
        "type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"
    }  # fmt: skip
    if is_object:
        return _without_unused({**root, "type": "object"}), False
    definitions = schema.get("$defs")
    inner = {name: member for name, member in schema.items() if name != "$defs"}
    wrapped = {"type": "object", "properties": {field_name: inner}, "required": [field_name]}
    return {**wrapped, **({"$defs": definitions} if definitions else {})}, True


def _has_local_references(schema: JSONObject) -> bool:
    """Whether every reference leads to a definition of the schema itself."""
    definitions = schema.get("$defs", {})
    if not isinstance(definitions, dict):
        return False
    return all(name in definitions for name in _references(schema))


def _references(schema: Any) -> set[str]:
    """The names of the definitions that the schema refers to; "" for any other reference."""
    names: set[str] = set()
    pending = [schema]
    while pending:
        member = pending.pop()
        if isinstance(member, list):
            pending += member
        elif isinstance(member, dict):
            reference = member.get("$ref")
            if isinstance(reference, str):
                is_local = reference.startswith(_PREFIX)
                names.add(reference.removeprefix(_PREFIX) if is_local else "")
            pending += member.values()
    return names


def _without_unused(schema: JSONObject) -> JSONObject:
    """The schema with those definitions that it needs."""
    definitions = schema.get("$defs")
    rest = {name: member for name, member in schema.items() if name != "$defs"}
    if not definitions:
        return rest
    used: dict[str, Any] = {}
    pending = _references(rest)
    while pending:
        name = pending.pop()
        if name not in used:
            used[name] = definitions[name]
            pending |= _references(definitions[name])
    return {**rest, **({"$defs": used} if used else {})}


def _has_properties(schema: JSONObject) -> bool:
    return isinstance(schema.get("properties"), dict) and bool(schema["properties"])


def _has_messages(schema: JSONObject) -> bool:
    messages = schema["properties"].get("messages") if _has_properties(schema) else None
    if not isinstance(messages, dict):
        return False
    alternatives = messages.get("anyOf")
    options = [messages, *(alternatives if isinstance(alternatives, list) else ())]
    return any(isinstance(option, dict) and option.get("type") == "array" for option in options)


def _with_plain_types(schema: JSONObject) -> JSONObject:
    """The output schema with what can be relied on: names, descriptions and plain types.

    A graph writes only some of its fields, none of them is validated, and each may be null.
    """
    properties: JSONObject = {}
    for name, member in schema["properties"].items():
        described = member if isinstance(member, dict) else {}
        kept = {key: described[key] for key in ("title", "description") if key in described}
        types = _plain_types(member)
        if types is not None:
            kept["type"] = sorted(types | {"null"})
        properties[name] = kept
    named: JSONObject = {key: schema[key] for key in ("title", "description") if key in schema}
    return {**named, "type": "object", "properties": properties}
