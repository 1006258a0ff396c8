"""OpenAPI schemas of request bodies that are decoded into structs."""

from __future__ import annotations

from typing import Any

import msgspec

_TEMPLATE = "#/$defs/"


def request_schema(kind: Any) -> dict[str, Any]:
    """Return the OpenAPI schema of a request body of this type, such as `list[WireExample]`."""
    (schema,), definitions = msgspec.json.schema_components(
        [kind], ref_template=_TEMPLATE + "{name}"
    )
    return {"application/json": _inline(schema, definitions)}


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replace the references to definitions by these."""
    if isinstance(schema, list):
        return [_inline(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _inline(definitions[reference.removeprefix(_TEMPLATE)], definitions)
    return {name: _inline(member, definitions) for name, member in schema.items()}
