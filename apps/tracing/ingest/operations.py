"""What one operation says about its run, in the words of the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import orjson

from apps.core.json import dumps, storable
from apps.tracing.dotted_order import Misplaced, Place, place_of
from apps.tracing.ingest.json_repair import LONG_NUMBER, repair
from apps.tracing.ingest.previews import one_line, preview
from apps.tracing.ingest.usage import usage_columns
from apps.tracing.ingest.wire import Refusal, WireRun, moment
from apps.tracing.store.types import Attachment, Payload, RunType

RUN_TYPES = frozenset(str(kind) for kind in RunType)
THREAD_KEYS = ("session_id", "conversation_id", "thread_id")
MODEL_KEYS = ("model", "model_name", "model_id", "model_path", "endpoint_name")
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(slots=True)
class Content:
    """What is said about a run: only what is there, so that it can be laid over what is known."""

    columns: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, msgspec.Raw] = field(default_factory=dict)
    payloads: dict[Payload, bytes] = field(default_factory=dict)
    attachments: dict[str, Attachment] = field(default_factory=dict)

    def over(self, other: Content) -> Content:
        """Both, this one's word counting where they differ."""
        return Content(
            other.columns | self.columns,
            other.metadata | self.metadata,
            other.payloads | self.payloads,
            other.attachments | self.attachments,
        )


@dataclass(slots=True)
class Operation:
    """A run's beginning (or whole), or an update of it."""

    is_update: bool
    run: WireRun
    run_id: UUID
    place: Place | None
    content: Content


def read_operation(
    run: WireRun, *, is_update: bool, attachments: dict[str, Attachment] | None = None
) -> Operation:
    """The operation in a run of the wire; `Refusal` when the run makes no sense."""
    if run.id is None:
        raise Refusal("`id` is missing.")
    if not is_update:
        if not run.name:
            raise Refusal("`name` is missing.")
        if run.run_type is None:
            raise Refusal("`run_type` is missing.")
    if run.run_type is not None and run.run_type not in RUN_TYPES:
        known = ", ".join(sorted(RUN_TYPES))
        raise Refusal(f"`run_type` is {run.run_type!r:.60}, not one of {known}.")
    return Operation(is_update, run, run.id, _place(run), _content(run, attachments or {}))


def _place(run: WireRun) -> Place | None:
    if run.dotted_order is None or run.id is None:
        return None
    try:
        return place_of(
            run.dotted_order,
            run_id=run.id,
            trace_id=run.trace_id,
            parent_run_id=run.parent_run_id,
        )
    except Misplaced as error:
        raise MisplacedRun(str(error)) from None


class MisplacedRun(Refusal):
    """The dotted order contradicts the ids; alone in a request it answers 400, not 422."""


def _content(run: WireRun, attachments: dict[str, Attachment]) -> Content:
    content = Content(attachments=attachments)
    inputs = _payload(content, Payload.INPUTS, run.inputs)
    outputs = _payload(content, Payload.OUTPUTS, run.outputs)
    events = _payload(content, Payload.EVENTS, run.events)
    error = _payload(content, Payload.ERROR, run.error)
    _payload(content, Payload.SERIALIZED, run.serialized)
    invocation, metadata = _extra(content, run.extra)

    columns: dict[str, Any] = {
        "name": _stored(run.name),
        "run_type": run.run_type,
        "start_time": moment(run.start_time, "start_time"),
        "end_time": moment(run.end_time, "end_time"),
        "tags": None if run.tags is None else [_stored(_as_text(tag)) for tag in run.tags],
        "reference_example_id": run.reference_example_id,
        "inputs_preview": preview(inputs),
        "outputs_preview": preview(outputs),
        "error_preview": None if error is None else one_line(_as_text(error)),
        "first_token_time": _first_token_time(events),
        "thread_key": _thread_key(metadata),
        "model": _model(metadata, invocation),
        **usage_columns(run.run_type, outputs, metadata),
    }
    content.columns = {name: value for name, value in columns.items() if value is not None}
    if "usage_details" in content.columns:
        content.columns["usage_details"] = as_jsonb(content.columns["usage_details"])
    return content


def _payload(content: Content, payload: Payload, raw: msgspec.Raw) -> Any:
    """Keep the JSON as it came and return its value; null and absent are the same."""
    text = bytes(raw)
    if text in {b"", b"null"}:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            text = repair(text)
            value = orjson.loads(text)
        except ValueError as error:
            raise Refusal(f"`{payload}` is not JSON: {error}") from None
    content.payloads[payload] = text
    return value


def _extra(content: Content, raw: msgspec.Raw) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Split `extra`: metadata is searched and merged key by key, the rest is a payload.

    Returns the invocation parameters and the metadata.
    """
    value = _payload(content, Payload.EXTRA, raw)
    if not isinstance(value, dict):
        return {}, None
    text = content.payloads.pop(Payload.EXTRA)
    rest: dict[str, msgspec.Raw] = _objects.decode(text)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        content.metadata = _objects.decode(rest.pop("metadata"))
    if rest:
        content.payloads[Payload.EXTRA] = msgspec.json.encode(rest)
    invocation = value.get("invocation_params")
    return (
        invocation if isinstance(invocation, dict) else {},
        metadata if isinstance(metadata, dict) else None,
    )


def metadata_jsonb(metadata: dict[str, msgspec.Raw]) -> bytes | None:
    """Metadata as jsonb takes it, numbers of any length to the last digit."""
    if not metadata:
        return None
    text: bytes = msgspec.json.encode(metadata)
    if LONG_NUMBER.search(text):
        # Digits beyond 64 bits pass; exponents that jsonb cannot hold become null on the way.
        return b"\x01" + storable(repair(text))
    return b"\x01" + storable(orjson.dumps(orjson.loads(text)))


def as_jsonb(value: Any) -> bytes:
    """The value in the binary form of jsonb: a version, then the text."""
    return b"\x01" + storable(dumps(value))


def _stored(text: str | None) -> str | None:
    return text.replace("\x00", "\ufffd") if text else text


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def _thread_key(metadata: dict[str, Any] | None) -> str | None:
    for key in THREAD_KEYS if metadata else ():
        if metadata and metadata.get(key) is not None:
            return _stored(_as_text(metadata[key]))
    return None


def _model(metadata: dict[str, Any] | None, invocation: dict[str, Any]) -> str | None:
    candidates = [(metadata or {}).get("ls_model_name")]
    candidates += [invocation.get(key) for key in MODEL_KEYS]
    return next((_stored(c) for c in candidates if isinstance(c, str) and c), None)


def _first_token_time(events: Any) -> Any:
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("name") == "new_token":
            time = event.get("time")
            try:
                return moment(time, "time") if isinstance(time, str | int | float) else None
            except Refusal:
                return None
    return None
