"""What makes a project an experiment: its number among those of its dataset, and how far it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from apps.tracing.models import Project


def numbers(workspace_id: UUID, projects: Collection[Project]) -> dict[UUID, int]:
    """By project: 1 for the dataset's first experiment, 2 for its second, and so on."""
    datasets = {one.reference_dataset_id for one in projects if one.reference_dataset_id}
    if not datasets:
        return {}
    siblings = Project.objects.for_workspace(workspace_id).present()
    numbered = siblings.filter(reference_dataset_id__in=datasets).annotate(
        number=Window(
            RowNumber(),
            partition_by=F("reference_dataset_id"),
            order_by=[F("start_time").asc(), F("pk").asc()],
        )
    )
    return dict(numbered.values_list("pk", "number"))


def progress(
    project: Project, traces: int, feedback: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """How much of what was planned is there; None when nobody said what was planned."""
    plan = project.plan or {}
    examples = plan.get("num_examples")
    if not project.reference_dataset_id or not examples:
        return None
    expected = examples * (plan.get("num_repetitions") or 1)
    return {
        "expected_run_count": expected,
        "run_progress": min(traces / expected, 1.0),
        "evaluator_progress": {
            key: min(_given(feedback.get(key, {})) / expected, 1.0)
            for key in plan.get("evaluator_keys") or ()
        },
    }


def _given(stats: Mapping[str, Any]) -> int:
    labels: Mapping[str, int] = stats.get("values") or {}
    return int(stats.get("n") or 0) + sum(labels.values())
