"""Maps a span to a run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from apps.ingest.operations import WireRun
from apps.ingest.otlp import messages, rules
from apps.ingest.otlp.attributes import AttributeReader, parse_json, parse_uuid
from apps.ingest.otlp.payloads import CONVERTERS
from apps.ingest.otlp.run_extra import build_extra
from apps.ingest.otlp.spans import ERROR, OK, Span, SpanEvent, to_datetime
from apps.trace_store.run_status import Status, classify_error

_encode = msgspec.json.Encoder().encode


def map_span(span: Span) -> WireRun:
    """Map the span to a run without ids, tree position and project."""
    reader = AttributeReader(span.attributes)
    start = to_datetime(span.start_ns or span.end_ns)
    run_type = _find_run_type(reader)
    events = list(span.events)
    run = WireRun(
        name=_find_name(reader, span, run_type),
        run_type=run_type,
        start_time=start.isoformat(),
        end_time=to_datetime(span.end_ns).isoformat() if span.end_ns else None,
        tags=_read_tags(reader),
        reference_example_id=_read_reference_example(reader),
    )
    inputs = _read_payload(reader, rules.INPUTS)
    outputs = _read_payload(reader, rules.OUTPUTS)
    inputs, outputs, events = _take_from_events(events, inputs, outputs)
    inputs = _with_instructions(reader, inputs)
    if inputs is not None:
        run.inputs = msgspec.Raw(_encode(inputs))
    if outputs is not None:
        run.outputs = msgspec.Raw(_encode(outputs))
    error = _read_error(span, events)
    if error is not None:
        run.error = msgspec.Raw(_encode(error))
    run_events = [_map_event(event, start) for event in events]
    run_events += _first_token_event(reader, span)
    if run_events:
        run.events = msgspec.Raw(_encode(run_events))
    run.extra = build_extra(span, reader)
    return run


def _find_run_type(reader: AttributeReader) -> str:
    attributes = reader.attributes
    for name, run_types in rules.RUN_TYPES.items():
        value = attributes.get(name)
        if isinstance(value, str) and value:
            run_type = run_types.get(value) or run_types.get(value.lower()) or run_types.get("*")
            if run_type is not None:
                return run_type
    for name, run_type in rules.RUN_TYPE_IF_PRESENT:
        if name in attributes:
            return run_type
    return "chain"


def _find_name(reader: AttributeReader, span: Span, run_type: str) -> str:
    name = reader.first_value(rules.NAME)
    if not isinstance(name, str) and run_type == "tool":
        name = reader.first_value((rules.TOOL_NAME,))
    return name if isinstance(name, str) and name else span.name or "span"


def _read_tags(reader: AttributeReader) -> list[Any] | None:
    tags = reader.first_value(rules.TAGS)
    if isinstance(tags, str):
        value = parse_json(tags)
        tags = value if isinstance(value, list) else tags.split(",")
    if not isinstance(tags, list):
        return None
    if reader.attributes.get(rules.TAGS[1]) == tags:  # the same tags in the other form
        reader.used.add(rules.TAGS[1])
    return [tag.strip() if isinstance(tag, str) else tag for tag in tags if tag != ""]


def _read_reference_example(reader: AttributeReader) -> UUID | None:
    for name in rules.REFERENCE_EXAMPLE:
        if (example_id := parse_uuid(reader.attributes.get(name))) is not None:
            reader.used.add(name)
            return example_id
    return None


def _read_payload(reader: AttributeReader, sources: Iterable[tuple[str, str]]) -> Any:
    attributes, flat = reader.attributes, reader.flat
    for name, form in sources:
        if name not in attributes and name not in flat:
            continue
        value = reader.get(name)
        if value is None or value == "":
            continue
        if name[-1] == "." and not isinstance(value, list):
            continue
        payload = CONVERTERS[form](value)
        if payload is None:
            continue
        if form not in rules.PARTIAL_FORMS:
            reader.mark_used(name)
        reader.used.update(rules.MIME_TYPES)
        return payload
    return None


def _with_instructions(reader: AttributeReader, inputs: Any) -> Any:
    """Put system instructions, a separate attribute, before the messages."""
    instructions = reader.attributes.get(rules.SYSTEM_INSTRUCTIONS)
    if instructions is None:
        return inputs
    system = messages.from_system_instructions(parse_json(instructions))
    if inputs is None:
        reader.mark_used(rules.SYSTEM_INSTRUCTIONS)
        return {"messages": system}
    if isinstance(inputs, dict) and isinstance(inputs.get("messages"), list):
        reader.mark_used(rules.SYSTEM_INSTRUCTIONS)
        if inputs["messages"][:1] == system:
            return inputs
        return {**inputs, "messages": system + inputs["messages"]}
    return inputs


def _take_from_events(
    events: list[SpanEvent], inputs: Any, outputs: Any
) -> tuple[Any, Any, list[SpanEvent]]:
    """Take inputs and outputs that are not in attributes from events of older conventions.

    Returns inputs, outputs and the other events.
    """
    input_messages: list[Any] = []
    output_messages: list[Any] = []
    other_events: list[SpanEvent] = []
    for event in events:
        payloads = _read_event_payloads(
            event, needs_inputs=inputs is None, needs_outputs=outputs is None
        )
        if payloads is not None:
            inputs, outputs = (inputs or payloads[0]), (outputs or payloads[1])
            continue
        message = messages.from_event(event.name, event.attributes)
        is_output = messages.is_output_event(event.name)
        if message is None or (outputs if is_output else inputs) is not None:
            other_events.append(event)
        else:
            (output_messages if is_output else input_messages).append(message)
    if input_messages:
        inputs = {"messages": input_messages}
    if output_messages:
        outputs = {"messages": output_messages}
    return inputs, outputs, other_events


def _read_event_payloads(
    event: SpanEvent, *, needs_inputs: bool, needs_outputs: bool
) -> tuple[Any, Any] | None:
    """Inputs and outputs of events with whole messages; None for other events."""
    if event.name == "gen_ai.content.prompt" and needs_inputs:
        return _convert("object", event.attributes.get("gen_ai.prompt")), None
    if event.name == "gen_ai.content.completion" and needs_outputs:
        return None, _convert("output", event.attributes.get("gen_ai.completion"))
    if event.name == "gen_ai.client.inference.operation.details" and (
        needs_inputs or needs_outputs
    ):
        inputs = _convert("parts", event.attributes.get("gen_ai.input.messages"))
        system = messages.from_system_instructions(
            parse_json(event.attributes.get(rules.SYSTEM_INSTRUCTIONS))
        )
        if system and isinstance(inputs, dict):
            inputs["messages"] = system + inputs["messages"]
        return inputs, _convert("parts", event.attributes.get("gen_ai.output.messages"))
    return None


def _convert(form: str, value: Any) -> Any:
    return None if value is None else CONVERTERS[form](value)


def _read_error(span: Span, events: list[SpanEvent]) -> str | None:
    exception = next((event for event in events if event.name == "exception"), None)
    if span.status_code == OK or (span.status_code != ERROR and exception is None):
        return None
    attributes = span.attributes if exception is None else exception.attributes
    name = attributes.get("error.type" if exception is None else "exception.type")
    text = _error_text(span, exception)
    # The name of the exception tells control flow from a failure.
    is_control_flow = isinstance(name, str) and classify_error(name) is not Status.ERROR
    return f"{name}: {text}" if is_control_flow and classify_error(text) is Status.ERROR else text


def _error_text(span: Span, exception: SpanEvent | None) -> str:
    if exception is None:
        return span.status_message or "error"
    attributes = exception.attributes
    text = str(
        attributes.get("exception.message")
        or span.status_message
        or attributes.get("exception.type")
    )
    trace = attributes.get("exception.stacktrace")
    # The SDK exporter puts the error text of the run, with its stack trace, in an exception.
    if isinstance(trace, str) and trace and not span.source.is_sdk and trace != text:
        return trace if text in trace[: len(text)] else f"{text}\n\n{trace}"
    return text


def _map_event(event: SpanEvent, start: datetime) -> dict[str, Any]:
    time = to_datetime(event.time_ns) if event.time_ns else start
    # The name by which a run's first token is found.
    name = "new_token" if event.name == rules.FIRST_TOKEN_EVENT else event.name
    run_event: dict[str, Any] = {"name": name, "time": time.isoformat()}
    if event.attributes:
        run_event["kwargs"] = event.attributes
    return run_event


def _first_token_event(reader: AttributeReader, span: Span) -> list[dict[str, Any]]:
    """A `new_token` event from the time to the first token."""
    for name, unit in rules.FIRST_TOKEN.items():
        value = reader.attributes.get(name)
        if isinstance(value, int | float) and 0 <= value * unit < 2**50:
            time = to_datetime(span.start_ns + int(value * unit))
            return [{"name": "new_token", "time": time.isoformat(), "kwargs": {name: value}}]
    return []
