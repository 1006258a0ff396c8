"""Tag keys, tag values, and their assignment to resources."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, models, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.organizations import hooks
from apps.organizations.errors import TagTaken
from apps.organizations.models import Tagging, TagKey, TagValue
from apps.organizations.querysets import TaggingQuerySet

MAX_KEYS = 100
MAX_VALUES = 1000
MAX_TAGS_PER_REQUEST = 50
"""Tag values per filter, or per created resource."""
Q = TypeVar("Q", bound=models.QuerySet[Any])


@transaction.atomic
def create_key(*, workspace_id: UUID, key: str, description: str = "") -> TagKey:
    row = TagKey(workspace_id=workspace_id, key=key, description=description)
    _save(row)
    _check_count(TagKey.objects.for_workspace(workspace_id), MAX_KEYS, "keys")
    _record(Action.TAG_CREATED, row.workspace_id, row.pk, key, after={"key": key})
    return row


@transaction.atomic
def update_key(*, row: TagKey, changes: Mapping[str, Any]) -> TagKey:
    _update(row, "key", changes)
    return row


@transaction.atomic
def delete_key(*, row: TagKey) -> None:
    """Delete the key with its values and their assignments."""
    _record(Action.TAG_DELETED, row.workspace_id, row.pk, row.key, before={"key": row.key})
    row.delete()


@transaction.atomic
def create_value(*, key: TagKey, value: str, description: str = "") -> TagValue:
    row = TagValue(workspace_id=key.workspace_id, tag_key=key, value=value, description=description)
    _save(row)
    _check_count(
        TagValue.objects.for_workspace(key.workspace_id).filter(tag_key=key), MAX_VALUES, "values"
    )
    after = {"key": key.key, "value": value}
    _record(Action.TAG_CREATED, row.workspace_id, row.pk, f"{key.key}: {value}", after=after)
    return row


@transaction.atomic
def update_value(*, row: TagValue, changes: Mapping[str, Any]) -> TagValue:
    _update(row, "value", changes)
    return row


@transaction.atomic
def delete_value(*, row: TagValue) -> None:
    _record(Action.TAG_DELETED, row.workspace_id, row.pk, row.value, before={"value": row.value})
    row.delete()


@transaction.atomic
def tag(*, value: TagValue, resource_type: str, resource_id: UUID) -> Tagging:
    """Assign the value to a resource of the same workspace. Safe to repeat.

    A resource has one value per key: an earlier one is replaced.
    """
    workspace_id = value.workspace_id
    if not hooks.resource_names(resource_type, workspace_id, [resource_id]):
        raise core_errors.NotFound(f"No such {resource_type} in this workspace.")
    assigned = Tagging.objects.for_workspace(workspace_id).of_resources(
        resource_type, [resource_id]
    )
    if (existing := assigned.filter(tag_value=value).first()) is not None:
        return existing
    _delete_taggings(assigned.filter(tag_value__tag_key_id=value.tag_key_id))
    row = Tagging(
        workspace_id=workspace_id,
        tag_value=value,
        resource_type=resource_type,
        resource_id=resource_id,
    )
    assigned.bulk_create([row], ignore_conflicts=True)
    _record_tagging(Action.TAG_PUT_ON, value, row, "after")
    return assigned.get(tag_value=value)


@transaction.atomic
def add_tags(
    *, workspace_id: UUID, value_ids: Collection[UUID], resource_type: str, resource_id: UUID
) -> None:
    """Assign all the values to a resource; raises if one is missing or two have the same key."""
    rows = TagValue.objects.for_workspace(workspace_id).filter(pk__in=value_ids)
    values = list(rows.order_by("pk"))
    if len(values) < len(set(value_ids)):
        raise core_errors.NotFound(
            "`tag_value_ids` contains a value that is not in this workspace."
        )
    if len({value.tag_key_id for value in values}) < len(values):
        raise core_errors.Invalid("`tag_value_ids` contains two values of the same key.")
    for value in values:
        tag(value=value, resource_type=resource_type, resource_id=resource_id)


def filter_by_tags(
    rows: Q,
    workspace_id: UUID,
    value_ids: Collection[UUID],
    resource_types: Collection[str],
) -> Q:
    """Filter the rows by resources that have all the tag values."""
    taggings = Tagging.objects.for_workspace(workspace_id).filter(resource_type__in=resource_types)
    for value_id in set(value_ids):
        tagged = taggings.filter(tag_value_id=value_id)
        rows = rows.filter(pk__in=tagged.values("resource_id"))
    return rows


@transaction.atomic
def set_tags(
    *,
    workspace_id: UUID,
    resource_type: str,
    resource_id: UUID,
    values_by_key: Mapping[UUID, UUID | None],
) -> None:
    """Set the resource's value of each key; None removes it."""
    assigned = Tagging.objects.for_workspace(workspace_id).of_resources(
        resource_type, [resource_id]
    )
    removed_keys = [key_id for key_id, value_id in values_by_key.items() if value_id is None]
    _delete_taggings(assigned.filter(tag_value__tag_key_id__in=removed_keys))
    value_ids = [value_id for value_id in values_by_key.values() if value_id is not None]
    values = TagValue.objects.for_workspace(workspace_id).filter(pk__in=value_ids)
    for value in values.order_by("pk"):
        tag(value=value, resource_type=resource_type, resource_id=resource_id)


@transaction.atomic
def untag(*, tagging: Tagging) -> None:
    _delete_taggings(Tagging.objects.for_workspace(tagging.workspace_id).filter(pk=tagging.pk))


def delete_taggings(*, workspace_id: UUID, resource_type: str, resource_id: UUID) -> None:
    """Remove all tags of a resource that is being deleted, without audit entries."""
    Tagging.objects.for_workspace(workspace_id).of_resources(resource_type, [resource_id]).delete()


def list_taggings(
    workspace_id: UUID, resource_type: str, resource_ids: Collection[UUID]
) -> list[Tagging]:
    """List the taggings of the resources, by key and value."""
    rows = Tagging.objects.for_workspace(workspace_id).of_resources(
        resource_type, list(resource_ids)
    )
    rows = rows.select_related("tag_value__tag_key")
    return list(rows.order_by("resource_id", "tag_value__tag_key__key", "tag_value__value"))


def _delete_taggings(taggings: TaggingQuerySet) -> None:
    for tagging in taggings.select_related("tag_value__tag_key"):
        _record_tagging(Action.TAG_TAKEN_OFF, tagging.tag_value, tagging, "before")
    taggings.delete()


def _record_tagging(action: Action, value: TagValue, tagging: Tagging, field: str) -> None:
    """Record the assignment in the field `before` or `after`."""
    values = {
        "key": value.tag_key.key,
        "value": value.value,
        "resource_type": tagging.resource_type,
        "resource_id": tagging.resource_id,
    }
    name = f"{value.tag_key.key}: {value.value}"
    _record(action, tagging.workspace_id, value.pk, name, **{field: values})


def _update(row: TagKey | TagValue, name_field: str, changes: Mapping[str, Any]) -> None:
    before = {field: getattr(row, field) for field in (name_field, "description")}
    for field, value in changes.items():
        setattr(row, field, value)
    _save(row)
    after = {field: getattr(row, field) for field in (name_field, "description")}
    _record(
        Action.TAG_UPDATED, row.workspace_id, row.pk, after[name_field], before=before, after=after
    )


def _save(row: models.Model) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise TagTaken from None


def _check_count(rows: models.QuerySet[Any], limit: int, noun: str) -> None:
    if rows.count() > limit:
        raise core_errors.Invalid(f"At most {limit} {noun} are allowed.")


def _record(
    action: Action,
    workspace_id: UUID,
    target_id: UUID,
    name: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    record(
        action, Target("tag", target_id, name), before=before, after=after,
        workspace_id=workspace_id,
    )  # fmt: skip
