"""Scores that are computed from other scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from django.db import IntegrityError, transaction
from django.db.models import Q

from apps.core.tenancy import get_or_404
from apps.feedback import dispatch, errors
from apps.feedback.models import Feedback, FeedbackFormula
from apps.feedback.services.rows import write_rows
from apps.trace_store.store.raw import raw_cursor
from apps.tracing.models import Project

Target = tuple[UUID, UUID | None]
"""A project, and one of its runs or the project itself."""

SOURCE = {"type": "__ls_composite_feedback"}
_AT_ONCE = 1000


def recompute(workspace_id: UUID, targets: Collection[Target], keys: Collection[str]) -> None:
    """Compute again, on these targets, what depends on one of these keys.

    In the caller's transaction, after the parts have changed in it: the formula's lock lets the
    later of two that change parts of one run see the other's.
    """
    projects = {project_id for project_id, _ in targets}
    datasets = Project.objects.for_workspace(workspace_id).filter(pk__in=projects)
    found = FeedbackFormula.objects.for_workspace(workspace_id).filter(
        Q(project_id__in=projects) | Q(dataset_id__in=datasets.values("reference_dataset_id"))
    )
    wanted = sorted(one.pk for one in found if set(one.part_keys) & set(keys))
    for formula in _locked(workspace_id, wanted):
        _compute(formula, list(targets))


def _locked(workspace_id: UUID, formula_ids: Sequence[UUID]) -> Sequence[FeedbackFormula]:
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
    """Write what the formula gives on each target, and take away what it gives no longer."""
    workspace_id = formula.workspace_id
    projects = _in_scope(formula, {project_id for project_id, _ in targets})
    run_ids = [run_id for _, run_id in targets if run_id is not None]
    scores: dict[Target, dict[str, float]] = {}
    facts: dict[Target, _Facts] = {}
    with raw_cursor() as cursor:
        cursor.execute(
            _SCORES,
            [workspace_id, projects, formula.part_keys, run_ids, len(run_ids) < len(targets)],
        )
        for project_id, run_id, key, score, *rest in cursor:
            scores.setdefault((project_id, run_id), {})[key] = score
            facts[project_id, run_id] = _Facts(*rest)
    rows = []
    for target, by_key in scores.items():
        if (score := formula.score(by_key)) is not None:
            rows.append(_row(formula, target, score, facts[target]))
    written = write_rows(workspace_id, rows)
    asked = {_id_of(formula, target) for target in targets}
    Feedback.objects.for_workspace(workspace_id).filter(pk__in=asked - written).delete()


def _in_scope(formula: FeedbackFormula, projects: Collection[UUID]) -> list[UUID]:
    if formula.project_id is not None:
        return [formula.project_id]
    of = Project.objects.for_workspace(formula.workspace_id).filter(
        pk__in=projects, reference_dataset_id=formula.dataset_id
    )
    return list(of.values_list("pk", flat=True))


def _id_of(formula: FeedbackFormula, target: Target) -> UUID:
    return uuid5(formula.pk, f"{target[0]}/{target[1]}")


class _Facts(NamedTuple):
    """What a computed score shares with its parts."""

    trace_id: UUID | None
    is_root: bool | None
    start_time: datetime | None
    thread_key: str | None
    created_at: datetime


def _row(formula: FeedbackFormula, target: Target, score: float, facts: _Facts) -> Feedback:
    return Feedback(
        id=_id_of(formula, target),
        workspace_id=formula.workspace_id,
        project_id=target[0],
        run_id=target[1],
        key=formula.key,
        score=score,
        source=SOURCE,
        source_type=SOURCE["type"],
        formula_id=formula.pk,
        **facts._asdict(),
    )


def create_formula(workspace_id: UUID, **fields: Any) -> FeedbackFormula:
    """Make a formula; what is scored already is computed soon after."""
    if fields.get("project_id") is not None:
        projects = Project.objects.for_workspace(workspace_id).present()
        get_or_404(projects, pk=fields["project_id"])
    return _saved(FeedbackFormula(workspace_id=workspace_id, **fields))


def change_formula(formula: FeedbackFormula, **fields: Any) -> FeedbackFormula:
    """Set its key, way and parts; everything it gave is computed again soon after."""
    for name, value in fields.items():
        setattr(formula, name, value)
    formula.is_stale = True
    return _saved(formula)


def _saved(formula: FeedbackFormula) -> FeedbackFormula:
    try:
        with transaction.atomic():
            formula.save()
            dispatch.compute_formulas()
    except IntegrityError:
        raise errors.FeedbackFormulaExists from None
    return formula


@transaction.atomic
def delete_formula(formula: FeedbackFormula) -> None:
    """The formula and all that it gave."""
    Feedback.objects.for_workspace(formula.workspace_id).filter(formula=formula).delete()
    formula.delete()


def compute_stale() -> None:
    """Compute what new and changed formulas give. Safe to repeat and to stop anywhere."""
    stale = FeedbackFormula.objects.across_workspaces(reason="computes what became stale")
    for formula in stale.filter(is_stale=True).order_by("modified_at"):
        _compute_everywhere(formula)


def _compute_everywhere(formula: FeedbackFormula) -> None:
    began = _database_time()
    formulas = FeedbackFormula.objects.for_workspace(formula.workspace_id)
    for targets in _targets(formula):
        with transaction.atomic():
            _locked(formula.workspace_id, [formula.pk])
            _compute(formula, targets)
    with transaction.atomic():
        _locked(formula.workspace_id, [formula.pk])
        # What was not written again rests on keys that are no part any more.
        Feedback.objects.for_workspace(formula.workspace_id).filter(
            formula=formula, modified_at__lt=began
        ).delete()
        formulas.filter(pk=formula.pk, modified_at=formula.modified_at).update(is_stale=False)


def _database_time() -> datetime:
    """By the clock that stamps the rows."""
    with raw_cursor() as cursor:
        rows: list[tuple[datetime]] = cursor.execute("SELECT clock_timestamp()").fetchall()
        return rows[0][0]


def _targets(formula: FeedbackFormula) -> Iterator[list[Target]]:
    """All that have a score for one of the formula's parts, some at a time."""
    projects: list[UUID] = [formula.project_id] if formula.project_id is not None else []
    if formula.dataset_id is not None:
        of = Project.objects.for_workspace(formula.workspace_id).present()
        projects = list(
            of.filter(reference_dataset_id=formula.dataset_id).values_list("pk", flat=True)
        )
    rows = (
        Feedback.objects.for_workspace(formula.workspace_id)
        .filter(project_id__in=projects, key__in=formula.part_keys, formula=None)
        .order_by("run_id")
    )
    last = UUID(int=0)
    on_project = rows.filter(run_id=None).values_list("project_id", flat=True).distinct()
    if found := [(project_id, None) for project_id in on_project.order_by("project_id")]:
        yield list(found)
    while True:
        after = rows.filter(run_id__gt=last).values_list("project_id", "run_id")[:_AT_ONCE]
        some = {(project_id, run_id) for project_id, run_id in after if project_id is not None}
        if not some:
            return
        yield sorted(some, key=str)
        last = max(run_id for _, run_id in some if run_id is not None)
