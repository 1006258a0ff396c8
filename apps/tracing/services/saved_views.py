"""Creating, updating and deleting saved views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.core.tenancy import check_row_limit
from apps.trace_store import filters
from apps.tracing.models import Project, SavedView

FILTER_FIELDS = ("filter_string", "trace_filter_string", "tree_filter_string")
MAX_VIEWS = 500
"""Of a project."""
QUERY_PARAMETERS = ("query", "root", "any", "filter", "trace", "tree")
"""Keys of `shown` with the queries of the page, from which the filters were made."""


@transaction.atomic
def create_view(*, project: Project, **fields: Any) -> SavedView:
    """Create a view of the project; an invalid filter raises `FilterError`."""
    _validate_filters(fields)
    view = SavedView(workspace_id=project.workspace_id, project=project, **fields)
    view.save(force_insert=True)
    views = SavedView.objects.for_workspace(project.workspace_id).filter(project=project)
    check_row_limit(views, MAX_VIEWS, "saved views of a project")
    return view


def update_view(*, view: SavedView, changes: Mapping[str, Any]) -> SavedView:
    """Update the given fields and return the view.

    Filters that change without their queries replace them.
    """
    _validate_filters(changes)
    if "shown" not in changes and not changes.keys().isdisjoint(FILTER_FIELDS):
        shown = {name: view.shown[name] for name in view.shown if name not in QUERY_PARAMETERS}
        changes = {**changes, "shown": shown}
    for name, value in changes.items():
        setattr(view, name, value)
    if changes:
        view.save(update_fields=[*changes, "updated_at"])
    return view


@transaction.atomic
def set_default_view(*, project: Project, view: SavedView | None) -> None:
    """Set the view that the project's page opens with; None for all traces. Idempotent."""
    Project.objects.for_workspace(project.workspace_id).select_for_update(no_key=True).get(
        pk=project.pk
    )
    views = SavedView.objects.for_workspace(project.workspace_id).filter(project=project)
    views.filter(is_default=True).update(is_default=False)
    if view is not None:
        views.filter(pk=view.pk).update(is_default=True)


def delete_view(*, view: SavedView) -> None:
    """Delete the view. Idempotent."""
    SavedView.objects.for_workspace(view.workspace_id).filter(pk=view.pk).delete()


def _validate_filters(fields: Mapping[str, Any]) -> None:
    for name in FILTER_FIELDS:
        if fields.get(name):
            filters.parse(fields[name])
