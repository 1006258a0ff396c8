"""Requests generated from the OpenAPI document: valid ones and many kinds of invalid ones."""

from __future__ import annotations

from random import Random
from typing import Any
from urllib.parse import quote, urlencode

UNUSUAL_VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 1e308, 0.1, "", "x", "\0", "a\0b", "%",
    "'", "../..", "\U0001f600", "x" * 300, "2020-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00",
    "00000000-0000-0000-0000-000000000000", [], [None], {}, {"": ""}, {"\0": ["\0"]}, [[[]]],
]  # fmt: skip


class ValueGenerator:
    """Generates values for schemas; the same seed gives the same values."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._schemas = document["components"]["schemas"]
        self._random = Random(seed)

    def value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """Return a value that the schema allows, or sometimes an unusual one."""
        if self._random.random() < 0.08:
            return self._random.choice(UNUSUAL_VALUES)
        if reference := schema.get("$ref"):
            return self.value(self._schemas[reference.rpartition("/")[2]], depth)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self.value(self._random.choice(schema[keyword]), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        return self._of_type(schema, depth)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                count = self._random.randint(schema.get("minItems", 0), 3)
                return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "string":
                return self._text(schema)
            case "integer":
                return self._random.randint(schema.get("minimum", -5), schema.get("maximum", 100))
            case "number":
                return self._random.uniform(schema.get("minimum", -5), schema.get("maximum", 100))
            case "boolean":
                return self._random.random() < 0.5
            case "null":
                return None
        return self._random.choice(UNUSUAL_VALUES)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        fields = {
            name: self.value(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self._random.random() < 0.4 / (depth + 1)
        }
        if not fields and self._random.random() < 0.5:
            fields = {
                self._random.choice(["a", "\0", "x" * 50]): self._random.choice(UNUSUAL_VALUES)
            }
        return fields

    def _text(self, schema: dict[str, Any]) -> str:
        if schema.get("format") == "uuid":
            return f"{self._random.getrandbits(128):032x}"
        if schema.get("format") == "date-time":
            return "2030-01-01T00:00:00Z"
        return self._random.choice(["agent", "other", "x", "* * * * *", "Europe/Berlin", "a\0b"])

    def path(self, path: str, parameters: list[dict[str, Any]], known: dict[str, str]) -> str:
        """Return a path with query, mostly of existing rows."""
        query = []
        for parameter in parameters:
            name, schema = parameter["name"], parameter["schema"]
            if parameter["in"] == "path":
                is_there = name in known and self._random.random() < 0.85
                text = known[name] if is_there else str(self.value(schema) or "x")
                path = path.replace(f"{{{name}}}", quote(text, safe=""))
            elif self._random.random() < 0.6:
                query.append((name, str(self.value(schema)).lower()))
        return f"{path}?{urlencode(query)}" if query else path
