"""Base classes of tenant models, which make an unscoped query hard to write."""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import models

from apps.core import errors
from apps.core.ids import uuid7

Q = TypeVar("Q", bound="models.QuerySet[Any]")
M = TypeVar("M", bound=models.Model)


class Workspace(Protocol):
    """The workspace model of the organizations app, which is in a higher layer."""

    @property
    def pk(self) -> UUID: ...
    @property
    def organization_id(self) -> UUID: ...
    @property
    def handle(self) -> str | None: ...


class TenantManager(Generic[Q]):
    """`Model.objects` of a tenant model, without `all`, `get` and `filter`."""

    def __init__(self, queryset: type[Q], model: type[models.Model] | None = None) -> None:
        self.queryset, self.model = queryset, model

    def __get__(self, instance: None, model: type[models.Model]) -> Self:
        return type(self)(self.queryset, model)

    def for_workspace(self, workspace: Workspace | UUID) -> Q:
        """Return the rows of one workspace."""
        workspace_id = workspace if isinstance(workspace, UUID) else workspace.pk
        return self.queryset(self.model).filter(workspace_id=workspace_id)

    def across_workspaces(self, *, reason: str) -> Q:
        """For sweepers and reports; `reason` documents the call and can be searched for."""
        return self.queryset(self.model)


class WorkspaceOwned(models.Model):
    """A row that belongs to one workspace."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(
        "organizations.Workspace", models.CASCADE, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


def get_or_404(rows: models.QuerySet[M], **lookup: Any) -> M:
    """Return the matching row or raise `NotFound`; missing and foreign are indistinguishable."""
    try:
        return rows.get(**lookup)
    except (ObjectDoesNotExist, ValidationError, ValueError):
        raise errors.NotFound from None
