"""Reads the run and the example that a judge sees, and records the judge's own run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from apps.core.errors import AppError
from apps.datasets.models import Dataset, ExampleRevision
from apps.evaluators.models import Evaluation, EvaluatorRule
from apps.evaluators.variables import Subject
from apps.experiments.services.results import load_revisions, version_of
from apps.playground.services import call_records
from apps.playground.services.call_records import CallRecord, ModelCallResult
from apps.trace_store import Payload, RunDetail, RunQuery, filters, run_store
from apps.tracing.models import Project
from apps.tracing.services import ensure_project

PROJECT_NAME = "evaluators"
"""The project of the judges' runs, as the public clients name it."""


JUDGE_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR)


def judges_project(workspace_id: UUID) -> Project:
    return ensure_project(workspace_id, PROJECT_NAME)


def find_run(
    evaluation: Evaluation, payloads: Collection[Payload] = JUDGE_PAYLOADS
) -> RunDetail | None:
    """Return the evaluated run; None if it was removed."""
    return run_store.get(
        evaluation.workspace_id,
        evaluation.run_id,
        project_id=evaluation.project_id,
        payloads=payloads,
    )


def matches(rule: EvaluatorRule, run: RunDetail) -> bool:
    """Whether the filters of the rule match the run and its trace."""
    if not (rule.filter or rule.trace_filter or rule.tree_filter):
        return True
    query = RunQuery(
        project_ids=[run.row.project_id],
        run_ids=[run.row.id],
        is_root=True,
        **filters_of(rule),
    )
    return bool(run_store.query(run.row.workspace_id, query, limit=1).runs)


def filters_of(rule: EvaluatorRule) -> dict[str, Any]:
    """The conditions of the rule, as options of `RunQuery`."""
    return {
        "where": _parse(rule.filter),
        "where_root": _parse(rule.trace_filter),
        "where_any": _parse(rule.tree_filter),
    }


def _parse(text: str) -> filters.Expression | None:
    return filters.parse(text) if text else None


def read_subject(run: RunDetail) -> Subject:
    """Return what a judge sees of the run and of its example."""
    row = run.row
    latency = row.latency
    return Subject(
        inputs=run.value(Payload.INPUTS),
        outputs=run.value(Payload.OUTPUTS),
        reference=_find_reference(run),
        run={
            "id": str(row.id),
            "name": row.name,
            "run_type": row.run_type,
            "error": run.value(Payload.ERROR),
            "tags": list(row.tags),
            "metadata": row.metadata,
            "latency": None if latency is None else latency.total_seconds(),
            "total_tokens": row.total_tokens,
        },
    )


def _find_reference(run: RunDetail) -> dict[str, Any] | None:
    revision = find_example(run)
    return None if revision is None else revision.outputs


def find_example(run: RunDetail) -> ExampleRevision | None:
    """The example of a run of an experiment, as of the experiment's version of the dataset."""
    row = run.row
    if row.reference_example_id is None:
        return None
    project = Project.objects.for_workspace(row.workspace_id).filter(pk=row.project_id).first()
    if project is None or project.reference_dataset_id is None:
        return None
    datasets = Dataset.objects.for_workspace(row.workspace_id)
    dataset = datasets.filter(pk=project.reference_dataset_id).first()
    if dataset is None:
        return None
    revisions = load_revisions(dataset, [row.reference_example_id], version_of([project]))
    return revisions.get(row.reference_example_id)


def store_judge_run(record: CallRecord, result: ModelCallResult) -> str:
    """Store the judge's run in the caller's transaction; return why it was refused, or ''."""
    operations = [call_records.build_start(record), call_records.build_end(record, result)]
    try:
        refused = call_records.store(record.workspace_id, operations)
    except AppError as error:
        return error.detail
    return refused.get(record.run_id, "")
