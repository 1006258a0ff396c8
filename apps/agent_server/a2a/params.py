"""Parameters of A2A requests: validation, and conversion of 0.3 to 1.0.

ProtoJSON readers accept snake_case names as well as camelCase ones, and clients send them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from apps.agent_server.a2a.rpc import (
    CONTENT_TYPE_NOT_SUPPORTED,
    INVALID_PARAMS,
    A2AError,
    A2ARequest,
)
from apps.agent_server.statuses import TaskState

JSONObject = dict[str, Any]
INPUT_MODES = (
    *("text/plain", "text/markdown", "text/html", "text/csv", "application/json"),
    *("image/png", "image/jpeg", "image/gif", "image/webp"),
    *("audio/mpeg", "audio/wav", "video/mp4", "application/pdf", "application/octet-stream"),
)
OUTPUT_MODES = ("text/plain", "application/json")
MAX_ID_LENGTH = 255
MAX_PARTS = 100
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 50, 100
_CONTENT = ("text", "raw", "url", "data")
_SCHEME = re.compile(r"[\w!#$%&'*+.^`|~-]{1,100}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?")
_SNAKE = re.compile(r"_([a-z])")
_ROLES = {"ROLE_USER": "ROLE_USER", "user": "ROLE_USER", "ROLE_AGENT": "", "agent": ""}
_STATES: dict[str, TaskState | None] = {
    **{f"TASK_STATE_{state.name}": state for state in TaskState},
    **{state.value: state for state in TaskState},
    "": None,
    "TASK_STATE_UNSPECIFIED": None,
}


def invalid(text: str) -> A2AError:
    return A2AError(INVALID_PARAMS, text)


def _camel(value: Any) -> JSONObject:
    """The object with its names in camelCase; a name in camelCase wins."""
    names = {_SNAKE.sub(lambda match: match[1].upper(), name): name for name in value}
    return {
        camel: value[camel] if camel in value else value[name]
        for camel, name in names.items()
        if value.get(camel, value[name]) is not None
    }


def _object(fields: Mapping[str, Any], name: str) -> JSONObject:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise invalid(f"{name}: must be an object.")
    return _camel(value)


def _metadata(fields: Mapping[str, Any]) -> JSONObject:
    """The client's own object, whose names stay as they are."""
    value = fields.get("metadata", {})
    if not isinstance(value, dict):
        raise invalid("metadata: must be an object.")
    return value


def _text(fields: Mapping[str, Any], name: str, *, required: bool = False) -> str | None:
    value = fields.get(name)
    if value is None or value == "":
        if required:
            raise invalid(f"{name}: is required.")
        return None
    if not isinstance(value, str) or len(value) > MAX_ID_LENGTH:
        raise invalid(f"{name}: must be a string of at most {MAX_ID_LENGTH} characters.")
    return value


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"{name}: must be a boolean.")
    return value


def _number(fields: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(f"{name}: must be an integer from {least} to {most}.")
    return value


@dataclass(frozen=True, slots=True)
class PushConfig:
    """Where and how a client wants to be notified of a task."""

    config_id: str | None
    """None to let the server name it."""
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""


@dataclass(frozen=True, slots=True)
class SendParams:
    """The parameters of both ways to send a message."""

    message: JSONObject
    """The message as A2A 1.0 writes it, without context and task."""
    context_id: str | None
    task_id: str | None
    returns_immediately: bool
    history_length: int | None
    metadata: JSONObject = field(default_factory=dict)
    push_config: PushConfig | None = None
    """The address that is to be notified of a new or resumed task."""


def read_send_params(request: A2ARequest) -> SendParams:
    fields = _camel(request.params)
    if "message" not in fields:
        raise invalid("message: is required.")
    message = _object(fields, "message")
    configuration = _object(fields, "configuration")
    name = "pushNotificationConfig" if request.is_legacy else "taskPushNotificationConfig"
    push_config = None
    if name in configuration:
        push_config = _read_push_config(_object(configuration, name), is_legacy=request.is_legacy)
    _check_output_modes(configuration.get("acceptedOutputModes"))
    returns_immediately = (
        not _flag(configuration, "blocking", default=True)
        if request.is_legacy
        else _flag(configuration, "returnImmediately", default=False)
    )
    return SendParams(
        read_message(message, is_legacy=request.is_legacy),
        _text(message, "contextId"),
        _text(message, "taskId"),
        returns_immediately,
        _number(configuration, "historyLength", 0, 2**31 - 1),
        _metadata(fields),
        push_config,
    )


def _check_output_modes(modes: Any) -> None:
    if modes is None:
        return
    if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
        raise invalid("acceptedOutputModes: must be a list of media types.")
    accepted = {mode.partition(";")[0].strip().lower() for mode in modes}
    if accepted and not accepted & {*OUTPUT_MODES, "*/*", "text/*", "application/*", "text"}:
        raise A2AError(CONTENT_TYPE_NOT_SUPPORTED, "The agent has no output of these media types.")


def read_message(message: JSONObject, *, is_legacy: bool) -> JSONObject:
    """Validate a user's message; return it as A2A 1.0 writes it."""
    message_id = _text(message, "messageId", required=True)
    if not _ROLES.get(str(message.get("role"))):
        raise invalid("message.role: must be that of the user.")
    parts = message.get("parts")
    if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_PARTS:
        raise invalid(f"message.parts: must be a list of 1 to {MAX_PARTS} parts.")
    result: JSONObject = {
        "messageId": message_id,
        "role": "ROLE_USER",
        "parts": [_read_part(part, is_legacy=is_legacy) for part in parts],
    }
    if metadata := _metadata(message):
        result["metadata"] = metadata
    for name in ("extensions", "referenceTaskIds"):
        values = message.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise invalid(f"message.{name}: must be a list of strings.")
        if values:
            result[name] = values
    return result


def _read_part(part: Any, *, is_legacy: bool) -> JSONObject:
    if not isinstance(part, dict):
        raise invalid("message.parts: each part must be an object.")
    fields = _from_legacy_part(part) if is_legacy else _camel(part)
    # Null is a valid `data`.
    kinds = [name for name in _CONTENT if name in fields or (name == "data" and name in part)]
    if len(kinds) != 1:
        raise invalid("message.parts: a part must have one of text, raw, url and data.")
    kind = kinds[0]
    value = fields.get(kind)
    if kind != "data" and not isinstance(value, str):
        raise invalid(f"message.parts: {kind} must be a string.")
    if kind == "raw":
        value = _check_base64(cast("str", value))
    elif kind == "url" and not cast("str", value).lower().startswith(("https://", "http://")):
        raise invalid("message.parts: url must begin with https:// or http://.")
    result: JSONObject = {kind: value}
    for name in ("mediaType", "filename"):
        if text := _text(fields, name):
            result[name] = text
    media = result.get("mediaType", "").partition(";")[0].strip().lower()
    if media and media not in INPUT_MODES:
        text = f"The agent does not accept {media}."
        raise A2AError(CONTENT_TYPE_NOT_SUPPORTED, text)
    if metadata := _metadata(fields):
        result["metadata"] = metadata
    return result


def _check_base64(text: str) -> str:
    try:
        padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
        base64.b64decode(padded, validate=True)
    except (ValueError, binascii.Error):
        raise invalid("message.parts: raw must be base64.") from None
    return padded


def _from_legacy_part(part: JSONObject) -> JSONObject:
    """A part of A2A 0.3, with `kind`, as one of 1.0."""
    metadata = {"metadata": part["metadata"]} if part.get("metadata") is not None else {}
    kind = part.get("kind", part.get("type"))
    if kind == "text":
        return {"text": part.get("text"), **metadata}
    if kind == "data" and "data" in part:
        return {"data": part["data"], **metadata}
    if kind == "file":
        file = _object(part, "file")
        content = {new: file[old] for old, new in (("bytes", "raw"), ("uri", "url")) if old in file}
        named = {
            new: file[old]
            for old, new in (("mimeType", "mediaType"), ("name", "filename"))
            if old in file
        }
        return {**content, **named, **metadata}
    raise invalid("message.parts: the kind of a part must be text, file or data.")


@dataclass(frozen=True, slots=True)
class TaskParams:
    """The parameters of a request about one task."""

    task_id: str
    history_length: int | None


def read_task_params(request: A2ARequest) -> TaskParams:
    fields = _camel(request.params)
    if isinstance(name := fields.get("name"), str) and "id" not in fields:  # the gRPC form
        fields["id"] = name.removeprefix("tasks/")
    task_id = _text(fields, "id", required=True)
    length = _number(fields, "historyLength", 0, 2**31 - 1)
    return TaskParams(cast("str", task_id), length)


@dataclass(frozen=True, slots=True)
class ListParams:
    """The filters and the page of `ListTasks`."""

    context_id: str | None
    state: TaskState | None
    updated_after: datetime | None
    page_size: int
    page_token: str | None
    history_length: int | None
    includes_artifacts: bool


def read_list_params(request: A2ARequest) -> ListParams:
    fields = _camel(request.params)
    return ListParams(
        _text(fields, "contextId"),
        _read_state(fields.get("status")),
        _read_time(fields.get("statusTimestampAfter")),
        _number(fields, "pageSize", 1, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE,
        _text(fields, "pageToken"),
        _number(fields, "historyLength", 0, 2**31 - 1),
        _flag(fields, "includeArtifacts", default=False),
    )


def _read_state(value: Any) -> TaskState | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in _STATES:
        raise invalid(f"status: must be one of {', '.join(_STATES)}.")
    return _STATES[value]


def _read_time(value: Any) -> datetime | None:
    if value is None or value == "":
        return None
    try:
        parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise invalid("statusTimestampAfter: must be a timestamp with a time zone.")
    return parsed


@dataclass(frozen=True, slots=True)
class PushParams:
    """The parameters of a request about the push configurations of a task."""

    task_id: str
    config_id: str | None
    page_size: int
    page_token: str | None


def read_new_push_params(request: A2ARequest) -> tuple[str, PushConfig]:
    """Return the id of the task, and the configuration. 0.3 puts it into an object of its own."""
    fields = _camel(request.params)
    task_id = cast("str", _text(fields, "taskId", required=True))
    if request.is_legacy:
        fields = _object(fields, "pushNotificationConfig")
    return task_id, _read_push_config(fields, is_legacy=request.is_legacy)


def read_push_params(request: A2ARequest, *, needs_config: bool = False) -> PushParams:
    """Read the ids. 0.3 calls the task `id`, and the configuration by a longer name."""
    fields = _camel(request.params)
    task_name, config_name = (
        ("id", "pushNotificationConfigId") if request.is_legacy else ("taskId", "id")
    )
    task_id = cast("str", _text(fields, task_name, required=True))
    return PushParams(
        task_id,
        _text(fields, config_name, required=needs_config),
        _number(fields, "pageSize", 0, MAX_PAGE_SIZE) or DEFAULT_PAGE_SIZE,
        _text(fields, "pageToken"),
    )


def _read_push_config(fields: JSONObject, *, is_legacy: bool) -> PushConfig:
    authentication = _object(fields, "authentication")
    if is_legacy:
        schemes = authentication.get("schemes", [])
        if not isinstance(schemes, list) or not all(isinstance(name, str) for name in schemes):
            raise invalid("authentication.schemes: must be a list of strings.")
        # The credentials are those of one scheme, which most clients name alone.
        authentication = {**authentication, "scheme": schemes[0] if schemes else ""}
    url = fields.get("url")
    if not isinstance(url, str) or not url.lower().startswith(("https://", "http://")):
        raise invalid("url: must begin with https:// or http://.")
    scheme = _header_value(authentication, "scheme", _SCHEME)
    credentials = _header_value(authentication, "credentials", _HEADER_VALUE)
    if credentials and not scheme:
        raise invalid("authentication.scheme: is required with credentials.")
    token = _header_value(fields, "token", _HEADER_VALUE)
    return PushConfig(_text(fields, "id"), url, token, scheme, credentials)


def _header_value(fields: JSONObject, name: str, pattern: re.Pattern[str]) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or (value and pattern.fullmatch(value) is None):
        raise invalid(f"{name}: must be a text that a header can have.")
    return value
