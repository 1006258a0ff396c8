"""Projects and what is kept beside their runs; the runs themselves live behind `tracing.store`."""

from apps.tracing.models.feedback import Feedback
from apps.tracing.models.intake import HeldOperation, IngestCount
from apps.tracing.models.projects import DEFAULT_PROJECT, Project, TraceTier

__all__ = ["DEFAULT_PROJECT", "Feedback", "HeldOperation", "IngestCount", "Project", "TraceTier"]
