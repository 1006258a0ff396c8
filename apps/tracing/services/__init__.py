"""The services of tracing that other apps use."""

from apps.tracing.services.projects import (
    create_project,
    delete_project,
    ensure_addressed_project,
    ensure_default_project,
    ensure_project,
    ensure_projects,
    get_project,
    update_project,
)
from apps.tracing.services.retention import upgrade_traces

__all__ = [
    "create_project",
    "delete_project",
    "ensure_addressed_project",
    "ensure_default_project",
    "ensure_project",
    "ensure_projects",
    "get_project",
    "update_project",
    "upgrade_traces",
]
