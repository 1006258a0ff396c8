"""Checks the bodies that create and change datasets, and returns the fields of the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from apps.core import errors as core_errors
from apps.datasets.models import NAME_LENGTH, DataType
from apps.datasets.services.content import check_schema
from apps.datasets.services.transformations import check_transformations
from apps.datasets.wire import (
    WireDataset,
    WireDatasetChanges,
    WireExampleUpdate,
    WireTransformation,
    clean_name,
    decode,
    drop_unchanged,
    parse_time_field,
    storable_json,
)


def dataset_fields(body: bytes) -> dict[str, Any]:
    """Return the arguments of `create_dataset`."""
    wire = decode(body, WireDataset)
    extra = dict(wire.extra or {})
    if wire.metadata is not None:
        extra["metadata"] = wire.metadata
    if not isinstance(extra.get("metadata"), dict | None):
        raise core_errors.Invalid("`extra.metadata` must be an object or null.")
    fields = {
        "name": clean_name(wire.name, NAME_LENGTH),
        "description": _clean_text(wire.description),
        "data_type": wire.data_type or DataType.KEY_VALUE,
        "extra": storable_json(extra),
        "inputs_schema": _checked_schema(wire.inputs_schema_definition, "inputs"),
        "outputs_schema": _checked_schema(wire.outputs_schema_definition, "outputs"),
        "transformations": _checked_transformations(wire.transformations),
        "externally_managed": bool(wire.externally_managed),
        "tag_value_ids": wire.tag_value_ids or (),
    }
    if wire.id is not None:
        fields["id"] = wire.id
    created_at = parse_time_field(wire.created_at, "created_at")
    if created_at is not None:
        fields["created_at"] = created_at
    return fields


def dataset_changes(body: bytes) -> tuple[dict[str, Any], list[WireExampleUpdate]]:
    """Return the changed fields of the row with `metadata`, and the changes of examples."""
    wire = decode(drop_unchanged(body), WireDatasetChanges)
    changes: dict[str, Any] = {}
    if wire.name is not None:
        changes["name"] = clean_name(wire.name, NAME_LENGTH)
    if wire.description is not UNSET:
        changes["description"] = _clean_text(wire.description)
    if wire.inputs_schema_definition is not UNSET:
        changes["inputs_schema"] = _checked_schema(wire.inputs_schema_definition, "inputs")
    if wire.outputs_schema_definition is not UNSET:
        changes["outputs_schema"] = _checked_schema(wire.outputs_schema_definition, "outputs")
    if wire.transformations is not UNSET:
        changes["transformations"] = _checked_transformations(wire.transformations)
    if wire.metadata is not UNSET:
        changes["metadata"] = storable_json(wire.metadata)
    if wire.baseline_experiment_id is not UNSET:
        changes["baseline_experiment_id"] = wire.baseline_experiment_id
    return changes, _example_patches(wire)


def _example_patches(wire: WireDatasetChanges) -> list[WireExampleUpdate]:
    patches = []
    for example_id, patch in (wire.patch_examples or {}).items():
        if patch.id not in {None, example_id}:
            raise core_errors.Invalid("`patch_examples`: a change has the id of another example.")
        patch.id = example_id
        patches.append(patch)
    return patches


def _clean_text(text: Any) -> Any:
    return None if text is None else text.replace("\x00", "\ufffd")


def _checked_schema(schema: Any, name: str) -> Any:
    if schema is None:
        return None
    check_schema(schema, f"{name}_schema_definition")
    return storable_json(schema)


def _checked_transformations(transformations: Sequence[WireTransformation] | Any) -> Any:
    return None if transformations is None else check_transformations(transformations)
