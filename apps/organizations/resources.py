"""The things of a workspace that can be tagged and counted; the apps that own them say where."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from apps.organizations.models import ResourceType


@dataclass(frozen=True)
class Resource:
    """A kind of thing."""

    rows: Callable[[UUID], QuerySet[Any]]
    """Those of a workspace that are present."""
    name: str
    """The field that holds the name."""


_known: dict[str, Resource] = {}


def describe(kind: ResourceType, rows: Callable[[UUID], QuerySet[Any]], name: str = "name") -> None:
    """Apps above this one say which rows are of that kind."""
    _known[kind] = Resource(rows, name)


def rows(kind: str, workspace_id: UUID) -> QuerySet[Any] | None:
    """The things of that kind; None for a kind that this installation does not have."""
    resource = _known.get(kind)
    return None if resource is None else resource.rows(workspace_id)


def names(kind: str, workspace_id: UUID, ids: Collection[UUID]) -> dict[UUID, str]:
    """Those of the ids that are in the workspace, with what they are called."""
    resource = _known.get(kind)
    if resource is None or not ids:
        return {}
    found = resource.rows(workspace_id).filter(pk__in=ids)
    return dict(found.values_list("pk", resource.name))
