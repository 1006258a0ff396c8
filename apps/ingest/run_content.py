"""Parses a run operation: validates the run and builds the content that the store writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from apps.core.json import dumps, storable
from apps.ingest.operations import (
    NO_PAYLOAD,
    DottedOrderContradiction,
    RejectedItem,
    RunOperation,
    WireRun,
    parse_timestamp,
)
from apps.ingest.previews import build_preview, one_line
from apps.ingest.token_usage import read_usage
from apps.trace_store import LIBRARY_GRAPH_NAME, Payload, RunType
from apps.trace_store.dotted_order import InvalidDottedOrder, TreePosition, parse_position
from apps.trace_store.json_repair import repair
from apps.trace_store.pricing.costs import ModelReference
from apps.trace_store.run_status import Status, classify_error, find_raised
from apps.trace_store.run_writes import RunContent

RUN_TYPES = frozenset(str(run_type) for run_type in RunType)
THREAD_KEYS = ("session_id", "conversation_id", "thread_id")
MODEL_KEYS = ("model", "model_name", "model_id", "model_path", "endpoint_name")
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_FORMS: Mapping[Payload, tuple[Callable[[Any], bool], str]] = {
    Payload.INPUTS: (_is_object, "an object"),
    Payload.OUTPUTS: (_is_object, "an object"),
    Payload.EXTRA: (_is_object, "an object"),
    Payload.SERIALIZED: (_is_object, "an object"),
    Payload.EVENTS: (_is_list_of_objects, "a list of objects"),
    Payload.ERROR: (_is_text, "a string"),
}
"""The JSON that the public clients read back: `RunBase` in `schemas.py` of `langsmith` 0.11."""

AddCosts = Callable[[ModelReference, dict[str, Any], dict[str, Any]], None]
"""Adds costs to the columns, and costs by kind of token to the usage details."""


def parse_operation(operation: RunOperation, *, add_costs: AddCosts | None = None) -> None:
    """Set the run id, the position and the content. Raises `RejectedItem` for an invalid run.

    `add_costs` prices token counts for which the client states no cost.
    """
    run = operation.run
    if run.id is None:
        raise RejectedItem("`id` is missing.", "no_id")
    if not operation.is_update:
        if not run.name:
            raise RejectedItem("`name` is missing.")
        if run.run_type is None:
            raise RejectedItem("`run_type` is missing.")
    if run.run_type is not None and run.run_type not in RUN_TYPES:
        run_types = ", ".join(sorted(RUN_TYPES))
        detail = f"`run_type` is {run.run_type!r:.60}, not one of {run_types}."
        raise RejectedItem(detail, "bad_run_type")
    try:
        operation.content = _build_content(operation, add_costs)
    except (RecursionError, orjson.JSONEncodeError):
        raise RejectedItem("The run is nested too deeply.", "too_deep") from None
    operation.run_id, operation.position = run.id, _parse_position(run)


def _parse_position(run: WireRun) -> TreePosition | None:
    if run.dotted_order is None or run.id is None:
        return None
    try:
        return parse_position(
            run.dotted_order,
            run_id=run.id,
            trace_id=run.trace_id,
            parent_run_id=run.parent_run_id,
        )
    except InvalidDottedOrder as error:
        raise DottedOrderContradiction(str(error), "misplaced") from None


def _build_content(operation: RunOperation, add_costs: AddCosts | None) -> RunContent:
    run = operation.run
    payloads: dict[Payload, bytes] = {}
    inputs = _take_payload(payloads, Payload.INPUTS, run.inputs)
    outputs = _take_payload(payloads, Payload.OUTPUTS, run.outputs)
    events = _take_payload(payloads, Payload.EVENTS, run.events)
    error = _take_payload(payloads, Payload.ERROR, run.error)
    _take_payload(payloads, Payload.SERIALIZED, run.serialized)
    invocation, metadata, metadata_json = _split_extra(payloads, run.extra)

    usage = read_usage(run.run_type, outputs, metadata)
    if usage is not None and usage.unread:
        operation.unread_usage += tuple(usage.unread)
    columns: dict[str, Any] = {
        "name": _storable_text(_name(run, metadata)),
        "run_type": run.run_type,
        "start_time": parse_timestamp(run.start_time, "start_time"),
        "end_time": parse_timestamp(run.end_time, "end_time"),
        "reference_example_id": run.reference_example_id,
        **({} if usage is None else usage.to_columns()),
    }
    if run.tags is not None:
        columns["tags"] = [_storable_text(_as_text(tag)) for tag in run.tags]
    if inputs is not None:
        columns["inputs_preview"] = build_preview(inputs, payloads[Payload.INPUTS])
    if outputs is not None:
        columns["outputs_preview"] = build_preview(outputs, payloads[Payload.OUTPUTS])
    if error is not None:
        columns["error_preview"] = _error_preview(error)
    if events is not None:
        columns["first_token_time"] = _first_token_time(events)
    if metadata or invocation:
        columns["thread_key"] = _thread_key(metadata)
        columns["model"] = _model_name(metadata, invocation)
    if add_costs is not None and "total_tokens" in columns:
        details = columns.pop("usage_details", {})
        add_costs(_model_reference(metadata, invocation), columns, details)
        if details:
            columns["usage_details"] = details
    if "usage_details" in columns:
        columns["usage_details"] = storable(dumps(columns["usage_details"]))
    columns = {name: value for name, value in columns.items() if value is not None}
    return RunContent(columns, metadata_json, payloads)


def _name(run: WireRun, metadata: Mapping[str, Any]) -> str | None:
    """Return the name; a root graph that kept the library's name has that of its graph id."""
    if run.name != LIBRARY_GRAPH_NAME or run.parent_run_id or "." in (run.dotted_order or ""):
        return run.name
    graph_id = metadata.get("graph_id")
    return graph_id if isinstance(graph_id, str) and graph_id else run.name


def _take_payload(payloads: dict[Payload, bytes], payload: Payload, raw: msgspec.Raw) -> Any:
    """Keep the JSON bytes and return the parsed value; null and absent are the same."""
    if raw is NO_PAYLOAD:
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
            raise RejectedItem(f"`{payload}` is not JSON: {error}", "not_json") from None
    is_form, form = _FORMS[payload]
    if not is_form(value):
        raise RejectedItem(f"`{payload}` must be {form} or null.", "bad_type")
    payloads[payload] = text
    return value


def _split_extra(
    payloads: dict[Payload, bytes], raw: msgspec.Raw
) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Split `extra` into metadata, which is searched and merged by key, and a payload.

    Returns the invocation parameters, and the metadata as values and as JSON; absent is empty.
    """
    value = _take_payload(payloads, Payload.EXTRA, raw)
    if value is None:
        return {}, {}, b""
    metadata, metadata_json = value.get("metadata"), b""
    if metadata is None or isinstance(metadata, dict):
        extra_fields: dict[str, msgspec.Raw] = _object_decoder.decode(payloads.pop(Payload.EXTRA))
        sent_metadata = extra_fields.pop("metadata", b"")
        if metadata:
            metadata_json = bytes(sent_metadata)
            orjson.dumps(metadata)  # raises for a depth that jsonb cannot hold
        if extra_fields:  # else the operation sends no other key, and replaces none
            payloads[Payload.EXTRA] = msgspec.json.encode(extra_fields)
    invocation = value.get("invocation_params")
    return (
        invocation if isinstance(invocation, dict) else {},
        metadata if isinstance(metadata, dict) else {},
        metadata_json,
    )


def _storable_text(text: str | None) -> str | None:
    return text.replace("\x00", "\ufffd") if text else text


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _thread_key(metadata: dict[str, Any]) -> str | None:
    for key in THREAD_KEYS:
        if (value := metadata.get(key)) is not None:
            return _storable_text(_as_text(value))
    return None


def _model_reference(metadata: dict[str, Any], invocation: dict[str, Any]) -> ModelReference:
    names = {"ls_model_name": metadata.get("ls_model_name")}
    names |= {key: invocation.get(key) for key in MODEL_KEYS}
    provider = metadata.get("ls_provider")
    return ModelReference(
        {key: name for key, name in names.items() if isinstance(name, str) and name},
        provider if isinstance(provider, str) else None,
    )


def _model_name(metadata: dict[str, Any], invocation: dict[str, Any]) -> str | None:
    if isinstance(name := metadata.get("ls_model_name"), str) and name:
        return _storable_text(name)
    for key in MODEL_KEYS if invocation else ():
        if isinstance(name := invocation.get(key), str) and name:
            return _storable_text(name)
    return None


def _error_preview(error: str) -> str:
    """The start of the error; of control flow after a stack trace, the start of the exception."""
    raised = find_raised(error)
    return one_line(error if classify_error(raised) is Status.ERROR else raised)


def _first_token_time(events: Sequence[dict[str, Any]]) -> Any:
    for event in events:
        if event.get("name") == "new_token":
            time = event.get("time")
            try:
                return (
                    parse_timestamp(time, "time") if isinstance(time, str | int | float) else None
                )
            except RejectedItem:
                return None
    return None
