"""The schemas of a dataset: checked when they are set, and applied to every example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import (  # type: ignore[import-untyped]
    SchemaError,
    ValidationError,
)
from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped]
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT202012

from apps.core.json import dumps_text, loads
from apps.core.linear_regex import compile_pattern
from apps.datasets import errors
from apps.datasets.models import Dataset
from apps.datasets.services.source_runs import SourceRun
from apps.datasets.services.transformations import transform
from apps.datasets.wire import parse_object
from apps.tracing import message_schemas

MAX_STEPS = 1_000_000
"""Rules that a check of one value applies, a few seconds."""
_PAIRS_OF_A_STEP = 20
_MAX_REFERENCES_WITH_UNEVALUATED = 16
_PREBUILT = {
    "/public/schemas/v1/message.json": message_schemas.message_schema,
    "/public/schemas/v1/tooldef.json": message_schemas.tool_schema,
}


def check_schema(schema: dict[str, Any], field: str) -> None:
    """Raise `SchemaRefused` unless the schema is a valid JSON Schema with known references."""
    try:
        validator = _validator(dumps_text(schema))
        type(validator).check_schema(schema)
        root = Resource.from_contents(schema, default_specification=DRAFT202012)
        resolver = _REGISTRY.resolver_with_root(root)
        references = list(_references(schema))
        for reference in references:
            resolver.lookup(reference)
        # The search for evaluated properties follows each reference, and counts no steps.
        has_unevaluated = any(
            keyword.startswith("unevaluated") for node in _objects(schema) for keyword in node
        )
        if has_unevaluated and len(references) > _MAX_REFERENCES_WITH_UNEVALUATED:
            raise ValueError(
                "next to `unevaluatedProperties` or `unevaluatedItems` a schema has at most"
                f" {_MAX_REFERENCES_WITH_UNEVALUATED} references."
            )
        for pattern in _patterns(schema):
            compile_pattern(pattern)
    except SchemaError as error:
        path = ".".join(map(str, error.absolute_path))
        detail = f"`{field}` is not a valid JSON Schema: {error.message:.300}"
        raise errors.SchemaRefused(detail, [{"field": field, "path": path}]) from None
    except Unresolvable as error:
        raise errors.SchemaRefused(
            f"`{field}` refers to {error.ref!r}, which is not in the schema; of other schemas only"
            " /public/schemas/v1/message.json and /public/schemas/v1/tooldef.json are known."
        ) from None
    except (ValueError, RecursionError) as error:
        raise errors.SchemaRefused(f"`{field}` cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class CheckedExample:
    """The JSON to store, and the violations of the schemas as `{"field", "message"}`."""

    inputs: str
    outputs: str | None
    problems: list[dict[str, Any]]


def check_example(
    dataset: Dataset,
    inputs: msgspec.Raw,
    outputs: msgspec.Raw,
    run: SourceRun | None = None,
) -> CheckedExample:
    """Parse the JSON, apply the dataset's transformations, and validate the result.

    JSON that no transformation changes is stored as it was sent. Raises `Invalid` for JSON that is
    not an object.
    """
    parsed_inputs, parsed_outputs = parse_object(inputs, "inputs"), parse_object(outputs, "outputs")
    if parsed_inputs is None:
        return CheckedExample(
            "{}", None, [{"field": "inputs", "message": "The field is required."}]
        )
    if dataset.transformations:
        parsed_inputs, parsed_outputs = transform(dataset, parsed_inputs, parsed_outputs, run)
        stored_inputs = dumps_text(parsed_inputs)
        stored_outputs = None if parsed_outputs is None else dumps_text(parsed_outputs)
    else:
        stored_inputs = bytes(inputs).decode()
        stored_outputs = None if parsed_outputs is None else bytes(outputs).decode()
    violations = _find_problems(dataset, parsed_inputs, parsed_outputs)
    problems = list(islice(violations, errors.MAX_PROBLEMS))
    return CheckedExample(stored_inputs, stored_outputs, problems)


def _find_problems(dataset: Dataset, inputs: Any, outputs: Any) -> Iterator[dict[str, Any]]:
    """Yield the violations of the dataset's schemas as `{"field", "message"}`.

    An example without outputs, which are optional, has none to check.
    """
    checked = (
        ("inputs", dataset.inputs_schema, inputs),
        ("outputs", dataset.outputs_schema, outputs),
    )
    for name, schema, value in checked:
        if schema is None or value is None:
            continue
        for violation in find_violations(schema, value):
            yield {"field": f"{name}{violation.path}", "message": violation.message}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of a schema that a value breaks."""

    path: str
    """Such as `.items[0].id`; empty for the value itself."""
    rule: str
    """The keyword of the schema; empty if the value could not be checked."""
    message: str


def find_violations(schema: dict[str, Any], value: Any) -> Iterator[Violation]:
    """Yield the rules of a checked schema that the value breaks.

    References may repeat a part of the schema exponentially often, so the steps are counted.
    """
    _steps.set([MAX_STEPS])
    try:
        for error in _validator(dumps_text(schema)).iter_errors(value):
            path = "".join(
                f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
            )
            yield Violation(path, str(error.validator or ""), error.message[:300])
    except RecursionError:
        yield Violation("", "", "The value or the schema is nested too deeply.")
    except _TooManySteps:
        yield Violation("", "", f"The check takes more than {MAX_STEPS} steps.")
    except Unresolvable as error:
        yield Violation("", "", f"The schema refers to the unknown {error.ref!r:.100}.")


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    schema = loads(schema_text)
    base = validator_for(schema, default=Draft202012Validator)
    linear = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    keywords = {name: _counted(check) for name, check in (base.VALIDATORS | linear).items()}
    keywords["uniqueItems"] = _charged_by_pairs(keywords["uniqueItems"])
    return extend(base, keywords)(schema, registry=_REGISTRY)


class _TooManySteps(Exception):
    """The check of a value takes more than `MAX_STEPS`."""


_steps: ContextVar[list[int]] = ContextVar("steps")
"""The steps that are left of a check."""
_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


def _charge(steps: int) -> None:
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise _TooManySteps


def _counted(keyword: _Keyword) -> _Keyword:
    def check(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _charge(1)
        yield from keyword(validator, rule, instance, schema) or ()

    return check


def _charged_by_pairs(unique_items: _Keyword) -> _Keyword:
    """Objects and lists are compared in pairs."""

    def check(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, list) and any(isinstance(item, dict | list) for item in instance):
            _charge(len(instance) ** 2 // _PAIRS_OF_A_STEP)
        yield from unique_items(validator, rule, instance, schema) or ()

    return check


def _retrieve(uri: str) -> Resource[Any]:
    """Return a prebuilt schema of any host; nothing is fetched."""
    for path, build in _PREBUILT.items():
        if uri.endswith(path):
            return Resource.from_contents(loads(build()), default_specification=DRAFT202012)
    raise NoSuchResource(uri)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """`pattern` in time linear in the text, as both are of users."""
    if validator.is_type(instance, "string") and not compile_pattern(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, properties: dict[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in properties.items():
        expression = compile_pattern(pattern)
        for name, value in instance.items():
            if expression.search(name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, subschema: Any, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    expressions = [compile_pattern(text) for text in schema.get("patternProperties", ())]
    known = schema.get("properties", {})
    for name, value in instance.items():
        if name in known or any(expression.search(name) for expression in expressions):
            continue
        if subschema is False:
            yield ValidationError(f"{name!r} is not a property of the schema")
        else:
            yield from validator.descend(value, subschema, path=name)


_REGISTRY: Any = Registry(retrieve=_retrieve)  # type: ignore[call-arg]


def _references(schema: Any) -> Iterator[str]:
    for node in _objects(schema):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference


def _patterns(schema: Any) -> Iterator[str]:
    for node in _objects(schema):
        if "unevaluatedProperties" in node and "patternProperties" in node:
            raise ValueError("`unevaluatedProperties` with `patternProperties` is not supported.")
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        if isinstance(node.get("patternProperties"), dict):
            yield from node["patternProperties"]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from _objects(member)
    elif isinstance(value, list):
        for member in value:
            yield from _objects(member)
