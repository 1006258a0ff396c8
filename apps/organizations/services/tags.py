"""Tags: keys, their values, and the things that they are put on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, models, transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors as core_errors
from apps.organizations import resources
from apps.organizations.errors import TagTaken
from apps.organizations.models import Tagging, TagKey, TagValue
from apps.organizations.querysets import TaggingQuerySet

MAX_KEYS = 100
MAX_VALUES = 1000
MAX_TAGS_PER_REQUEST = 50
"""Values that one question may name, or one thing be made with."""
Q = TypeVar("Q", bound=models.QuerySet[Any])


@transaction.atomic
def create_key(*, workspace_id: UUID, key: str, description: str = "") -> TagKey:
    row = TagKey(workspace_id=workspace_id, key=key, description=description)
    _saved(row)
    _bounded(TagKey.objects.for_workspace(workspace_id), MAX_KEYS, "keys")
    _record(Action.TAG_CREATED, row.workspace_id, row.pk, key, after={"key": key})
    return row


@transaction.atomic
def update_key(*, row: TagKey, changes: Mapping[str, Any]) -> TagKey:
    before = {"key": row.key, "description": row.description}
    for name, value in changes.items():
        setattr(row, name, value)
    _saved(row)
    after = {"key": row.key, "description": row.description}
    _record(Action.TAG_UPDATED, row.workspace_id, row.pk, row.key, before=before, after=after)
    return row


@transaction.atomic
def delete_key(*, row: TagKey) -> None:
    """Take the key, its values, and them off all things."""
    _record(Action.TAG_DELETED, row.workspace_id, row.pk, row.key, before={"key": row.key})
    row.delete()


@transaction.atomic
def create_value(*, key: TagKey, value: str, description: str = "") -> TagValue:
    row = TagValue(workspace_id=key.workspace_id, tag_key=key, value=value, description=description)
    _saved(row)
    _bounded(
        TagValue.objects.for_workspace(key.workspace_id).filter(tag_key=key), MAX_VALUES, "values"
    )
    after = {"key": key.key, "value": value}
    _record(Action.TAG_CREATED, row.workspace_id, row.pk, f"{key.key}: {value}", after=after)
    return row


@transaction.atomic
def update_value(*, row: TagValue, changes: Mapping[str, Any]) -> TagValue:
    before = {"value": row.value, "description": row.description}
    for name, value in changes.items():
        setattr(row, name, value)
    _saved(row)
    after = {"value": row.value, "description": row.description}
    _record(Action.TAG_UPDATED, row.workspace_id, row.pk, row.value, before=before, after=after)
    return row


@transaction.atomic
def delete_value(*, row: TagValue) -> None:
    _record(Action.TAG_DELETED, row.workspace_id, row.pk, row.value, before={"value": row.value})
    row.delete()


@transaction.atomic
def tag(*, value: TagValue, resource_type: str, resource_id: UUID) -> Tagging:
    """Put the value on a thing of the same workspace; what is there already is returned.

    A thing has one value of a key: an earlier one gives way.
    """
    workspace_id = value.workspace_id
    if not resources.names(resource_type, workspace_id, [resource_id]):
        raise core_errors.NotFound(f"There is no such {resource_type} in this workspace.")
    here = Tagging.objects.for_workspace(workspace_id).on(resource_type, [resource_id])
    if (there := here.filter(tag_value=value).first()) is not None:
        return there
    _take_off(here.filter(tag_value__tag_key_id=value.tag_key_id))
    row = Tagging(
        workspace_id=workspace_id,
        tag_value=value,
        resource_type=resource_type,
        resource_id=resource_id,
    )
    here.bulk_create([row], ignore_conflicts=True)
    _record_on(Action.TAG_PUT_ON, value, row, "after")
    return here.get(tag_value=value)


@transaction.atomic
def add_tags(
    *, workspace_id: UUID, value_ids: Collection[UUID], resource_type: str, resource_id: UUID
) -> None:
    """Put all these values on a thing of the workspace, or none when one of them is not there.

    Of one key a thing has one value, so two of them are refused.
    """
    found = TagValue.objects.for_workspace(workspace_id).filter(pk__in=value_ids)
    values = list(found.order_by("pk"))
    if len(values) < len(set(value_ids)):
        raise core_errors.NotFound("There is no such tag value in this workspace.")
    if len({value.tag_key_id for value in values}) < len(values):
        raise core_errors.Invalid("tag_value_ids: two of them are values of the same key.")
    for value in values:
        tag(value=value, resource_type=resource_type, resource_id=resource_id)


def filter_by_tags(
    rows: Q,
    workspace_id: UUID,
    value_ids: Collection[UUID],
    resource_types: Collection[str],
) -> Q:
    """Those of the rows that carry all these values; a value of elsewhere is on none of them."""
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
    wanted: Mapping[UUID, UUID | None],
) -> None:
    """For each key that is given, the thing carries that value of it from then on, or none."""
    here = Tagging.objects.for_workspace(workspace_id).on(resource_type, [resource_id])
    bare = [key_id for key_id, value_id in wanted.items() if value_id is None]
    _take_off(here.filter(tag_value__tag_key_id__in=bare))
    given = [value_id for value_id in wanted.values() if value_id is not None]
    values = TagValue.objects.for_workspace(workspace_id).filter(pk__in=given)
    for value in values.order_by("pk"):
        tag(value=value, resource_type=resource_type, resource_id=resource_id)


@transaction.atomic
def untag(*, tagging: Tagging) -> None:
    _take_off(Tagging.objects.for_workspace(tagging.workspace_id).filter(pk=tagging.pk))


def delete_taggings(*, workspace_id: UUID, resource_type: str, resource_id: UUID) -> None:
    """No value is on the thing any more: it is about to go."""
    Tagging.objects.for_workspace(workspace_id).on(resource_type, [resource_id]).delete()


def list_taggings(
    workspace_id: UUID, resource_type: str, resource_ids: Collection[UUID]
) -> list[Tagging]:
    """What is on these things, by key and value."""
    rows = Tagging.objects.for_workspace(workspace_id).on(resource_type, list(resource_ids))
    rows = rows.select_related("tag_value__tag_key")
    return list(rows.order_by("resource_id", "tag_value__tag_key__key", "tag_value__value"))


def _take_off(taggings: TaggingQuerySet) -> None:
    for tagging in taggings.select_related("tag_value__tag_key"):
        _record_on(Action.TAG_TAKEN_OFF, tagging.tag_value, tagging, "before")
    taggings.delete()


def _record_on(action: Action, value: TagValue, tagging: Tagging, when: str) -> None:
    """Record that a value is on a thing, or that it was."""
    said = {
        "key": value.tag_key.key,
        "value": value.value,
        "resource_type": tagging.resource_type,
        "resource_id": tagging.resource_id,
    }
    name = f"{value.tag_key.key}: {value.value}"
    _record(action, tagging.workspace_id, value.pk, name, **{when: said})


def _saved(row: models.Model) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        raise TagTaken from None


def _bounded(rows: models.QuerySet[Any], most: int, what: str) -> None:
    if rows.count() > most:
        raise core_errors.Invalid(f"There can be at most {most} {what}.")


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
