"""System checks of tenant models (apps.core.tenancy)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, register

from apps.core.tenancy import TenantManager, WorkspaceOwned


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
        if not _leads_with_workspace(model):
            messages.append(
                Error(
                    "A tenant model needs an index or a unique constraint that begins with"
                    " `workspace`.",
                    obj=model,
                    id="core.E003",
                )
            )
    return messages


def _leads_with_workspace(model: type[WorkspaceOwned]) -> bool:
    columns = [index.fields for index in model._meta.indexes]
    columns += [list(getattr(c, "fields", ())) for c in model._meta.constraints]
    return any(fields and fields[0].lstrip("-") == "workspace" for fields in columns)
