"""What one operation says about its run, in the words of the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import orjson

from apps.core.json import dumps, storable
from apps.ingest.previews import one_line, preview
from apps.ingest.token_usage import usage_columns
from apps.ingest.wire import NOTHING, Refusal, WireRun, moment
from apps.trace_store.dotted_order import Misplaced, Place, place_of
from apps.trace_store.json_repair import repair
from apps.trace_store.pricing.costs import NamedModel
from apps.trace_store.store.types import Attachment, Payload, RunType
from apps.trace_store.store.writing import Content

RUN_TYPES = frozenset(str(kind) for kind in RunType)
THREAD_KEYS = ("session_id", "conversation_id", "thread_id")
MODEL_KEYS = ("model", "model_name", "model_id", "model_path", "endpoint_name")
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])

Price = Callable[[NamedModel, dict[str, Any], dict[str, Any]], None]
"""Puts costs into columns, and what kinds of tokens cost into the details of the usage."""


@dataclass(slots=True)
class Operation:
    """A run's beginning (or whole), or an update of it."""

    is_update: bool
    run: WireRun
    run_id: UUID
    place: Place | None
    content: Content


def read_operation(
    run: WireRun,
    *,
    is_update: bool,
    attachments: dict[str, Attachment] | None = None,
    price: Price | None = None,
) -> Operation:
    """The operation in a run of the wire; `Refusal` when the run makes no sense.

    `price` puts costs beside tokens whose cost the client does not tell.
    """
    if run.id is None:
        raise Refusal("`id` is missing.", "no_id")
    if not is_update:
        if not run.name:
            raise Refusal("`name` is missing.")
        if run.run_type is None:
            raise Refusal("`run_type` is missing.")
    if run.run_type is not None and run.run_type not in RUN_TYPES:
        known = ", ".join(sorted(RUN_TYPES))
        raise Refusal(f"`run_type` is {run.run_type!r:.60}, not one of {known}.", "bad_run_type")
    try:
        content = _content(run, attachments or {}, price)
    except (RecursionError, orjson.JSONEncodeError):
        raise Refusal("The run is nested too deeply.", "too_deep") from None
    return Operation(is_update, run, run.id, _place(run), content)


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
        raise MisplacedRun(str(error), "misplaced") from None


class MisplacedRun(Refusal):
    """The dotted order contradicts the ids; alone in a request it answers 400, not 422."""


def _content(run: WireRun, attachments: dict[str, Attachment], price: Price | None) -> Content:
    payloads: dict[Payload, bytes] = {}
    inputs = _payload(payloads, Payload.INPUTS, run.inputs)
    outputs = _payload(payloads, Payload.OUTPUTS, run.outputs)
    events = _payload(payloads, Payload.EVENTS, run.events)
    error = _payload(payloads, Payload.ERROR, run.error)
    _payload(payloads, Payload.SERIALIZED, run.serialized)
    invocation, metadata, metadata_json = _extra(payloads, run.extra)

    columns: dict[str, Any] = {
        "name": _stored(run.name),
        "run_type": run.run_type,
        "start_time": moment(run.start_time, "start_time"),
        "end_time": moment(run.end_time, "end_time"),
        "reference_example_id": run.reference_example_id,
        **usage_columns(run.run_type, outputs, metadata),
    }
    if run.tags is not None:
        columns["tags"] = [_stored(_as_text(tag)) for tag in run.tags]
    if inputs is not None:
        columns["inputs_preview"] = preview(inputs, payloads[Payload.INPUTS])
    if outputs is not None:
        columns["outputs_preview"] = preview(outputs, payloads[Payload.OUTPUTS])
    if error is not None:
        columns["error_preview"] = one_line(_as_text(error))
    if events is not None:
        columns["first_token_time"] = _first_token_time(events)
    if metadata or invocation:
        columns["thread_key"] = _thread_key(metadata)
        columns["model"] = _model(metadata, invocation)
    if price is not None and "total_tokens" in columns:
        details = columns.pop("usage_details", {})
        price(_named_model(metadata, invocation), columns, details)
        if details:
            columns["usage_details"] = details
    if "usage_details" in columns:
        columns["usage_details"] = storable(dumps(columns["usage_details"]))
    said = {name: value for name, value in columns.items() if value is not None}
    return Content(said, metadata_json, payloads, attachments)


def _payload(payloads: dict[Payload, bytes], payload: Payload, raw: msgspec.Raw) -> Any:
    """Keep the JSON as it came and return its value; null and absent are the same."""
    if raw is NOTHING:
        return None
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
            raise Refusal(f"`{payload}` is not JSON: {error}", "not_json") from None
    payloads[payload] = text
    return value


def _extra(
    payloads: dict[Payload, bytes], raw: msgspec.Raw
) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Split `extra`: metadata is searched and merged key by key, the rest is a payload.

    Returns the invocation parameters, and the metadata as values and as JSON; nothing is empty.
    """
    value = _payload(payloads, Payload.EXTRA, raw)
    if not isinstance(value, dict):
        return {}, {}, b""
    metadata, metadata_json = value.get("metadata"), b""
    if isinstance(metadata, dict):
        rest: dict[str, msgspec.Raw] = _objects.decode(payloads.pop(Payload.EXTRA))
        metadata_json = bytes(rest.pop("metadata")) if metadata else b""
        orjson.dumps(metadata)  # refuses a depth that jsonb should not be asked to hold
        if rest:
            payloads[Payload.EXTRA] = msgspec.json.encode(rest)
    invocation = value.get("invocation_params")
    return (
        invocation if isinstance(invocation, dict) else {},
        metadata if isinstance(metadata, dict) else {},
        metadata_json,
    )


def _stored(text: str | None) -> str | None:
    return text.replace("\x00", "\ufffd") if text else text


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _thread_key(metadata: dict[str, Any]) -> str | None:
    for key in THREAD_KEYS:
        if (found := metadata.get(key)) is not None:
            return _stored(_as_text(found))
    return None


def _named_model(metadata: dict[str, Any], invocation: dict[str, Any]) -> NamedModel:
    told = {"ls_model_name": metadata.get("ls_model_name")}
    told |= {key: invocation.get(key) for key in MODEL_KEYS}
    provider = metadata.get("ls_provider")
    return NamedModel(
        {key: name for key, name in told.items() if isinstance(name, str) and name},
        provider if isinstance(provider, str) else None,
    )


def _model(metadata: dict[str, Any], invocation: dict[str, Any]) -> str | None:
    if isinstance(named := metadata.get("ls_model_name"), str) and named:
        return _stored(named)
    for key in MODEL_KEYS if invocation else ():
        if isinstance(named := invocation.get(key), str) and named:
            return _stored(named)
    return None


def _first_token_time(events: Any) -> Any:
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("name") == "new_token":
            time = event.get("time")
            try:
                return moment(time, "time") if isinstance(time, str | int | float) else None
            except Refusal:
                return None
    return None
