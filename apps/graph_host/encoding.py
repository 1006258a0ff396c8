"""JSON encoding of graph values, in the format that clients of an Agent Server expect.

The graph host encodes values once; worker and web processes pass the bytes on unchanged.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import math
import pathlib
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Interrupt
from pydantic import BaseModel

try:
    import orjson
except ImportError:  # normally installed as a dependency of langsmith
    orjson = None  # type: ignore[assignment]

UNREADABLE = "This value cannot be shown as JSON"


def interrupt_id(value: Interrupt[Any]) -> str:
    """Return the interrupt's id, which LangGraph before 0.6 calls `interrupt_id`."""
    name = "id" if hasattr(value, "id") else "interrupt_id"
    return str(getattr(value, name))


def interrupt_of_stream(value: Interrupt[Any]) -> dict[str, Any]:
    """Encode an interrupt for stream events and responses of `wait`."""
    return {
        "value": value.value,
        "id": interrupt_id(value),
        "response_schema": getattr(value, "response_schema", None),
    }


def interrupt_of_state(value: Interrupt[Any]) -> dict[str, Any]:
    """Encode an interrupt for thread states and threads."""
    return {"id": interrupt_id(value), "value": value.value}


def message(value: BaseMessage) -> dict[str, Any]:
    """Return the fields of a message; `to_json_types` encodes their values."""
    fields = value.__dict__
    extra = value.__pydantic_extra__
    return {**fields, **extra} if extra else fields


def to_json_types(value: Any) -> Any:
    """Convert an object one level towards JSON types; `repr` as the last resort."""
    if isinstance(value, BaseMessage):
        return message(value)
    if isinstance(value, Interrupt):
        return interrupt_of_stream(value)
    convert = _BY_TYPE.get(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, BaseModel):
        return value.model_dump()
    for kind, convert in _BY_TYPE.items():
        if isinstance(value, kind):
            return convert(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "tolist"):  # numpy and similar
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(type(value), "__slots__") and type(value).__module__.startswith("langgraph."):
        return {
            name: getattr(value, name) for name in type(value).__slots__ if hasattr(value, name)
        }
    return repr(value)


_BY_TYPE: dict[type, Callable[[Any], Any]] = {
    set: list,
    frozenset: list,
    deque: list,
    bytes: lambda value: base64.b64encode(value).decode(),
    bytearray: lambda value: base64.b64encode(value).decode(),
    memoryview: lambda value: base64.b64encode(value).decode(),
    decimal.Decimal: str,
    dt.timedelta: dt.timedelta.total_seconds,
    dt.timezone: str,
    pathlib.PurePath: str,
    re.Pattern: lambda value: value.pattern,
    ipaddress.IPv4Address: str,
    ipaddress.IPv6Address: str,
    complex: str,
    BaseException: lambda value: {"error": type(value).__name__, "message": str(value)},
}


def dumps(value: Any) -> bytes:
    """Encode as compact JSON. Never fails: unsupported values become null, text or a note."""
    if orjson is not None:
        try:
            return orjson.dumps(value, default=to_json_types)
        except (TypeError, ValueError, RecursionError):
            pass
    return _dumps_slowly(value)


def _dumps_slowly(value: Any) -> bytes:
    try:
        text = json.dumps(
            _portable(value, 0), separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except Exception:  # noqa: BLE001 (an agent's object may raise anything while it is read)
        text = json.dumps({"error": UNREADABLE, "type": type(value).__name__})
    return text.encode("utf-8", "replace")


_MAX_DEPTH = 200


def _portable(value: Any, depth: int) -> Any:
    """Convert a value that orjson rejects (huge integers, unusual keys) to types of `json`."""
    if depth > _MAX_DEPTH:
        return UNREADABLE
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _portable(value.value, depth + 1)
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): _portable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [_portable(item, depth + 1) for item in value]
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if orjson is not None and isinstance(value, orjson.Fragment):
        return json.loads(orjson.dumps(value))
    return _portable(to_json_types(value), depth + 1)


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    if isinstance(key, bytes):
        return key.decode("utf-8", "replace")
    return str(key).encode("utf-8", "replace").decode()


_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_WIDE_INTEGER = b"0" * 19


def loads(text: bytes) -> Any:
    """Decode JSON of the platform; integers beyond 64 bits stay integers."""
    # The shortest integer that orjson turns into a float has 19 digits.
    if orjson is None or _WIDE_INTEGER in text.translate(_DIGITS_AS_ZERO):
        return json.loads(text)
    return orjson.loads(text)


def fragment(value: Any) -> Any:
    """Encode a value now, for use in several documents."""
    return orjson.Fragment(dumps(value)) if orjson is not None else value
