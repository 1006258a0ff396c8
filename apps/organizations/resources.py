"""Registry of the resource types that can be tagged and counted; their apps register them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from apps.organizations.models import ResourceType


@dataclass(frozen=True)
class Resource:
    """How to query a resource type."""

    rows: Callable[[UUID], QuerySet[Any]]
    """Returns the rows of a workspace that are not deleted."""
    name: str
    """The field of the display name."""


_registry: dict[str, Resource] = {}


def describe(kind: ResourceType, rows: Callable[[UUID], QuerySet[Any]], name: str = "name") -> None:
    """Register how to query resources of the type."""
    _registry[kind] = Resource(rows, name)


def rows(kind: str, workspace_id: UUID) -> QuerySet[Any] | None:
    """Return the workspace's resources of the type; None for an unregistered type."""
    resource = _registry.get(kind)
    return None if resource is None else resource.rows(workspace_id)


def names(kind: str, workspace_id: UUID, ids: Collection[UUID]) -> dict[UUID, str]:
    """Map the ids that exist in the workspace to their names."""
    resource = _registry.get(kind)
    if resource is None or not ids:
        return {}
    matches = resource.rows(workspace_id).filter(pk__in=ids)
    return dict(matches.values_list("pk", resource.name))
