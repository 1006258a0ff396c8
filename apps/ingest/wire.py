"""A run as clients write it. Payloads stay the bytes that came."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from apps.trace_store.json_repair import repair
from apps.trace_store.store.types import Payload

NOTHING = msgspec.Raw(b"")


class Refusal(Exception):
    """Why one run, feedback or attachment of a request is not stored."""

    def __init__(self, detail: str, reason: str = "invalid") -> None:
        """`reason` is a word that the ledger counts by."""
        super().__init__(detail)
        self.reason = reason


class WireRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fields of a run on the wire; null and absent mean the same."""

    id: UUID | None = None
    trace_id: UUID | None = None
    parent_run_id: UUID | None = None
    dotted_order: str | None = None
    session_id: UUID | None = None
    session_name: str | None = None
    name: str | None = None
    run_type: str | None = None
    start_time: str | float | None = None
    end_time: str | float | None = None
    tags: list[Any] | None = None
    reference_example_id: UUID | None = None
    address: str | None = None
    """An agent's in an environment, instead of a project."""
    trace_tier: str | None = None
    inputs: msgspec.Raw = NOTHING
    outputs: msgspec.Raw = NOTHING
    extra: msgspec.Raw = NOTHING
    events: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING
    serialized: msgspec.Raw = NOTHING


PAYLOAD_FIELDS = frozenset(str(payload) for payload in Payload)
_runs = msgspec.json.Decoder(WireRun)
_encoder = msgspec.json.Encoder()


def decode_run(text: bytes | msgspec.Raw) -> WireRun:
    """The run in a JSON object; `Refusal` says what is wrong with it."""
    try:
        return _runs.decode(text)
    except msgspec.ValidationError as error:
        raise Refusal(_reason(error)) from None
    except RecursionError:
        raise Refusal("The run is nested too deeply.", "too_deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return _runs.decode(repair(bytes(text)))
    except msgspec.ValidationError as error:
        raise Refusal(_reason(error)) from None
    except ValueError as error:
        raise Refusal(f"The run is not JSON: {error}", "not_json") from None


def encode_run(run: WireRun) -> bytes:
    return _encoder.encode(run)


def _reason(error: msgspec.ValidationError) -> str:
    return str(error).replace("`$.", "`").replace("`$`", "the run")


def moment(value: str | float | None, field: str) -> datetime | None:
    """A time of the wire, ISO 8601 or milliseconds since 1970, in UTC; without a zone it is UTC."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
        return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise Refusal(f"`{field}` is no time: {value!r:.60}", "bad_time") from None
