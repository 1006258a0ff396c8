"""Formulas: scores that are computed from other scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from django.db import IntegrityError, transaction
from django.db.models import Q

from apps.core.connections import raw_cursor
from apps.core.errors import NotFound
from apps.core.tenancy import check_row_limit
from apps.feedback import dispatch, errors
from apps.feedback.models import Feedback, FeedbackFormula
from apps.feedback.projects import datasets_of_projects, experiments_on_dataset, project_exists
from apps.feedback.services.upsert import upsert_feedback

MAX_FORMULAS = 1_000
Target = tuple[UUID, UUID | None]
"""Ids of a project and of one of its runs; without a run id, the project itself."""

SOURCE = {"type": "__ls_composite_feedback"}
_BATCH_SIZE = 1000


def recompute(workspace_id: UUID, targets: Collection[Target], keys: Collection[str]) -> None:
    """Recompute the formulas that depend on one of the keys, for the targets.

    The caller changes the parts first, in the same transaction. The lock on the formula serializes
    transactions that change parts of one run, so that the last one sees all changes.
    """
    projects = {project_id for project_id, _ in targets}
    datasets = datasets_of_projects(workspace_id, projects)
    candidates = FeedbackFormula.objects.for_workspace(workspace_id).filter(
        Q(project_id__in=projects) | Q(dataset_id__in=datasets)
    )
    formula_ids = sorted(
        candidate.pk for candidate in candidates if set(candidate.part_keys) & set(keys)
    )
    for formula in _lock(workspace_id, formula_ids):
        _compute(formula, list(targets))


def _lock(workspace_id: UUID, formula_ids: Sequence[UUID]) -> Sequence[FeedbackFormula]:
    if not formula_ids:
        return ()
    formulas = FeedbackFormula.objects.for_workspace(workspace_id).filter(pk__in=formula_ids)
    return list(formulas.select_for_update(no_key=True).order_by("pk"))


_SCORES = """
    SELECT project_id, run_id, key, avg(score), min(trace_id::text)::uuid, bool_or(is_root),
           min(start_time), min(thread_key), max(created_at)
    FROM feedback_feedback
    WHERE workspace_id = %s AND project_id = ANY(%s) AND key = ANY(%s) AND score IS NOT NULL
      AND formula_id IS NULL AND (run_id = ANY(%s) OR (%s AND run_id IS NULL))
    GROUP BY project_id, run_id, key
"""


def _compute(formula: FeedbackFormula, targets: Sequence[Target]) -> None:
    """Write the score of each target; delete the scores of targets that lack a part."""
    workspace_id = formula.workspace_id
    projects = _projects_in_scope(formula, {project_id for project_id, _ in targets})
    run_ids = [run_id for _, run_id in targets if run_id is not None]
    scores: dict[Target, dict[str, float]] = {}
    shared: dict[Target, _SharedFields] = {}
    with raw_cursor() as cursor:
        cursor.execute(
            _SCORES,
            [workspace_id, projects, formula.part_keys, run_ids, len(run_ids) < len(targets)],
        )
        for project_id, run_id, key, score, *shared_fields in cursor:
            scores.setdefault((project_id, run_id), {})[key] = score
            shared[project_id, run_id] = _SharedFields(*shared_fields)
    rows = []
    for target, by_key in scores.items():
        if (score := formula.score(by_key)) is not None:
            rows.append(_build_row(formula, target, score, shared[target]))
    written = upsert_feedback(workspace_id, rows)
    computed = {_computed_id(formula, target) for target in targets}
    Feedback.objects.for_workspace(workspace_id).filter(pk__in=computed - written).delete()


def _projects_in_scope(formula: FeedbackFormula, projects: Collection[UUID]) -> list[UUID]:
    if formula.project_id is not None:
        return [formula.project_id]
    if formula.dataset_id is None:
        return []
    return experiments_on_dataset(formula.workspace_id, formula.dataset_id, projects)


def _computed_id(formula: FeedbackFormula, target: Target) -> UUID:
    return uuid5(formula.pk, f"{target[0]}/{target[1]}")


class _SharedFields(NamedTuple):
    """The fields that a computed score takes from its parts."""

    trace_id: UUID | None
    is_root: bool | None
    start_time: datetime | None
    thread_key: str | None
    created_at: datetime


def _build_row(
    formula: FeedbackFormula, target: Target, score: float, shared: _SharedFields
) -> Feedback:
    return Feedback(
        id=_computed_id(formula, target),
        workspace_id=formula.workspace_id,
        project_id=target[0],
        run_id=target[1],
        key=formula.key,
        score=score,
        source=SOURCE,
        source_type=SOURCE["type"],
        formula_id=formula.pk,
        **shared._asdict(),
    )


def create_formula(workspace_id: UUID, **fields: Any) -> FeedbackFormula:
    """Create a formula; a task applies it to existing feedback."""
    project_id = fields.get("project_id")
    if project_id is not None and not project_exists(workspace_id, project_id):
        raise NotFound
    return _save(FeedbackFormula(workspace_id=workspace_id, **fields))


def change_formula(formula: FeedbackFormula, **fields: Any) -> FeedbackFormula:
    """Change key, aggregation and parts; a task recomputes all scores."""
    for name, value in fields.items():
        setattr(formula, name, value)
    formula.is_stale = True
    return _save(formula)


def _save(formula: FeedbackFormula) -> FeedbackFormula:
    try:
        with transaction.atomic():
            formula.save()
            formulas = FeedbackFormula.objects.for_workspace(formula.workspace_id)
            check_row_limit(formulas, MAX_FORMULAS, "feedback formulas of a workspace")
            dispatch.compute_formulas()
    except IntegrityError:
        raise errors.FeedbackFormulaExists from None
    return formula


@transaction.atomic
def delete_formula(formula: FeedbackFormula) -> None:
    """Delete the formula and its scores."""
    Feedback.objects.for_workspace(formula.workspace_id).filter(formula=formula).delete()
    formula.delete()


def compute_stale() -> None:
    """Apply new and changed formulas to existing feedback. Safe to repeat and to interrupt."""
    stale = FeedbackFormula.objects.across_workspaces(reason="computes stale formulas")
    for formula in stale.filter(is_stale=True).order_by("modified_at"):
        _compute_everywhere(formula)


def _compute_everywhere(formula: FeedbackFormula) -> None:
    started_at = _database_time()
    formulas = FeedbackFormula.objects.for_workspace(formula.workspace_id)
    for targets in _target_batches(formula):
        with transaction.atomic():
            _lock(formula.workspace_id, [formula.pk])
            _compute(formula, targets)
    with transaction.atomic():
        _lock(formula.workspace_id, [formula.pk])
        # Delete scores that the batches did not rewrite: their keys are no longer parts.
        Feedback.objects.for_workspace(formula.workspace_id).filter(
            formula=formula, modified_at__lt=started_at
        ).delete()
        formulas.filter(pk=formula.pk, modified_at=formula.modified_at).update(is_stale=False)


def _database_time() -> datetime:
    """Return the database time, because the database also sets `modified_at`."""
    with raw_cursor() as cursor:
        rows: list[tuple[datetime]] = cursor.execute("SELECT clock_timestamp()").fetchall()
        return rows[0][0]


def _target_batches(formula: FeedbackFormula) -> Iterator[list[Target]]:
    """Yield batches of the targets that have a score for a part of the formula."""
    projects: list[UUID] = [formula.project_id] if formula.project_id is not None else []
    if formula.dataset_id is not None:
        projects = experiments_on_dataset(formula.workspace_id, formula.dataset_id)
    rows = (
        Feedback.objects.for_workspace(formula.workspace_id)
        .filter(project_id__in=projects, key__in=formula.part_keys, formula=None)
        .order_by("run_id")
    )
    last_run_id = UUID(int=0)
    on_project = rows.filter(run_id=None).values_list("project_id", flat=True).distinct()
    if targets := [(project_id, None) for project_id in on_project.order_by("project_id")]:
        yield list(targets)
    while True:
        page = rows.filter(run_id__gt=last_run_id).values_list("project_id", "run_id")
        batch = {
            (project_id, run_id)
            for project_id, run_id in page[:_BATCH_SIZE]
            if project_id is not None
        }
        if not batch:
            return
        yield sorted(batch, key=str)
        last_run_id = max(run_id for _, run_id in batch if run_id is not None)
