"""Tags of projects: assignment and filtering."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Prefetch

from apps.organizations.models import ResourceType, Tagging, TagKey, TagValue
from apps.organizations.services import tags


@dataclass(frozen=True)
class TagChoice:
    """A tag key with its values and the project's value."""

    key: TagKey
    values: list[TagValue]
    selected_id: UUID | None = None

    @property
    def field(self) -> str:
        return f"tag-{self.key.pk}"


def load_tag_choices(workspace_id: UUID, project_id: UUID | None = None) -> list[TagChoice]:
    """Return the tag keys that have values, by name, with the project's values."""
    current = {}
    if project_id is not None:
        for item in tags.list_taggings(workspace_id, ResourceType.PROJECT, [project_id]):
            current[item.tag_value.tag_key_id] = item.tag_value_id
    values = TagValue.objects.for_workspace(workspace_id).order_by("value")
    keys = TagKey.objects.for_workspace(workspace_id).order_by("key")
    keys_with_values = keys.prefetch_related(Prefetch("values", values))
    choices = [
        TagChoice(key, list(key.values.all()), current.get(key.pk)) for key in keys_with_values
    ]
    return [choice for choice in choices if choice.values]


def tags_by_project(workspace_id: UUID, ids: Collection[UUID]) -> Mapping[UUID, list[Tagging]]:
    """Return the tags of these projects."""
    result: dict[UUID, list[Tagging]] = defaultdict(list)
    for item in tags.list_taggings(workspace_id, ResourceType.PROJECT, ids):
        result[item.resource_id].append(item)
    return result


def parse_tag_filter(text: str, choices: Collection[TagChoice]) -> TagValue | None:
    """Return the tag value of a query parameter; None if invalid or unknown."""
    with suppress(ValueError):
        value_id = UUID(text)
        return next((v for choice in choices for v in choice.values if v.pk == value_id), None)
    return None


def set_tags(workspace_id: UUID, project_id: UUID, posted: Mapping[str, str]) -> None:
    """Set the selected value of each submitted key; an empty selection removes the tag."""
    selected: dict[UUID, UUID | None] = {}
    for choice in load_tag_choices(workspace_id, project_id):
        if choice.field in posted:
            value = parse_tag_filter(posted[choice.field], [choice])
            selected[choice.key.pk] = value.pk if value else None
    tags.set_tags(
        workspace_id=workspace_id,
        resource_type=ResourceType.PROJECT,
        resource_id=project_id,
        values_by_key=selected,
    )
