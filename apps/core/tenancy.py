"""Base classes of tenant models, which make an unscoped query hard to write, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar
from uuid import UUID

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import models

from apps.core import errors
from apps.core.ids import uuid7

Q = TypeVar("Q", bound="models.QuerySet[Any]")
M = TypeVar("M", bound=models.Model)


class WorkspaceModel(Protocol):
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

    def for_workspace(self, workspace: WorkspaceModel | UUID) -> Q:
        """Return the rows of one workspace."""
        workspace_id = workspace if isinstance(workspace, UUID) else workspace.pk
        return self.queryset(self.model).filter(workspace_id=workspace_id)

    def across_workspaces(self, *, reason: str) -> Q:
        """Return all rows, for sweepers and reports; `reason` documents the call."""
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


class WorkspaceOwnedUnchecked(WorkspaceOwned):
    """A row of a table with many writes, which do not check that its workspace exists."""

    workspace = models.ForeignKey(
        "organizations.Workspace",
        models.CASCADE,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )

    class Meta:
        abstract = True


def check_row_limit(rows: models.QuerySet[Any], maximum: int, what: str) -> None:
    """Raise `TooMany` if there are more rows than the maximum; `what` is their plural.

    Called after the insert, in its transaction, so that a repeated request finds its row first.
    Transactions at the same time can exceed the maximum by their rows.
    """
    if rows.order_by().values("pk")[: maximum + 1].count() > maximum:
        raise errors.TooMany(f"There may be at most {maximum:,} {what}: delete some first.")


def get_or_404(rows: models.QuerySet[M], **lookup: Any) -> M:
    """Return the matching row or raise `NotFound`; missing and foreign are indistinguishable."""
    try:
        return rows.get(**lookup)
    except (ObjectDoesNotExist, ValidationError, ValueError):
        raise errors.NotFound from None


@register
def check_tenant_models(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Require a `TenantManager`, `unscoped` and an index that starts with the workspace."""
    labels = {config.label for config in app_configs} if app_configs is not None else None
    messages: list[CheckMessage] = []
    for model in apps.get_models():
        if not issubclass(model, WorkspaceOwned):
            continue
        if labels is not None and model._meta.app_label not in labels:
            continue
        if not isinstance(vars(model).get("objects"), TenantManager):
            messages.append(
                Error(
                    "A tenant model needs `objects = TenantManager(...)`.",
                    obj=model,
                    id="core.E001",
                )
            )
        if "unscoped" not in {manager.name for manager in model._meta.managers}:
            messages.append(Error("A tenant model needs `unscoped`.", obj=model, id="core.E002"))
        if not _starts_with_workspace(model):
            messages.append(
                Error(
                    "A tenant model needs an index or a unique constraint that begins with"
                    " `workspace`.",
                    obj=model,
                    id="core.E003",
                )
            )
    return messages


def _starts_with_workspace(model: type[WorkspaceOwned]) -> bool:
    columns = [index.fields for index in model._meta.indexes]
    columns += [list(getattr(c, "fields", ())) for c in model._meta.constraints]
    return any(fields and fields[0].lstrip("-") == "workspace" for fields in columns)
