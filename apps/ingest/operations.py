"""Run operations: creates and updates of runs, from the decoders to the run store.

Payloads stay the bytes that the client sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from apps.core import timestamps
from apps.trace_store import Payload
from apps.trace_store.dotted_order import TreePosition
from apps.trace_store.json_repair import repair
from apps.trace_store.run_writes import RunContent

NO_PAYLOAD = msgspec.Raw(b"")
PAYLOAD_FIELDS = frozenset(str(payload) for payload in Payload)


class RejectedItem(Exception):
    """The reason why a run, attachment or feedback of a request is not stored."""

    def __init__(
        self,
        detail: str,
        reason: str = "invalid",
        *,
        item: str = "",
        project_id: UUID | None = None,
    ) -> None:
        """`reason` is a stable code for the ingest log, `item` identifies the item."""
        super().__init__(detail)
        self.reason, self.item, self.project_id = reason, item, project_id

    def as_json(self) -> dict[str, str]:
        return {"id": self.item, "detail": str(self)}


class DottedOrderContradiction(RejectedItem):
    """The dotted order contradicts the ids. A request with no other error gets 400, not 422."""


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
    """The address of an agent environment, instead of a project."""
    trace_tier: str | None = None
    inputs: msgspec.Raw = NO_PAYLOAD
    outputs: msgspec.Raw = NO_PAYLOAD
    extra: msgspec.Raw = NO_PAYLOAD
    events: msgspec.Raw = NO_PAYLOAD
    error: msgspec.Raw = NO_PAYLOAD
    serialized: msgspec.Raw = NO_PAYLOAD

    @property
    def has_project(self) -> bool:
        return self.session_id is not None or bool(self.session_name) or self.address is not None


@dataclass(frozen=True, slots=True)
class AttachmentFile:
    """An attachment of a request."""

    name: str
    mime_type: str
    content: bytes


@dataclass(slots=True)
class RunOperation:
    """A create or an update of a run.

    Decoders fill the first group of fields, `run_content.parse_operation` the second.
    """

    is_update: bool
    run: WireRun
    files: list[AttachmentFile] = field(default_factory=list)
    location: str = ""
    """The position in the request, for error messages about a run without id."""
    deferred_at: datetime | None = None
    """When an operation was first deferred that is now applied again."""
    unread_usage: tuple[str, ...] = ()
    """Names of token counts that no vocabulary has."""

    run_id: UUID = field(init=False)
    position: TreePosition | None = field(init=False)
    """The position in the trace; None until it follows from stored runs."""
    content: RunContent = field(init=False)

    @property
    def label(self) -> str:
        return str(self.run.id or self.location)


_decoder = msgspec.json.Decoder(WireRun)


def decode_run(text: bytes | msgspec.Raw) -> WireRun:
    """Decode a JSON object. Raises `RejectedItem` if it is not a valid run."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise RejectedItem(_describe(error)) from None
    except RecursionError:
        raise RejectedItem("The run is nested too deeply.", "too_deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return _decoder.decode(repair(bytes(text)))
    except msgspec.ValidationError as error:
        raise RejectedItem(_describe(error)) from None
    except ValueError as error:
        raise RejectedItem(f"The run is not JSON: {error}", "not_json") from None


def _describe(error: msgspec.ValidationError) -> str:
    return str(error).replace("`$.", "`").replace("`$`", "the run")


def parse_timestamp(value: str | float | None, field_name: str) -> datetime | None:
    """Parse ISO 8601 or a number since 1970 to UTC. Raises `RejectedItem` for other values."""
    if value is None:
        return None
    try:
        return timestamps.correct_unit(timestamps.parse_timestamp(value, field_name))
    except ValueError as error:
        raise RejectedItem(str(error), "bad_time") from None
