"""Decodes the bodies of annotation queues; unknown fields are refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from apps.annotation.models import (
    DEFAULT_RESERVATION_MINUTES,
    NAME_LENGTH,
    ReviewerAccessMode,
)
from apps.annotation.rubric import RubricItem
from apps.annotation.services.items import RunReference
from apps.core.errors import Invalid
from apps.core.json import dumps
from apps.datasets.wire import clean_name, decode, parse_time_field, storable_json

MAX_REVIEWS = 100
MAX_RESERVATION_MINUTES = 1440
MAX_TEXT_LENGTH = 50_000
MAX_METADATA_BYTES = 65_536
MAX_IDS = 1000
"""Runs, items or experiments of one request."""
_Mode = Literal["any", "assigned"]


class WireQueue(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A queue to create."""

    name: str
    id: UUID | None = None
    description: str | None = None
    default_dataset: UUID | None = None
    num_reviewers_per_item: int | None = 1
    enable_reservations: bool | None = None
    reservation_minutes: int | None = None
    reviewer_access_mode: _Mode | None = None
    rubric_instructions: str | None = None
    rubric_items: list[RubricItem] | None = None
    session_ids: list[UUID] | None = None
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    updated_at: str | None = None


class WireQueueChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes to a queue: null clears a field that can be empty, an absent field stays."""

    name: str | None = None
    description: str | UnsetType | None = UNSET
    default_dataset: UUID | UnsetType | None = UNSET
    num_reviewers_per_item: int | UnsetType | None = UNSET
    enable_reservations: bool | None = None
    reservation_minutes: int | None = None
    reviewer_access_mode: _Mode | None = None
    rubric_instructions: str | UnsetType | None = UNSET
    rubric_items: list[RubricItem] | None = None
    metadata: dict[str, Any] | UnsetType | None = UNSET


class QueueRunBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run to add by its id. Older clients send more of what they know of it."""

    run_id: UUID
    source_proposed_example_id: UUID | None = None
    session_id: UUID | None = None
    start_time: str | None = None
    trace_id: UUID | None = None
    parent_run_id: UUID | None = None
    trace_tier: Literal["longlived", "shortlived"] | None = None


class QueueRunsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    runs: list[QueueRunBody]


class QueueRunKeyBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run to add by its id, project and start."""

    run_id: UUID
    session_id: UUID
    start_time: str
    source_proposed_example_id: UUID | None = None


class WireItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An item to add; `session_id` is another name of `project_id`."""

    item_type: str = "RUN"
    run_id: UUID | None = None
    project_id: UUID | None = None
    session_id: UUID | None = None
    start_time: str | None = None
    source_proposed_example_id: UUID | None = None
    thread_id: str | None = None


class WireItems(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    items: list[WireItem] = []


class WireItemChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Times to set; null and absent leave them as they are."""

    added_at: str | None = None
    last_reviewed_time: str | None = None


class WireStatus(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    status: Literal["viewed", "completed"] | None = None
    override_added_at: str | None = None


class WireRunRemoval(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    run_ids: list[UUID] | None = None
    delete_all: bool = False
    exclude_run_ids: list[UUID] | None = None


class WireItemRemoval(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    item_ids: list[UUID]


class WirePopulation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    queue_id: UUID
    session_ids: list[UUID]
    extend_trace_retention: bool = False


class WireExport(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The archived items of a time range, with a row for each reviewer if asked."""

    start_time: str | None = None
    end_time: str | None = None
    include_annotator_detail: bool = False


class WireReviewers(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    identity_ids: list[UUID]


def queue_fields(wire: WireQueue) -> dict[str, Any]:
    """Return the fields of a queue to create, without rubric items and experiments."""
    fields: dict[str, Any] = {
        "name": clean_name(wire.name, NAME_LENGTH),
        "description": clean_text(wire.description, "description"),
        "default_dataset_id": wire.default_dataset,
        "num_reviewers_per_item": check_number(
            wire.num_reviewers_per_item, MAX_REVIEWS, "num_reviewers_per_item"
        ),
        "enable_reservations": wire.enable_reservations is not False,
        "reservation_minutes": check_number(
            wire.reservation_minutes, MAX_RESERVATION_MINUTES, "reservation_minutes"
        )
        or DEFAULT_RESERVATION_MINUTES,
        "reviewer_access_mode": wire.reviewer_access_mode or ReviewerAccessMode.ANY,
        "rubric_instructions": clean_text(wire.rubric_instructions, "rubric_instructions"),
        "metadata": clean_metadata(wire.metadata),
    }
    if wire.id is not None:
        fields["id"] = wire.id
    created_at = parse_time_field(wire.created_at, "created_at")
    updated_at = parse_time_field(wire.updated_at, "updated_at") or created_at
    times = {"created_at": created_at, "updated_at": updated_at}
    return fields | {name: time for name, time in times.items() if time is not None}


def queue_changes(wire: WireQueueChanges) -> dict[str, Any]:
    """Return the changed fields by name, without rubric items."""
    changes: dict[str, Any] = {}
    if wire.name is not None:
        changes["name"] = clean_name(wire.name, NAME_LENGTH)
    for name in ("description", "rubric_instructions"):
        value = getattr(wire, name)
        if value is not UNSET:
            changes[name] = clean_text(value, name)
    if wire.default_dataset is not UNSET:
        changes["default_dataset_id"] = wire.default_dataset
    if not isinstance(wire.num_reviewers_per_item, UnsetType):
        changes["num_reviewers_per_item"] = check_number(
            wire.num_reviewers_per_item, MAX_REVIEWS, "num_reviewers_per_item"
        )
    if wire.reservation_minutes is not None:
        changes["reservation_minutes"] = check_number(
            wire.reservation_minutes, MAX_RESERVATION_MINUTES, "reservation_minutes"
        )
    for name in ("enable_reservations", "reviewer_access_mode"):
        if getattr(wire, name) is not None:
            changes[name] = getattr(wire, name)
    if not isinstance(wire.metadata, UnsetType):
        changes["metadata"] = clean_metadata(wire.metadata)
    return changes


def clean_text(text: str | None, field: str) -> str | None:
    if text is not None and len(text) > MAX_TEXT_LENGTH:
        raise Invalid(f"`{field}` must have at most {MAX_TEXT_LENGTH} characters.")
    return text and text.replace("\x00", "\ufffd")


def clean_metadata(metadata: dict[str, Any] | None) -> Any:
    stored = storable_json(metadata)
    if len(dumps(stored)) > MAX_METADATA_BYTES:
        raise Invalid(f"`metadata` may have at most {MAX_METADATA_BYTES:,} bytes.")
    return stored


def check_number(value: int | None, maximum: int, field: str) -> int | None:
    if value is not None and not 0 < value <= maximum:
        raise Invalid(f"`{field}` must be from 1 to {maximum}.")
    return value


def check_count(count: int, field: str, minimum: int = 0) -> None:
    """Raise `Invalid` for more values than a request may have, or fewer."""
    if not minimum <= count <= MAX_IDS:
        raise Invalid(f"`{field}` must have {minimum} to {MAX_IDS} values.")


def run_references(body: bytes) -> list[RunReference]:
    """Decode runs to add: ids, objects, or an object with the list `runs`."""
    wire: Any = decode(body, list[UUID | QueueRunBody] | QueueRunsBody)  # type: ignore[arg-type]
    runs = wire.runs if isinstance(wire, QueueRunsBody) else wire
    check_count(len(runs), "runs")
    return [RunReference(run_id=run) if isinstance(run, UUID) else _reference(run) for run in runs]


def run_keys(body: bytes) -> list[RunReference]:
    wire = decode(body, list[QueueRunKeyBody])
    check_count(len(wire), "runs")
    return [_reference(run) for run in wire]


def _reference(run: QueueRunBody | QueueRunKeyBody) -> RunReference:
    return RunReference(
        run_id=run.run_id,
        project_id=run.session_id,
        start_time=parse_time_field(run.start_time, "start_time"),
        source_proposed_example_id=run.source_proposed_example_id,
    )


def item_references(body: bytes) -> list[RunReference]:
    wire = decode(body, WireItems)
    check_count(len(wire.items), "items")
    references = []
    for number, item in enumerate(wire.items):
        if item.item_type.upper() != "RUN" or item.thread_id is not None:
            raise Invalid(f"`items[{number}]`: only items of the type RUN are supported.")
        if item.run_id is None:
            raise Invalid(f"`items[{number}].run_id` is missing.")
        references.append(
            RunReference(
                run_id=item.run_id,
                project_id=item.project_id or item.session_id,
                start_time=parse_time_field(item.start_time, "start_time"),
                source_proposed_example_id=item.source_proposed_example_id,
            )
        )
    return references


def item_times(wire: WireItemChanges) -> dict[str, datetime | None]:
    return {
        "added_at": parse_time_field(wire.added_at, "added_at"),
        "last_reviewed_at": parse_time_field(wire.last_reviewed_time, "last_reviewed_time"),
    }
