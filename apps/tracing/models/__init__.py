"""Projects and what is kept beside their runs; the runs themselves live behind `tracing.store`."""

from apps.tracing.models.deletion import DeletionStatus, DoomedFile, TraceDeletion
from apps.tracing.models.prices import ModelPrice
from apps.tracing.models.projects import DEFAULT_PROJECT, Project, TraceTier
from apps.tracing.models.retention import KeptTrace, Retention
from apps.tracing.models.run_counts import RunCount
from apps.tracing.models.saved_views import SavedView, ViewType
from apps.tracing.models.sharing import Share

__all__ = [
    "DEFAULT_PROJECT",
    "DeletionStatus",
    "DoomedFile",
    "KeptTrace",
    "ModelPrice",
    "Project",
    "Retention",
    "RunCount",
    "SavedView",
    "Share",
    "TraceDeletion",
    "TraceTier",
    "ViewType",
]
