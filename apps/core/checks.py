"""System checks: tenant models keep the fences of apps.core.tenancy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, register

from apps.core.tenancy import TenantManager, WorkspaceOwned


@register
def tenant_models_have_their_doors(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """Each tenant model has `objects = Rows(...)`, `unscoped` and an index led by the workspace."""
    wanted = {config.label for config in app_configs} if app_configs is not None else None
    found: list[CheckMessage] = []
    for model in apps.get_models():
        if not issubclass(model, WorkspaceOwned):
            continue
        if wanted is not None and model._meta.app_label not in wanted:
            continue
        if not isinstance(vars(model).get("objects"), TenantManager):
            found.append(
                Error("A tenant model needs `objects = Rows(...)`.", obj=model, id="core.E001")
            )
        if "unscoped" not in {manager.name for manager in model._meta.managers}:
            found.append(Error("A tenant model needs `unscoped`.", obj=model, id="core.E002"))
        if not _leads_with_workspace(model):
            found.append(
                Error(
                    "A tenant model needs an index or a unique constraint that begins with"
                    " `workspace`.",
                    obj=model,
                    id="core.E003",
                )
            )
    return found


def _leads_with_workspace(model: type[WorkspaceOwned]) -> bool:
    columns = [index.fields for index in model._meta.indexes]
    columns += [list(getattr(c, "fields", ())) for c in model._meta.constraints]
    return any(fields and fields[0].lstrip("-") == "workspace" for fields in columns)
