"""Naming filters of a project's runs, and changing and dropping what was named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.trace_store import filters
from apps.tracing.models import Project, SavedView

FILTERS = ("filter_string", "trace_filter_string", "tree_filter_string")


def save_view(*, project: Project, **fields: Any) -> SavedView:
    """A new view of the project. A filter that makes no sense is refused with its column."""
    _check(fields)
    view = SavedView(workspace_id=project.workspace_id, project=project, **fields)
    view.save(force_insert=True)
    return view


def change_view(*, view: SavedView, changes: Mapping[str, Any]) -> SavedView:
    """Set the given fields and return the view."""
    _check(changes)
    for name, value in changes.items():
        setattr(view, name, value)
    if changes:
        view.save(update_fields=[*changes, "updated_at"])
    return view


@transaction.atomic
def choose_default(*, project: Project, view: SavedView | None) -> None:
    """The project opens with this view from now on, or with all its traces. Safe to repeat."""
    Project.objects.for_workspace(project.workspace_id).select_for_update(no_key=True).get(
        pk=project.pk
    )
    views = SavedView.objects.for_workspace(project.workspace_id).filter(project=project)
    views.filter(is_default=True).update(is_default=False)
    if view is not None:
        views.filter(pk=view.pk).update(is_default=True)


def drop_view(*, view: SavedView) -> None:
    """The view is gone. Safe to repeat."""
    SavedView.objects.for_workspace(view.workspace_id).filter(pk=view.pk).delete()


def _check(fields: Mapping[str, Any]) -> None:
    for name in FILTERS:
        if fields.get(name):
            filters.parse(fields[name])
