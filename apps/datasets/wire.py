"""Decodes examples from the JSON of a request; unknown fields are refused by name."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from apps.core import errors
from apps.core.json import (
    MAX_DEPTH,
    dumps,
    is_too_deep,
    loads,
    loads_exact,
    storable,
    storable_value,
)
from apps.core.timestamps import parse_timestamp

MAX_SPLITS = 100
MAX_SPLIT_LENGTH = 255
SPLIT_KEY = "dataset_split"
DEFAULT_SPLITS = ["base"]

T = TypeVar("T")
ABSENT = msgspec.Raw()
"""The value of a JSON field that the request does not have."""


class AttachmentsOperations(msgspec.Struct, forbid_unknown_fields=True):
    """What happens to the attachments that an example has; those not named are dropped."""

    rename: dict[str, str] = {}
    retain: list[str] = []


class WireExample(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An example to create; null and absent are equivalent."""

    id: UUID | None = None
    dataset_id: UUID | None = None
    inputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    outputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    metadata: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    split: str | list[str] | None = None
    created_at: str | float | None = None
    source_run_id: UUID | None = None
    use_source_run_io: bool | None = None
    use_source_run_attachments: list[str] | None = None


class WireExampleUpdate(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes to an example; a null or absent field stays as it is."""

    id: UUID | None = None
    dataset_id: UUID | None = None
    inputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    outputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    metadata: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    split: str | list[str] | None = None
    attachments_operations: AttachmentsOperations | None = None


class WireDeletion(msgspec.Struct, forbid_unknown_fields=True):
    """A deletion of examples; `hard_delete` removes them from earlier versions, too."""

    example_ids: list[UUID]
    hard_delete: bool = False


class WireOperation(msgspec.Struct, forbid_unknown_fields=True):
    """A change of one top-level key of the metadata."""

    key: str
    operation: str
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    values: list[str] = []

    def parsed_value(self, max_bytes: int) -> Any:
        """Return the value in a form that `jsonb` accepts; raises `Invalid` if it is too large."""
        text = bytes(self.value) or b"null"
        if len(text) > max_bytes:
            raise errors.Invalid(f"`value` may have at most {max_bytes} bytes.")
        return storable_json(loads(text))


class WireMetadataChange(msgspec.Struct, forbid_unknown_fields=True):
    """The same changes of metadata for several examples."""

    example_ids: list[UUID]
    operations: list[WireOperation]


_TYPE_NAMES: dict[Any, str] = {
    list[WireExample]: "list of examples",
    list[WireExampleUpdate]: "list of changes",
    WireExample: "example",
    WireExampleUpdate: "change of an example",
}


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a request body; raises `Invalid` with the place of the first problem."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = _TYPE_NAMES.get(kind, "part")
        raise errors.Invalid(f"The body is not a valid {name}: {error}") from None


def has_value(raw: msgspec.Raw) -> bool:
    """Whether the JSON field is present and not null."""
    return bytes(raw) not in {b"", b"null"}


def parse_object(raw: msgspec.Raw, field: str) -> dict[str, Any] | None:
    """Return the JSON object, None for null or absence; raises `Invalid` for other values."""
    if not has_value(raw):
        return None
    try:
        value = loads_exact(bytes(raw))
    except (ValueError, RecursionError) as error:
        raise errors.Invalid(f"`{field}` is not valid JSON: {error}") from None
    if value is not None and not isinstance(value, dict):
        raise errors.Invalid(f"`{field}` must be a JSON object.")
    if is_too_deep(value, bytes(raw)):
        raise errors.Invalid(f"`{field}` is nested deeper than {MAX_DEPTH} levels.")
    return value


def parse_metadata(raw: msgspec.Raw) -> dict[str, Any] | None:
    """Return the metadata in a form that `jsonb` accepts."""
    value = parse_object(msgspec.Raw(storable(bytes(raw))), "metadata")
    if value is not None and SPLIT_KEY in value:
        value[SPLIT_KEY] = parse_splits(value[SPLIT_KEY])
    return value


def parse_splits(value: Any) -> list[str]:
    """Return the names of splits without repetitions; a string is one name."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise errors.Invalid("A split must be a name or a list of names.")
    if len(names) > MAX_SPLITS:
        raise errors.Invalid(f"An example may be in at most {MAX_SPLITS} splits.")
    if any(not name or len(name) > MAX_SPLIT_LENGTH or "\x00" in name for name in names):
        raise errors.Invalid(f"The name of a split must have 1 to {MAX_SPLIT_LENGTH} characters.")
    return list(dict.fromkeys(names))


def merge_splits(
    metadata: dict[str, Any] | None,
    split: str | list[str] | None,
    previous: list[str] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata with `dataset_split`, and the splits.

    `split` precedes the metadata's own key, and this the previous splits of the example.
    """
    metadata = dict(metadata or {})
    own = metadata.get(SPLIT_KEY) if split is None else split
    names = previous if own is None else parse_splits(own)
    metadata[SPLIT_KEY] = names = names or list(DEFAULT_SPLITS)
    return metadata, names


def parse_time_field(value: str | float | None, field: str) -> datetime | None:
    if value is None:
        return None
    try:
        return parse_timestamp(value, field)
    except ValueError as error:
        raise errors.Invalid(str(error)) from None


class WireTransformation(msgspec.Struct, forbid_unknown_fields=True):
    """A change of one place of every example, before validation."""

    path: list[str]
    transformation_type: str


class WireDataset(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A dataset to create; null and absent are equivalent."""

    name: str
    id: UUID | None = None
    description: str | None = None
    data_type: Literal["kv", "llm", "chat"] | None = None
    inputs_schema_definition: dict[str, Any] | None = None
    outputs_schema_definition: dict[str, Any] | None = None
    transformations: list[WireTransformation] | None = None
    extra: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    externally_managed: bool | None = None
    tag_value_ids: list[UUID] | None = None
    created_at: str | float | None = None


class WireDatasetChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes to a dataset: null clears a field, an absent field stays as it is."""

    name: str | None = None
    description: str | UnsetType | None = UNSET
    inputs_schema_definition: dict[str, Any] | UnsetType | None = UNSET
    outputs_schema_definition: dict[str, Any] | UnsetType | None = UNSET
    transformations: list[WireTransformation] | UnsetType | None = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET
    baseline_experiment_id: UUID | UnsetType | None = UNSET
    patch_examples: dict[UUID, WireExampleUpdate] | None = None


_UNCHANGED = {"__missing__": "__missing__"}
"""What generated clients send for a field that stays as it is."""


def drop_unchanged(body: bytes) -> bytes:
    """Remove the fields that generated clients mark as unchanged."""
    try:
        fields = loads(body or b"{}")
    except ValueError:
        return body  # the decoder reports the error
    if not isinstance(fields, dict) or _UNCHANGED not in fields.values():
        return body
    return dumps({name: value for name, value in fields.items() if value != _UNCHANGED})


def storable_json(value: Any) -> Any:
    """Return the value in a form that `jsonb` accepts. Raises `Invalid` for other values."""
    try:
        return storable_value(value)
    except ValueError as error:
        raise errors.Invalid(f"The body has JSON that cannot be stored: {error}") from None


def clean_name(name: str, length: int) -> str:
    """Return the name without surrounding blanks; raises `Invalid` if it is empty or too long."""
    name = name.replace("\x00", "\ufffd").strip()
    if not name or len(name) > length:
        raise errors.Invalid(f"`name` must have 1 to {length} characters.")
    return name
