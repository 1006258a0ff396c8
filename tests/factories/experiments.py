from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from apps.core.json import dumps
from apps.datasets.wire import decode
from apps.experiments.models import ComparativeExperiment
from apps.experiments.services.uploads import upload_experiment
from apps.experiments.wire import WireUpload
from apps.organizations.models import Workspace
from apps.tracing.models import Project


def create_comparison_row(workspace: Workspace, mark: str, *, dataset_id: UUID) -> UUID:
    """The id of a comparison of the dataset's experiments, marked with the name."""
    projects = Project.objects.for_workspace(workspace).filter(reference_dataset_id=dataset_id)
    comparison = ComparativeExperiment(
        workspace=workspace,
        dataset_id=dataset_id,
        name=mark,
        description=mark,
        extra={"metadata": {mark: mark}},
        experiment_ids=list(projects.values_list("pk", flat=True)),
    )
    comparison.save()
    return comparison.pk


@dataclass(frozen=True)
class UploadedRow:
    """A question with its run; rows with the same question are repetitions."""

    question: str
    reference: str
    answer: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 1


def upload_rows(
    workspace: Workspace,
    name: str,
    rows: Iterable[UploadedRow],
    *,
    dataset_name: str = "questions",
    start: datetime = datetime(2026, 11, 1, tzinfo=UTC),
    **fields: Any,
) -> Project:
    """Store a finished experiment; the dataset is created by the first one."""
    results = []
    for number, row in enumerate(rows):
        begin = start + timedelta(minutes=number)
        results.append(
            {
                "row_id": str(uuid5(workspace.pk, row.question)),
                "inputs": {"question": row.question},
                "expected_outputs": {"answer": row.reference},
                "actual_outputs": None if row.answer is None else {"answer": row.answer},
                "start_time": begin.isoformat(),
                "end_time": (begin + timedelta(seconds=row.seconds)).isoformat(),
                "error": row.error,
                "evaluation_scores": [
                    {"key": key, "score": score} for key, score in row.scores.items()
                ],
            }
        )
    body = {
        "experiment_name": name,
        "experiment_start_time": start.isoformat(),
        "experiment_end_time": (start + timedelta(days=20)).isoformat(),
        "dataset_name": dataset_name,
        "results": results,
        **fields,
    }
    upload = decode(dumps(body), WireUpload)
    _, project = upload_experiment(workspace_id=workspace.pk, upload=upload, user_id=None)
    return project
