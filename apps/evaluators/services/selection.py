"""Finds the finished root runs that rules apply to, and enqueues their evaluations.

A post-processing step of the run store: it sees each changed run, at least once, in the transaction
that completes the change. A unique constraint makes it one evaluation for each run and rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from apps.evaluators.models import Evaluation, EvaluatorRule
from apps.evaluators.services.traces import PROJECT_NAME
from apps.experiment_jobs.models import ExperimentJob
from apps.organizations.models import Workspace
from apps.trace_store import ChangedRun, Status, run_store
from apps.tracing.models import Project

SETTLE_TIME = timedelta(seconds=60)
"""After the end of a root run: the rest of its trace, which filters may ask for, comes meanwhile.
Rules of a project wait for it, and those of a dataset with a filter of the tree."""
REMOVAL_STATEMENT = """
DELETE FROM evaluators_evaluation e USING {runs} r
WHERE e.workspace_id = r.workspace_id AND e.run_id = r.id
"""
"""Deletes the evaluations of removed runs, see `apps.trace_store.hooks.register_removal`."""


class EvaluatedRun(NamedTuple):
    """A run that a rule applies to."""

    id: UUID
    project_id: UUID
    example_id: UUID | None


def select_changed_runs(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Enqueue the evaluations of the finished root runs among these. Safe to repeat."""
    roots = [run for run in changed_runs if run.run_id == run.trace_id]
    if not roots:
        return
    rules = _find_rules(workspace_id, {run.project_id for run in roots})
    if not rules:
        return
    keys = [
        (run.run_id, run.project_id, run.partition_time)
        for run in roots
        if any(is_sampled(rule, run.run_id) for rule in rules.get(run.project_id, ()))
    ]
    rows = run_store.fetch_rows_by_key(workspace_id, keys) if keys else []
    finished = [row for row in rows if row.is_root and row.status is not Status.PENDING]
    enqueue(
        workspace_id,
        [
            (rule, EvaluatedRun(row.id, row.project_id, row.reference_example_id))
            for row in finished
            for rule in rules[row.project_id]
            if row.received_at >= rule.applies_from and is_sampled(rule, row.id)
        ],
    )


def _find_rules(
    workspace_id: UUID, project_ids: Collection[UUID]
) -> dict[UUID, list[EvaluatorRule]]:
    """Return the enabled rules of each of the projects that has one."""
    rows = EvaluatorRule.objects.for_workspace(workspace_id).with_actions()
    enabled = rows.filter(is_enabled=True)
    # Of the evaluator, only its type: a prompt or a source may be large.
    rules = list(enabled.select_related("evaluator").defer("evaluator__setting", "evaluator__code"))
    if not rules:
        return {}
    projects = Project.objects.for_workspace(workspace_id).present().filter(pk__in=project_ids)
    datasets = {rule.dataset_id for rule in rules if rule.dataset_id is not None}
    bound = {rule.project_id for rule in rules if rule.project_id is not None}
    projects = projects.filter(Q(pk__in=bound) | Q(reference_dataset_id__in=datasets))
    by_project: dict[UUID, list[EvaluatorRule]] = {}
    for project in projects.exclude(name=PROJECT_NAME):
        dataset_id = project.reference_dataset_id
        by_project[project.pk] = [
            rule
            for rule in rules
            if rule.project_id == project.pk
            or (dataset_id is not None and rule.dataset_id == dataset_id)
        ]
    return _restrict_to_chosen(workspace_id, by_project)


def _restrict_to_chosen(
    workspace_id: UUID, rules: dict[UUID, list[EvaluatorRule]]
) -> dict[UUID, list[EvaluatorRule]]:
    """Keep of each experiment the rules that were chosen when it was started, if some were."""
    jobs = ExperimentJob.objects.for_workspace(workspace_id).filter(
        experiment__in=list(rules), evaluator_rule_ids__isnull=False
    )
    for experiment_id, chosen in jobs.values_list("experiment_id", "evaluator_rule_ids"):
        rules[experiment_id] = [rule for rule in rules[experiment_id] if rule.pk in (chosen or ())]
    return {project_id: rows for project_id, rows in rules.items() if rows}


def is_sampled(rule: EvaluatorRule, run_id: UUID) -> bool:
    """Whether the run is in the rule's sample: the same answer each time."""
    if rule.sampling_rate >= 1:
        return True
    digest = hashlib.blake2b(run_id.bytes, key=rule.pk.bytes, digest_size=8).digest()
    return int.from_bytes(digest) < rule.sampling_rate * 2**64


def enqueue(
    workspace_id: UUID,
    pairs: Iterable[tuple[EvaluatorRule, EvaluatedRun]],
    *,
    due_at: datetime | None = None,
    backfill_id: UUID | None = None,
) -> None:
    """Enqueue evaluations, in the caller's transaction; those that exist stay as they are.

    Without `due_at`, a rule waits for the rest of the trace if it may depend on it.
    """
    evaluations = _build(workspace_id, pairs, due_at)
    for evaluation in evaluations:
        evaluation.backfill_id = backfill_id
    Evaluation.objects.for_workspace(workspace_id).bulk_create(evaluations, ignore_conflicts=True)


def _build(
    workspace_id: UUID, pairs: Iterable[tuple[EvaluatorRule, EvaluatedRun]], due_at: datetime | None
) -> list[Evaluation]:
    pairs = list(pairs)
    if not pairs:
        return []
    now = timezone.now()
    workspaces = Workspace.objects.filter(pk=workspace_id)
    organization_id = workspaces.values_list("organization_id", flat=True).get()
    return [
        Evaluation(
            workspace_id=workspace_id,
            organization_id=organization_id,
            rule=rule,
            is_code=rule.is_code,
            run_id=run.id,
            project_id=run.project_id,
            example_id=run.example_id,
            due_at=due_at or (now + SETTLE_TIME if _waits(rule) else now),
        )
        for rule, run in pairs
    ]


def _waits(rule: EvaluatorRule) -> bool:
    return rule.project_id is not None or bool(rule.tree_filter)
