"""Projects and their settings; runs are in `apps.trace_store`."""

from apps.tracing.models.deletion import DeletionStatus, PendingFileDeletion, TraceDeletion
from apps.tracing.models.prices import ModelPrice
from apps.tracing.models.projects import DEFAULT_PROJECT, Project, TraceTier
from apps.tracing.models.retention import RetainedTrace, Retention
from apps.tracing.models.run_counts import RunCount
from apps.tracing.models.saved_views import SavedView, ViewType
from apps.tracing.models.sharing import Share

__all__ = [
    "DEFAULT_PROJECT",
    "DeletionStatus",
    "ModelPrice",
    "PendingFileDeletion",
    "Project",
    "RetainedTrace",
    "Retention",
    "RunCount",
    "SavedView",
    "Share",
    "TraceDeletion",
    "TraceTier",
    "ViewType",
]
