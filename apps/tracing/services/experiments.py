"""Numbering and progress of experiments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from apps.tracing.models import Project


def experiment_numbers(workspace_id: UUID, projects: Collection[Project]) -> dict[UUID, int]:
    """Return each project's ordinal among the experiments of its dataset, from 1."""
    datasets = {
        project.reference_dataset_id for project in projects if project.reference_dataset_id
    }
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


def experiment_progress(
    project: Project, traces: int, feedback: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the completed share of the plan; None without a plan."""
    plan = project.plan or {}
    examples = plan.get("num_examples")
    if not project.reference_dataset_id or not examples:
        return None
    expected = examples * (plan.get("num_repetitions") or 1)
    return {
        "expected_run_count": expected,
        "run_progress": min(traces / expected, 1.0),
        "evaluator_progress": {
            key: min(_count_feedback(feedback.get(key, {})) / expected, 1.0)
            for key in plan.get("evaluator_keys") or ()
        },
    }


def _count_feedback(stats: Mapping[str, Any]) -> int:
    labels: Mapping[str, int] = stats.get("values") or {}
    return int(stats.get("n") or 0) + sum(labels.values())
