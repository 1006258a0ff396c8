"""Builds `extra` of a run: parameters, metadata, usage, and unmapped attributes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from apps.ingest.otlp import rules
from apps.ingest.otlp.attributes import AttributeReader, parse_json, unflatten
from apps.ingest.otlp.spans import Span, SpanSource
from apps.ingest.token_usage import ReportedUsage
from apps.ingest.token_usage.columns import fill_counts
from apps.ingest.token_usage.normal_form import CACHES, group_of
from apps.ingest.token_usage.vocabulary import COSTS, SCOPES_WITH_CACHE_OUTSIDE, NameRule

_encode = msgspec.json.Encoder().encode
_MAX_METADATA_LENGTH = 1000
"""Metadata is indexed; longer attributes are kept in `extra.otel`."""
_THREAD_KEYS = ("session_id", "conversation_id", "thread_id")
_SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_FIELD_ATTRIBUTES = frozenset(
    {
        *rules.RUN_TYPES,
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
"""Attributes that became fields of the run. Run types are kept, as their mapping is lossy."""


def build_extra(span: Span, reader: AttributeReader) -> msgspec.Raw:
    """Return `extra` as JSON, with the attributes that the reader has not marked as used."""
    metadata = _read_metadata(reader)
    parameters = _read_parameters(reader)
    _set_thread(reader, metadata)
    _set_model(reader, metadata)
    usage = _read_usage(reader, span.source.scope_name)
    if usage and "usage_metadata" not in metadata:
        metadata["usage_metadata"] = usage
    extra: dict[str, Any] = {}
    if parameters:
        extra["invocation_params"] = parameters
    runtime = reader.attributes.get(rules.RUNTIME)
    if runtime is not None:
        reader.mark_used(rules.RUNTIME)
        extra["runtime"] = parse_json(runtime)
    for name, key in rules.EXTRA.items():
        if (value := reader.attributes.get(name)) is not None:
            reader.mark_used(name)
            extra[key] = parse_json(value)
    unmapped = _collect_unmapped(reader, metadata)
    service = span.source.resource.get("service.name")
    if isinstance(service, str):
        metadata.setdefault("service.name", service[:_MAX_METADATA_LENGTH])
    extra["otel"] = _span_fields(span, unmapped)
    if metadata:
        extra["metadata"] = metadata
    return msgspec.Raw(_encode(extra))


def _read_metadata(reader: AttributeReader) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    text = reader.attributes.get(rules.METADATA_OBJECT)
    if text is not None and isinstance(value := parse_json(text), dict):
        reader.mark_used(rules.METADATA_OBJECT)
        metadata |= value
    for prefix in rules.METADATA_PREFIXES:
        flat = reader.flat.get(prefix)
        if flat:
            reader.mark_used(prefix)
            metadata |= {key: parse_json(value) for key, value in flat.items()}
    return metadata


def _read_parameters(reader: AttributeReader) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name in rules.PARAMETER_OBJECTS:
        text = reader.attributes.get(name)
        if text is not None and isinstance(value := parse_json(text), dict):
            reader.mark_used(name)
            parameters |= value
    for key, names in rules.PARAMETERS.items():
        value = reader.first_value(names)
        if value is not None:
            parameters[key] = parse_json(value)
    for prefix in rules.TOOL_LISTS:
        if "tools" not in parameters and prefix in reader.flat:
            value = unflatten(reader.flat[prefix])
            if isinstance(value, list):
                reader.mark_used(prefix)
                parameters["tools"] = [_unwrap_tool(item) for item in value]
    return parameters


def _unwrap_tool(tool: Any) -> Any:
    """The definition of a tool without the wrappers of OpenInference."""
    inner = tool.get("tool", tool) if isinstance(tool, dict) else tool
    if isinstance(inner, dict) and set(inner) == {"json_schema"}:
        return parse_json(inner["json_schema"])
    if isinstance(inner, dict):
        return {key: parse_json(value) for key, value in inner.items()}
    return inner


def _set_thread(reader: AttributeReader, metadata: dict[str, Any]) -> None:
    thread = reader.first_value(rules.THREAD)
    if thread is not None and all(metadata.get(key) is None for key in _THREAD_KEYS):
        metadata["thread_id"] = thread
        return
    if thread is not None and thread not in (metadata.get(key) for key in _THREAD_KEYS):
        reader.used.difference_update(rules.THREAD)


def _set_model(reader: AttributeReader, metadata: dict[str, Any]) -> None:
    provider = reader.first_value(rules.PROVIDER)
    if isinstance(provider, str):
        metadata.setdefault(
            "ls_provider", rules.PROVIDER_NAMES.get(provider.lower(), provider.lower())
        )
    model = reader.first_value(rules.MODEL)
    if isinstance(model, str):
        metadata.setdefault("ls_model_name", model)


def _read_usage(reader: AttributeReader, scope_name: str) -> dict[str, Any] | None:
    """The usage under the names of `usage_metadata`, with the counts as they were sent."""
    attributes = reader.attributes
    for name in rules.USAGE_OBJECT:
        value = parse_json(attributes.get(name))
        if isinstance(value, dict) and value:
            reader.mark_used(name)
            return value
    usage = _read_counts(reader, scope_name) if reader.usage else {}
    for name, key in rules.USAGE_DETAIL_OBJECTS.items():
        details = _parse_details(attributes.get(name))
        if details:
            reader.mark_used(name)
            usage[key] = {**usage.get(key, {}), **details}
    return usage or None


def _read_counts(reader: AttributeReader, scope_name: str) -> dict[str, Any]:
    attributes = reader.attributes
    chosen: dict[str, tuple[NameRule, Any]] = {}
    for rule, name in sorted(reader.usage, key=_rank) if len(reader.usage) > 1 else reader.usage:
        value = attributes[name]
        if rule.side == "known":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        # Libraries that do not know the price report a cost of 0.
        if rule.target not in chosen and (value or rule.side not in COSTS):
            chosen[rule.target] = rule, value
        if rule.target in chosen and chosen[rule.target][1] == value:
            reader.used.add(name)
    reported = ReportedUsage()
    fill_counts(reported, chosen.values())
    counts = reported.counts
    totals = {
        "input_tokens": counts.input,
        "output_tokens": counts.output,
        "total_tokens": counts.total,
    }
    usage = reported.costs | {key: count for key, count in totals.items() if count is not None}
    # `usage_metadata` has no name for the cached part of a modality.
    for modality, count in counts.cached.items():
        if modality in counts.input_kinds:
            counts.input_kinds[modality] = max(counts.input_kinds[modality] - count, 0)
    if counts.input is not None and _is_cache_outside(reader, chosen, scope_name):
        usage["input_tokens"] += sum(
            count for kind, count in counts.input_kinds.items() if group_of(kind) in CACHES
        )
        usage.pop("total_tokens", None)
    if counts.input_kinds:
        usage["input_token_details"] = counts.input_kinds
    if counts.output_kinds:
        usage["output_token_details"] = counts.output_kinds
    return usage


def _rank(item: tuple[NameRule, str]) -> int:
    return item[0].rank


def _is_cache_outside(
    reader: AttributeReader, chosen: Mapping[str, tuple[NameRule, Any]], scope_name: str
) -> bool:
    """Whether the input is known to exclude cached tokens, whatever the sent total is."""
    if scope_name in SCOPES_WITH_CACHE_OUTSIDE:
        return True
    vocabulary = chosen["input"][0].vocabulary if "input" in chosen else None
    if any(rule.is_outside and rule.vocabulary is vocabulary for rule, _ in chosen.values()):
        return True
    # AI SDK 5 adds no cached tokens to the input of these providers, version 6 does.
    provider = reader.attributes.get("ai.model.provider")
    return (
        isinstance(provider, str)
        and provider.startswith(("anthropic", "amazon-bedrock"))
        and "ai.usage.cachedInputTokens" in reader.attributes
        and "ai.usage.inputTokenDetails.noCacheTokens" not in reader.attributes
    )


def _parse_details(value: Any) -> dict[str, Any] | None:
    """An object in JSON, or in Python syntax as older Python exporters write it."""
    details = parse_json(value)
    if isinstance(details, str) and details.startswith("{") and len(details) < _MAX_METADATA_LENGTH:
        try:
            # Python syntax has values without JSON, such as sets and lone surrogates.
            details = orjson.loads(orjson.dumps(ast.literal_eval(details)))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
    return details if isinstance(details, dict) else None


def _collect_unmapped(reader: AttributeReader, metadata: dict[str, Any]) -> dict[str, Any]:
    """Put short attributes without a rule into metadata, where filters apply; return the others."""
    unmapped: dict[str, Any] = {}
    used = reader.used
    for key, value in reader.attributes.items():
        if key in used or key in _FIELD_ATTRIBUTES:
            if key in rules.RUN_TYPES:
                metadata.setdefault(key, value)
            continue
        is_short = isinstance(value, bool | int | float) or (
            isinstance(value, str) and len(value) <= _MAX_METADATA_LENGTH
        )
        is_payload = key in rules.PAYLOAD_ATTRIBUTES or key.startswith(rules.FLATTENED)
        if is_short and not is_payload and key not in metadata:
            metadata[key] = value
        else:
            unmapped[key] = value
    return unmapped


def _span_fields(span: Span, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The span without its mapped attributes, for `extra.otel`; ids in hexadecimal."""
    fields: dict[str, Any] = {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
    }
    if span.parent_span_id:
        fields["parent_span_id"] = span.parent_span_id.hex()
    if span.kind:
        # An enumeration in protobuf may have any number, also a negative one.
        is_known = 0 < span.kind < len(_SPAN_KINDS)
        fields["kind"] = _SPAN_KINDS[span.kind] if is_known else span.kind
    if span.trace_state:
        fields["trace_state"] = span.trace_state
    if span.status_message:
        fields["status_message"] = span.status_message
    if span.links:
        fields["links"] = [
            {
                "trace_id": link.trace_id.hex(),
                "span_id": link.span_id.hex(),
                "attributes": link.attributes,
            }
            | ({"trace_state": link.trace_state} if link.trace_state else {})
            for link in span.links
        ]
    names = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count")
    fields |= {name: count for name, count in zip(names, span.dropped, strict=True) if count}
    if attributes:
        fields["attributes"] = attributes
    fields["resource"], fields["scope"] = _encode_source(span.source)
    return fields


def _encode_source(source: SpanSource) -> tuple[msgspec.Raw, msgspec.Raw]:
    if source.encoded is None:
        scope: dict[str, Any] = {"name": source.scope_name, "version": source.scope_version}
        if source.scope_attributes:
            scope["attributes"] = source.scope_attributes
        if source.schema_url:
            scope["schema_url"] = source.schema_url
        source.encoded = msgspec.Raw(_encode(source.resource)), msgspec.Raw(_encode(scope))
    return source.encoded
