"""Tags on projects: what each carries, and what the list can be narrowed by."""

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
class Choice:
    """A key, its values, and the one that a project carries."""

    key: TagKey
    values: list[TagValue]
    chosen: UUID | None = None

    @property
    def field(self) -> str:
        return f"tag-{self.key.pk}"


def choices(workspace_id: UUID, project_id: UUID | None = None) -> list[Choice]:
    """The keys that have values, by name; with what the project carries."""
    carried = {}
    if project_id is not None:
        for one in tags.list_taggings(workspace_id, ResourceType.PROJECT, [project_id]):
            carried[one.tag_value.tag_key_id] = one.tag_value_id
    values = TagValue.objects.for_workspace(workspace_id).order_by("value")
    keys = TagKey.objects.for_workspace(workspace_id).order_by("key")
    found = keys.prefetch_related(Prefetch("values", values))
    offered = [Choice(key, list(key.values.all()), carried.get(key.pk)) for key in found]
    return [choice for choice in offered if choice.values]


def on_projects(workspace_id: UUID, ids: Collection[UUID]) -> Mapping[UUID, list[Tagging]]:
    """What these projects carry, by key."""
    found: dict[UUID, list[Tagging]] = defaultdict(list)
    for one in tags.list_taggings(workspace_id, ResourceType.PROJECT, ids):
        found[one.resource_id].append(one)
    return found


def chosen(given: str, offered: Collection[Choice]) -> TagValue | None:
    """The value that an address names; None for nonsense and what is not here."""
    with suppress(ValueError):
        wanted = UUID(given)
        return next((v for choice in offered for v in choice.values if v.pk == wanted), None)
    return None


def put(workspace_id: UUID, project_id: UUID, posted: Mapping[str, str]) -> None:
    """Carry what was chosen for each key that the form had; an empty choice takes it off."""
    wanted: dict[UUID, UUID | None] = {}
    for choice in choices(workspace_id, project_id):
        if choice.field in posted:
            value = chosen(posted[choice.field], [choice])
            wanted[choice.key.pk] = value.pk if value else None
    tags.set_tags(
        workspace_id=workspace_id,
        resource_type=ResourceType.PROJECT,
        resource_id=project_id,
        values_by_key=wanted,
    )
