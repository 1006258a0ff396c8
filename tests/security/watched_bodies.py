"""Valid bodies of a route, found by watching its view read an empty one.

Serializers, msgspec types and Django's forms say what they accept; names that a view looks up in
plain JSON or in a form are noted, too. So new routes and fields are included automatically.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pydantic
import pytest
from django import forms
from django.http import QueryDict
from rest_framework import serializers

from apps.core import drf

Body = Any
"""JSON, or the fields of a form as a `dict` of text."""
MAX_DEPTH = 4
_TIME = "2026-01-01T00:00:00Z"
_URL = "https://93.184.216.34/hook"


def encode(body: Body) -> bytes:
    return json.dumps(body, default=str).encode()


class WatchedObject(dict[str, Any]):
    """A JSON object that notes which names are looked up in it."""

    def __init__(self, value: dict[str, Any], path: tuple[Any, ...], seen: Readings) -> None:
        super().__init__({name: watch(item, (*path, name), seen) for name, item in value.items()})
        self.path, self._seen = path, seen

    def _note(self, name: Any) -> None:
        if isinstance(name, str):
            self._seen.names.setdefault((self.path, name), None)

    def get(self, name: Any, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def pop(self, name: Any, *default: Any) -> Any:
        self._note(name)
        return super().pop(name, *default)

    def __getitem__(self, name: Any) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def __contains__(self, name: Any) -> bool:
        self._note(name)
        return super().__contains__(name)


def watch(value: Any, path: tuple[Any, ...], seen: Readings) -> Any:
    if isinstance(value, dict):
        return WatchedObject(value, path, seen)
    if isinstance(value, list):
        return [watch(item, (*path, index), seen) for index, item in enumerate(value)]
    return value


class Readings:
    """What a view has read of a body, with an example for each of its parts."""

    def __init__(self, known: dict[str, Any], body: Body = None) -> None:
        self._known = known
        self.raw = b"" if body is None else encode(body)
        self.body = json.loads(self.raw or "null")
        self.names: dict[tuple[tuple[Any, ...], str], None] = {}
        self.parts: list[tuple[tuple[Any, ...], Any]] = []
        """The place of each part that something describes, with a valid value."""
        self.form_fields: dict[str, Any] = {}
        """Text, or a list of texts, by name."""

    def add_type(self, kind: Any) -> None:
        """Note that the whole body is of this msgspec type."""
        schema = msgspec.json.schema(kind, schema_hook=lambda _: {})
        self.parts.append(((), self.of_schema(schema, schema.get("$defs", {}))))

    def complete(self, body: Body) -> Body:
        """Return the body with what was read and is missing in it."""
        for path, example in self.parts:
            body = _merge(body, path, example)
        for path, name in self.names:
            body = _merge(body, path, {name: self.guess(name)})
        return body

    def guess(self, name: str) -> Any:
        return self._known.get(name, "a")

    def guess_one(self, name: str, default: Any = "a") -> Any:
        """Return a value that is no list: of `run_ids`, one of `run_ids` or `run_id`."""
        value = self._known.get(name, self._known.get(name.removesuffix("s"), default))
        return value[0] if isinstance(value, list) else value

    # Each returns a valid value of a description.

    def of_serializer(self, field: Any, name: str = "", depth: int = 0) -> Any:
        match field:
            case serializers.ListSerializer() | serializers.ListField():
                return [self.of_serializer(field.child, name, depth + 1)]
            case serializers.Serializer() if depth < MAX_DEPTH:
                return {
                    key: self.of_serializer(inner, key, depth + 1)
                    for key, inner in field.fields.items()
                    if not inner.read_only
                }
            case serializers.DictField():
                return {"a": self.of_serializer(field.child, name, depth + 1)}
            case serializers.MultipleChoiceField():
                return list(field.choices)[:1]
            case serializers.ChoiceField():
                return next(iter(field.choices))
            case serializers.BooleanField():
                return True
            case serializers.IntegerField() | serializers.FloatField():
                return max(field.min_value or 1, 1)
            case serializers.DateTimeField():
                return _TIME
            case serializers.JSONField():
                return {"a": 1}
            case serializers.URLField():
                return _URL
            case serializers.EmailField():
                return "a@b.example"
            case serializers.UUIDField():
                return self.guess_one(name, self._known["id"])
        return self.guess_one(name)

    def of_schema(
        self, schema: dict[str, Any], definitions: dict[str, Any], name: str = "", depth: int = 0
    ) -> Any:
        if reference := schema.get("$ref"):
            schema = definitions[reference.rpartition("/")[2]]
        if depth > 2 * MAX_DEPTH:
            return None
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                kinds = [kind for kind in schema[keyword] if kind.get("type") != "null"]
                return self.of_schema(kinds[0], definitions, name, depth)
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "object":
                fields = {
                    key: self.of_schema(inner, definitions, key, depth + 1)
                    for key, inner in schema.get("properties", {}).items()
                }
                others = schema.get("additionalProperties")
                return fields or {"a": self.of_schema(others, definitions, name, depth + 1)
                                  if isinstance(others, dict) else 1}  # fmt: skip
            case "array":
                items = schema.get("items") or {}
                return [self.of_schema(items, definitions, name, depth + 1)]
            case "integer" | "number":
                return max(schema.get("minimum", 1), 1)
            case "boolean":
                return True
            case "string":
                return self._text(schema.get("format"), name)
        return {"a": 1}

    def _text(self, kind: str | None, name: str) -> Any:
        if kind == "uuid":
            return self.guess_one(name, self._known["id"])
        return _TIME if kind == "date-time" else self.guess_one(name)

    def of_form_field(self, field: forms.Field, name: str) -> Any:
        match field:
            case forms.ModelChoiceField():
                row = field.queryset.first()  # type: ignore[union-attr]
                return "" if row is None else str(row.pk)
            case forms.ChoiceField():
                values = [str(value) for value in _flat(field.choices) if value != ""]
                is_many = isinstance(field, forms.MultipleChoiceField)
                return values[:1] if is_many else next(iter(values), "")
            case forms.BooleanField():
                return "on"
            case forms.IntegerField():  # and its subclasses
                return str(max(int(field.min_value or 1), 1))
            case forms.URLField():
                return _URL
            case forms.EmailField():
                return "a@b.example"
            case forms.DateTimeField() | forms.DateField():
                return "2026-01-01"
            case forms.JSONField():
                return '{"a": 1}'
        value = self.guess(name)
        return value if isinstance(value, str) else json.dumps(value, default=str)


def _flat(choices: Any) -> Iterator[Any]:
    for value, label in choices:
        if isinstance(label, list | tuple):
            yield from _flat(label)
        else:
            yield value


def _merge(body: Body, path: tuple[Any, ...], example: Any) -> Body:
    """Return the body with the example at the path; values that are there already stay."""
    if path:
        head, *rest = path
        if isinstance(body, dict) and head in body:
            return body | {head: _merge(body[head], tuple(rest), example)}
        if isinstance(body, list) and isinstance(head, int) and head < len(body):
            item = _merge(body[head], tuple(rest), example)
            return [*body[:head], item, *body[head + 1 :]]
        return body
    if isinstance(body, dict) and isinstance(example, dict):
        return {
            name: _merge(body[name], (), value) if name in body else value
            for name, value in {**body, **example}.items()
        }
    return example if body in ({}, [{}]) else body


@contextmanager
def watching(seen: Readings) -> Iterator[None]:
    """Note in `seen` what views read of JSON bodies and of forms."""
    patch = pytest.MonkeyPatch()
    loads, decode, convert = drf.loads, msgspec.json.decode, msgspec.convert
    validate = pydantic.BaseModel.model_validate.__func__
    is_valid, full_clean = serializers.BaseSerializer.is_valid, forms.BaseForm.full_clean

    def watched_loads(text: bytes | str) -> Any:
        return watch(loads(text), (), seen)

    def watched_decode(text: Any, **options: Any) -> Any:
        kind = options.get("type")
        if kind is not None and seen.raw and bytes(text) == seen.raw:
            seen.add_type(kind)
        return decode(text, **options)

    def watched_convert(value: Any, kind: Any, **options: Any) -> Any:
        if isinstance(value, dict | list) and value == seen.body:
            seen.add_type(kind)
        return convert(value, kind, **options)

    def watched_validate(cls: Any, value: Any, *args: Any, **options: Any) -> Any:
        # Models of settings are validated, too.
        if cls.__module__.startswith("apps.agent_server.schemas") and value == seen.body:
            schema = cls.model_json_schema()
            seen.parts.append(((), seen.of_schema(schema, schema.get("$defs", {}))))
        return validate(cls, value, *args, **options)

    def watched_is_valid(self: Any, **options: Any) -> bool:
        data = getattr(self, "initial_data", None)
        if isinstance(data, WatchedObject):
            seen.parts.append((data.path, seen.of_serializer(self)))
        return is_valid(self, **options)

    def watched_full_clean(self: Any) -> None:
        if self.is_bound:
            for name, field in self.fields.items():
                seen.form_fields.setdefault(self.add_prefix(name), seen.of_form_field(field, name))
        full_clean(self)

    def watched_lookup(method: str) -> Callable[..., Any]:
        original = getattr(QueryDict, method)

        def lookup(self: QueryDict, name: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(name, str):
                guess = seen.guess(name)
                seen.form_fields.setdefault(name, guess if isinstance(guess, str) else str(guess))
            return original(self, name, *rest, **options)

        return lookup

    patch.setattr(drf, "loads", watched_loads)
    patch.setattr(msgspec.json, "decode", watched_decode)
    patch.setattr(msgspec, "convert", watched_convert)
    patch.setattr(pydantic.BaseModel, "model_validate", classmethod(watched_validate))
    patch.setattr(serializers.BaseSerializer, "is_valid", watched_is_valid)
    patch.setattr(forms.BaseForm, "full_clean", watched_full_clean)
    for method in ("get", "getlist", "__getitem__", "__contains__"):
        patch.setattr(QueryDict, method, watched_lookup(method))
    try:
        yield
    finally:
        patch.undo()


def find_json_body(send: Callable[[bytes], Any], known: dict[str, Any], rounds: int) -> Body:
    """Return a body with all fields that the route reads, valid ones where they are described.

    A field may be read only once others are valid: each round sends what the earlier ones found.
    """
    body: Body = {}
    for _ in range(rounds):
        seen = Readings(known, body)
        with watching(seen):
            send(seen.raw)
        completed = seen.complete(body)
        if completed == body:
            break
        body = completed
    return body


def find_form(
    send: Callable[[dict[str, Any]], Any], known: dict[str, Any], rounds: int
) -> dict[str, Any]:
    """Return the fields of a form that the route reads."""
    fields: dict[str, Any] = {}
    for _ in range(rounds):
        seen = Readings(known)
        with watching(seen):
            send(fields)
        if seen.form_fields.keys() <= fields.keys():
            break
        fields = seen.form_fields | fields
    return fields


def without_refused(
    body: Body, send: Callable[[Body], Any], max_removed: int = 8
) -> tuple[Body, list[str]]:
    """Return the object without the members that the route's errors name, and their names.

    `send` returns the error of a refused body, or None.
    """
    removed: list[str] = []
    value: Any = None
    while isinstance(body, dict) and len(removed) < max_removed:
        error = send(body)
        if error is None:
            break
        named = [str(problem.get("field", "")) for problem in error.get("errors") or []]
        words = re.findall(r"\w+", f"{' '.join(named)} {error.get('detail')}")
        if removed and removed[-1] in words:  # it is required
            return {**body, removed.pop(): value}, removed
        name = next((word for word in words if word in body), None)
        if name is None:
            break
        value = body[name]
        body = {key: item for key, item in body.items() if key != name}
        removed.append(name)
    return body, removed
