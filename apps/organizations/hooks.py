"""Hooks and taggable resource types, which higher apps register in `AppConfig.ready`.

A hook runs in the transaction of the change; an exception rolls the change back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec
from uuid import UUID

from django.db.models import QuerySet

from apps.organizations.models import Organization, ResourceType, Workspace

P = ParamSpec("P")


class Hook(Generic[P]):
    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def connect(self, function: Callable[P, object]) -> Callable[P, object]:
        """Connect the function; repeating has no effect. Usable as a decorator."""
        if function not in self._functions:
            self._functions.append(function)
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for function in self._functions:
            function(*args, **kwargs)


workspace_created: Hook[[Workspace]] = Hook()
workspace_deleted: Hook[[Workspace]] = Hook()
"""Stop the running work of the workspace and delete its data."""
secrets_changing: Hook[[UUID, Mapping[str, str | None]]] = Hook()
"""The workspace's id and the new values of secrets, None to delete one."""
member_removed: Hook[[UUID, UUID]] = Hook()
"""Ids of the organization and the user."""
public_links_revoked: Hook[[Organization]] = Hook()
"""Revoke every public link of the organization."""


@dataclass(frozen=True)
class ResourceQuery:
    """How to query a resource type."""

    rows: Callable[[UUID], QuerySet[Any]]
    """Returns the rows of a workspace that are not deleted."""
    name: str
    """The field of the display name."""


_registry: dict[str, ResourceQuery] = {}


def register_resource(
    kind: ResourceType, rows: Callable[[UUID], QuerySet[Any]], name: str = "name"
) -> None:
    """Register how to query resources of the type."""
    _registry[kind] = ResourceQuery(rows, name)


def resource_rows(kind: str, workspace_id: UUID) -> QuerySet[Any] | None:
    """Return the workspace's resources of the type; None for an unregistered type."""
    resource = _registry.get(kind)
    return None if resource is None else resource.rows(workspace_id)


def resource_names(kind: str, workspace_id: UUID, ids: Collection[UUID]) -> dict[UUID, str]:
    """Map the ids that exist in the workspace to their names."""
    resource = _registry.get(kind)
    if resource is None or not ids:
        return {}
    matches = resource.rows(workspace_id).filter(pk__in=ids)
    return dict(matches.values_list("pk", resource.name))
