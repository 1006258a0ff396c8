"""A span as a run of the wire."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from apps.ingest.otlp import ids, messages, rules
from apps.ingest.otlp.extra import extra_of
from apps.ingest.otlp.flattened import nested
from apps.ingest.otlp.payloads import SHAPES, parsed
from apps.ingest.otlp.spans import ERROR, OK, Event, Span
from apps.ingest.wire import WireRun

_encode = msgspec.json.Encoder().encode


class Reading:
    """A span's attributes, and which of them found their place."""

    __slots__ = ("attributes", "flat", "rows", "used")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self.used: set[str] = set()
        self.flat: dict[str, dict[str, Any]] = {}
        self.rows: set[str] = {rules.TOOL_NAME}
        for key, value in attributes.items():
            if key in rules.ROW_OF:
                self.rows |= rules.ROW_OF[key]
            elif key.startswith(rules.FLATTENED):
                prefix = next(one for one in rules.FLATTENED if key.startswith(one))
                self.flat.setdefault(prefix, {})[key[len(prefix) :]] = value

    def first(self, names: Sequence[str]) -> Any:
        """The value of the first name that is there; the same under other names is taken too."""
        found = None
        if names[0] not in self.rows:
            return None
        for name in names:
            value = self.attributes.get(name)
            if value is None or value == "":
                continue
            if found is None:
                found = value
            if value == found:
                self.used.add(name)
        return found

    def take(self, name: str) -> Any:
        """The value of an attribute, or all that is flattened under a prefix."""
        if name[-1] == ".":
            flat = self.flat.get(name)
            return None if flat is None else nested(flat)
        return self.attributes.get(name)

    def use(self, name: str) -> None:
        if name[-1] == ".":
            self.used.update(name + rest for rest in self.flat.get(name, ()))
        else:
            self.used.add(name)


def run_of(span: Span) -> WireRun:
    """The run in a span: all but its ids, place and project."""
    reading = Reading(span.attributes)
    start = ids.moment(span.start_ns or span.end_ns)
    kind = _kind(reading)
    events = list(span.events)
    run = WireRun(
        name=_name(reading, span, kind),
        run_type=kind,
        start_time=start.isoformat(),
        end_time=ids.moment(span.end_ns).isoformat() if span.end_ns else None,
        tags=_tags(reading),
        reference_example_id=_example(reading),
    )
    inputs = _payload(reading, rules.INPUTS)
    outputs = _payload(reading, rules.OUTPUTS)
    inputs, outputs, events = _from_events(events, inputs, outputs)
    inputs = _with_instructions(reading, inputs)
    if inputs is not None:
        run.inputs = msgspec.Raw(_encode(inputs))
    if outputs is not None:
        run.outputs = msgspec.Raw(_encode(outputs))
    error = _error(span, events)
    if error is not None:
        run.error = msgspec.Raw(_encode(error))
    told = [_event(event, start) for event in events]
    told += _first_token(reading, span)
    if told:
        run.events = msgspec.Raw(_encode(told))
    run.extra = extra_of(span, reading, kind)
    return run


def _kind(reading: Reading) -> str:
    attributes = reading.attributes
    for name, kinds in rules.KINDS.items():
        value = attributes.get(name)
        if isinstance(value, str) and value:
            kind = kinds.get(value) or kinds.get(value.lower()) or kinds.get("*")
            if kind is not None:
                return kind
    for name, kind in rules.KIND_IF_PRESENT:
        if name in attributes:
            return kind
    return "chain"


def _name(reading: Reading, span: Span, kind: str) -> str:
    name = reading.first(rules.NAME)
    if not isinstance(name, str) and kind == "tool":
        name = reading.first((rules.TOOL_NAME,))
    return name if isinstance(name, str) and name else span.name or "span"


def _tags(reading: Reading) -> list[Any] | None:
    found = reading.first(rules.TAGS)
    if isinstance(found, str):
        value = parsed(found)
        found = value if isinstance(value, list) else found.split(",")
    if not isinstance(found, list):
        return None
    if reading.attributes.get(rules.TAGS[1]) == found:  # the same tags in the other form
        reading.used.add(rules.TAGS[1])
    return [tag.strip() if isinstance(tag, str) else tag for tag in found if tag != ""]


def _example(reading: Reading) -> uuid.UUID | None:
    for name in rules.REFERENCE_EXAMPLE:
        if (found := uuid_of(reading.attributes.get(name))) is not None:
            reading.used.add(name)
            return found
    return None


def uuid_of(value: Any) -> uuid.UUID | None:
    try:
        return uuid.UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _payload(reading: Reading, sources: Iterable[tuple[str, str]]) -> Any:
    attributes, flat = reading.attributes, reading.flat
    for name, form in sources:
        if name not in attributes and name not in flat:
            continue
        value = reading.take(name)
        if value is None or value == "":
            continue
        if name[-1] == "." and not isinstance(value, list):
            continue
        found = SHAPES[form](value)
        if found is None:
            continue
        if form not in rules.PARTLY:
            reading.use(name)
        reading.used.update(rules.MIME_TYPES)
        return found
    return None


def _with_instructions(reading: Reading, inputs: Any) -> Any:
    """The system's instructions stand beside the messages: they go before them."""
    instructions = reading.attributes.get(rules.SYSTEM_INSTRUCTIONS)
    if instructions is None:
        return inputs
    said = messages.system(parsed(instructions))
    if inputs is None:
        reading.use(rules.SYSTEM_INSTRUCTIONS)
        return {"messages": said}
    if isinstance(inputs, dict) and isinstance(inputs.get("messages"), list):
        reading.use(rules.SYSTEM_INSTRUCTIONS)
        if inputs["messages"][:1] == said:
            return inputs
        return {**inputs, "messages": said + inputs["messages"]}
    return inputs


def _from_events(events: list[Event], inputs: Any, outputs: Any) -> tuple[Any, Any, list[Event]]:
    """What the older conventions say by events, where attributes say nothing."""
    asked: list[Any] = []
    answered: list[Any] = []
    rest: list[Event] = []
    for event in events:
        content = _content_of(event, asks=inputs is None, answers=outputs is None)
        if content is not None:
            inputs, outputs = (inputs or content[0]), (outputs or content[1])
            continue
        message = messages.of_event(event.name, event.attributes)
        is_answer = messages.is_answer(event.name)
        if message is None or (outputs if is_answer else inputs) is not None:
            rest.append(event)
        else:
            (answered if is_answer else asked).append(message)
    if asked:
        inputs = {"messages": asked}
    if answered:
        outputs = {"messages": answered}
    return inputs, outputs, rest


def _content_of(event: Event, *, asks: bool, answers: bool) -> tuple[Any, Any] | None:
    """`gen_ai.content.prompt`, `gen_ai.content.completion` and the details of an inference."""
    if event.name == "gen_ai.content.prompt" and asks:
        return _shaped("object", event.attributes.get("gen_ai.prompt")), None
    if event.name == "gen_ai.content.completion" and answers:
        return None, _shaped("output", event.attributes.get("gen_ai.completion"))
    if event.name == "gen_ai.client.inference.operation.details" and (asks or answers):
        asked = _shaped("parts", event.attributes.get("gen_ai.input.messages"))
        said = messages.system(parsed(event.attributes.get(rules.SYSTEM_INSTRUCTIONS)))
        if said and isinstance(asked, dict):
            asked["messages"] = said + asked["messages"]
        return asked, _shaped("parts", event.attributes.get("gen_ai.output.messages"))
    return None


def _shaped(form: str, value: Any) -> Any:
    return None if value is None else SHAPES[form](value)


def _error(span: Span, events: list[Event]) -> str | None:
    exception = next((one for one in events if one.name == "exception"), None)
    if span.status_code == OK or (span.status_code != ERROR and exception is None):
        return None
    if exception is None:
        return span.status_message or "error"
    said = exception.attributes
    text = str(said.get("exception.message") or span.status_message or said.get("exception.type"))
    trace = said.get("exception.stacktrace")
    # The SDK's exporter wraps the run's own text, trace and all, in an exception.
    if isinstance(trace, str) and trace and not span.origin.is_sdk and trace != text:
        return trace if text in trace[: len(text)] else f"{text}\n\n{trace}"
    return text


def _event(event: Event, start: datetime) -> dict[str, Any]:
    time = ids.moment(event.time_ns) if event.time_ns else start
    found: dict[str, Any] = {"name": event.name, "time": time.isoformat()}
    if event.attributes:
        found["kwargs"] = event.attributes
    return found


def _first_token(reading: Reading, span: Span) -> list[dict[str, Any]]:
    """An event of the first token, from how long it took."""
    for name, unit in rules.FIRST_TOKEN.items():
        value = reading.attributes.get(name)
        if isinstance(value, int | float) and 0 <= value * unit < 2**50:
            time = ids.moment(span.start_ns + int(value * unit))
            return [{"name": "new_token", "time": time.isoformat(), "kwargs": {name: value}}]
    return []
