"""Finds the run or the example on which an evaluator is tried."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from apps.core.callers import Caller
from apps.datasets.models import Dataset, ExampleRevision
from apps.evaluators.errors import BadEvaluator
from apps.evaluators.services import traces
from apps.trace_store import RunDetail, RunQuery, run_store
from apps.tracing.models import Project

_MAX_EXPERIMENTS = 5


@dataclass(frozen=True, slots=True)
class TrialSubject:
    """A run, or the newest example of the dataset if there is no run."""

    name: str
    run: RunDetail | None = None
    example: ExampleRevision | None = None


def find(
    caller: Caller, dataset: Dataset | None, project: Project | None, run_id: UUID | None
) -> TrialSubject:
    """Return the run, or without an id the newest that a rule would score.

    Raises `BadEvaluator` if there is none.
    """
    if run_id is not None:
        run = run_store.get(caller.workspace_id, run_id)
        if run is None:
            raise BadEvaluator("The workspace has no such run.")
    else:
        run = _find_newest(caller.workspace_id, dataset, project)
    if run is not None:
        return TrialSubject(f"the run {run.row.name}", run=run)
    if dataset is None:
        raise BadEvaluator("The project has no finished trace yet.")
    example = newest_example(dataset)
    return TrialSubject("an example, with its reference as the output", example=example)


def newest_example(dataset: Dataset) -> ExampleRevision:
    """Raises `BadEvaluator`."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    revision = rows.as_of(None).newest_first().first()
    if revision is None:
        raise BadEvaluator("The dataset has no example yet.")
    return revision


def _find_newest(
    workspace_id: UUID, dataset: Dataset | None, project: Project | None
) -> RunDetail | None:
    """The newest trace that ended without an error."""
    if project is not None:
        project_ids = [project.pk]
    else:
        rows = Project.objects.for_workspace(workspace_id).present()
        rows = rows.filter(reference_dataset_id=None if dataset is None else dataset.pk)
        ids = rows.order_by("-start_time").values_list("pk", flat=True)
        project_ids = list(ids[:_MAX_EXPERIMENTS])
    if not project_ids:
        return None
    query = RunQuery(project_ids=project_ids, is_root=True, has_error=False)
    page = run_store.query(workspace_id, query, limit=5, payloads=traces.JUDGE_PAYLOADS)
    return next((run for run in page.runs if run.row.end_time is not None), None)
