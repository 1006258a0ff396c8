"""`extra` of a run from a span: parameters, metadata, usage, and what has no place elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from apps.ingest.otlp import rules
from apps.ingest.otlp.flattened import nested
from apps.ingest.otlp.payloads import parsed
from apps.ingest.otlp.spans import Origin, Span

if TYPE_CHECKING:
    from apps.ingest.otlp.mapping import Reading

_encode = msgspec.json.Encoder().encode
_SHORT = 1000
"""Texts of metadata are looked through word by word; longer ones are kept beside it."""
_THREADS = ("session_id", "conversation_id", "thread_id")
_SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_OWN = frozenset(
    {
        *rules.KINDS,
        *rules.PROJECT_ID,
        *rules.PROJECT,
        rules.RUN_ID,
        rules.TRACE_ID,
        rules.DOTTED_ORDER,
        rules.PARENT_ID,
        rules.IS_ROOT,
        rules.IS_TRACEABLE,
        rules.PARENT_SPAN,
    }
)
"""What the run's own fields say; kinds stay, because several names of a kind are one of ours."""


def extra_of(span: Span, reading: Reading, kind: str) -> msgspec.Raw:
    metadata = _metadata(reading)
    parameters = _parameters(reading)
    _thread(reading, metadata)
    _model(reading, metadata)
    usage = _usage(reading)
    if usage and "usage_metadata" not in metadata:
        metadata["usage_metadata"] = usage
    extra: dict[str, Any] = {}
    if parameters:
        extra["invocation_params"] = parameters
    runtime = reading.attributes.get(rules.RUNTIME)
    if runtime is not None:
        reading.use(rules.RUNTIME)
        extra["runtime"] = parsed(runtime)
    for name, key in rules.EXTRA.items():
        if (value := reading.attributes.get(name)) is not None:
            reading.use(name)
            extra[key] = parsed(value)
    long = _rest(reading, metadata)
    service = span.origin.resource.get("service.name")
    if isinstance(service, str):
        metadata.setdefault("service.name", service[:_SHORT])
    extra["otel"] = _otel(span, long)
    if metadata:
        extra["metadata"] = metadata
    return msgspec.Raw(_encode(extra))


def _metadata(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {}
    said = reading.attributes.get(rules.METADATA_OBJECT)
    if said is not None and isinstance(value := parsed(said), dict):
        reading.use(rules.METADATA_OBJECT)
        found |= value
    for prefix in rules.METADATA_PREFIXES:
        flat = reading.flat.get(prefix)
        if flat:
            reading.use(prefix)
            found |= {key: parsed(value) for key, value in flat.items()}
    return found


def _parameters(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in rules.PARAMETER_OBJECTS:
        said = reading.attributes.get(name)
        if said is not None and isinstance(value := parsed(said), dict):
            reading.use(name)
            found |= value
    for key, names in rules.PARAMETERS.items():
        value = reading.first(names)
        if value is not None:
            found[key] = parsed(value)
    for prefix in rules.TOOL_LISTS:
        if "tools" not in found and prefix in reading.flat:
            value = nested(reading.flat[prefix])
            if isinstance(value, list):
                reading.use(prefix)
                found["tools"] = [_tool(one) for one in value]
    return found


def _tool(tool: Any) -> Any:
    """A tool's definition out of its wrappers."""
    inner = tool.get("tool", tool) if isinstance(tool, dict) else tool
    if isinstance(inner, dict) and set(inner) == {"json_schema"}:
        return parsed(inner["json_schema"])
    if isinstance(inner, dict):
        return {key: parsed(value) for key, value in inner.items()}
    return inner


def _thread(reading: Reading, metadata: dict[str, Any]) -> None:
    found = reading.first(rules.THREAD)
    if found is not None and all(metadata.get(key) is None for key in _THREADS):
        metadata["thread_id"] = found
        return
    if found is not None and found not in (metadata.get(key) for key in _THREADS):
        reading.used.difference_update(rules.THREAD)


def _model(reading: Reading, metadata: dict[str, Any]) -> None:
    provider = reading.first(rules.PROVIDER)
    if isinstance(provider, str):
        metadata.setdefault(
            "ls_provider", rules.PROVIDER_NAMES.get(provider.lower(), provider.lower())
        )
    model = reading.first(rules.MODEL)
    if isinstance(model, str):
        metadata.setdefault("ls_model_name", model)


def _usage(reading: Reading) -> dict[str, Any] | None:
    attributes = reading.attributes
    for name in rules.USAGE_OBJECT:
        value = parsed(attributes.get(name))
        if isinstance(value, dict) and value:
            reading.use(name)
            return value
    found: dict[str, Any] = {}
    for key, names in rules.USAGE.items():
        value = reading.first(names)
        # A cost of nothing is what libraries write that do not know the price.
        is_told = bool(value) or not key.endswith("_cost")
        if is_told and isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = value
    for name, key in rules.USAGE_DETAIL_OBJECTS.items():
        value = _details(attributes.get(name))
        if value:
            reading.use(name)
            found[key] = value
    for (key, detail), names in rules.USAGE_DETAILS.items():
        value = reading.first(names)
        if isinstance(value, int | float) and value:
            found.setdefault(key, {}).setdefault(detail, value)
    return found or None


def _details(value: Any) -> dict[str, Any] | None:
    """An object in JSON; older Python exporters wrote it as Python does."""
    found = parsed(value)
    if isinstance(found, str) and found.startswith("{") and len(found) < _SHORT:
        try:
            found = ast.literal_eval(found)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _rest(reading: Reading, metadata: dict[str, Any]) -> dict[str, Any]:
    """Attributes without a rule: short ones become metadata, where filters see them."""
    long: dict[str, Any] = {}
    used = reading.used
    for key, value in reading.attributes.items():
        if key in used or key in _OWN:
            if key in rules.KINDS:
                metadata.setdefault(key, value)
            continue
        short = isinstance(value, bool | int | float) or (
            isinstance(value, str) and len(value) <= _SHORT
        )
        is_spoken = key in rules.SPOKEN or key.startswith(rules.FLATTENED)
        if short and not is_spoken and key not in metadata:
            metadata[key] = value
        else:
            long[key] = value
    return long


def _otel(span: Span, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What OpenTelemetry says of the span beside its attributes; ids as its tools show them."""
    found: dict[str, Any] = {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
    }
    if span.parent_span_id:
        found["parent_span_id"] = span.parent_span_id.hex()
    if span.kind:
        found["kind"] = _SPAN_KINDS[span.kind] if span.kind < len(_SPAN_KINDS) else span.kind
    if span.trace_state:
        found["trace_state"] = span.trace_state
    if span.status_message:
        found["status_message"] = span.status_message
    if span.links:
        found["links"] = [
            {
                "trace_id": link.trace_id.hex(),
                "span_id": link.span_id.hex(),
                "attributes": link.attributes,
            }
            | ({"trace_state": link.trace_state} if link.trace_state else {})
            for link in span.links
        ]
    names = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count")
    found |= {name: count for name, count in zip(names, span.dropped, strict=True) if count}
    if attributes:
        found["attributes"] = attributes
    found["resource"], found["scope"] = _origin(span.origin)
    return found


def _origin(origin: Origin) -> tuple[msgspec.Raw, msgspec.Raw]:
    if origin.encoded is None:
        scope: dict[str, Any] = {"name": origin.scope_name, "version": origin.scope_version}
        if origin.scope_attributes:
            scope["attributes"] = origin.scope_attributes
        if origin.schema_url:
            scope["schema_url"] = origin.schema_url
        origin.encoded = msgspec.Raw(_encode(origin.resource)), msgspec.Raw(_encode(scope))
    return origin.encoded
