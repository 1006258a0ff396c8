"""Applies rules to earlier runs: a periodic task looks for a page of them at a time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Window
from django.db.models.functions import Random, RowNumber
from django.utils import timezone

from apps.core.callers import Caller
from apps.core.errors import AppError
from apps.evaluators import dispatch, errors
from apps.evaluators.errors import BadEvaluatorRule
from apps.evaluators.models import BackfillStatus, Evaluation, EvaluatorRule, RuleBackfill
from apps.evaluators.querysets import RuleBackfillQuerySet
from apps.evaluators.services import selection, spend, traces
from apps.evaluators.services.selection import EvaluatedRun
from apps.trace_store import RunPage, RunQuery, Status, run_store
from apps.tracing.models import Project

log = logging.getLogger(__name__)

PAGE_SIZE = 200
MAX_WAITING = 400
"""Open evaluations of a rule above which its backfill waits: new runs of the rule stay near."""
MAX_STEPS = 50
"""Backfills that one call of the task advances: many may wait for room."""
FIRST_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""No run is older; times near the first year overflow in other zones."""


def as_utc(at: datetime) -> datetime:
    """Times without a zone are in UTC. Raises `BadEvaluatorRule`."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if aware < FIRST_TIME:
        raise BadEvaluatorRule(f"A backfill begins in {FIRST_TIME.year} or later.")
    return aware


@transaction.atomic
def start(
    *,
    caller: Caller,
    rule: EvaluatorRule,
    started_from: datetime,
    started_until: datetime | None = None,
) -> RuleBackfill:
    """Apply the rule to runs that started in this range, until now by default.

    Runs that it has evaluated already stay as they are. Raises `BadEvaluatorRule` and
    `BackfillRunning`.
    """
    now = timezone.now()
    first = as_utc(started_from)
    last = now if started_until is None else min(as_utc(started_until), now)
    if first >= last:
        raise BadEvaluatorRule("The range of a backfill must begin before its end, and before now.")
    # Serializes with a change of the rule, and with another backfill.
    rules = EvaluatorRule.objects.for_workspace(rule.workspace_id).filter(pk=rule.pk)
    if not rules.select_for_update(no_key=True).get().is_enabled:
        raise BadEvaluatorRule("A disabled rule has no backfill; enable it first.")
    if _of(rule).running().exists():
        raise errors.BackfillRunning
    backfill = RuleBackfill(
        workspace_id=rule.workspace_id,
        rule=rule,
        started_from=first,
        started_until=last,
        created_by_id=caller.user_id,
    )
    backfill.save(force_insert=True)
    return backfill


def find_last(rules: Collection[EvaluatorRule]) -> Mapping[UUID, RuleBackfill]:
    """Return the last backfill of each of a workspace's rules that has one."""
    if not rules:
        return {}
    workspace_id = next(iter(rules)).workspace_id
    rows = RuleBackfill.objects.for_workspace(workspace_id).filter(rule__in=rules)
    rows = rows.order_by("rule_id", "-created_at").distinct("rule_id")
    return {row.rule_id: row for row in rows}


def get_last(rule: EvaluatorRule) -> RuleBackfill:
    """Raises `BackfillNotFound`."""
    backfill = find_last([rule]).get(rule.pk)
    if backfill is None:
        raise errors.BackfillNotFound
    return backfill


@transaction.atomic
def cancel(*, rule: EvaluatorRule) -> RuleBackfill:
    """Cancel the last backfill, and drop its evaluations that wait; one that is done stays.

    Raises `BackfillNotFound`.
    """
    rows = _of(rule).filter(pk=get_last(rule).pk)
    backfill = rows.select_for_update(of=("self",)).get()
    dropped, _ = _evaluations(backfill).filter(status="pending").delete()
    if dropped or backfill.status == BackfillStatus.RUNNING:
        _end(backfill, BackfillStatus.CANCELLED)
    return backfill


def count_waiting(backfill: RuleBackfill) -> int:
    return int(_evaluations(backfill).unfinished().count())


def _evaluations(backfill: RuleBackfill) -> Any:
    rows = Evaluation.objects.for_workspace(backfill.workspace_id)
    return rows.filter(rule=backfill.rule_id, backfill_id=backfill.pk)


def _of(rule: EvaluatorRule) -> RuleBackfillQuerySet:
    return RuleBackfill.objects.for_workspace(rule.workspace_id).filter(rule=rule)


def advance() -> None:
    """Enqueue a page of each of `MAX_STEPS` running backfills. Safe to repeat.

    One of each organization first, then a second one: an organization may have many that wait for
    the next day. Which of them is chance, so that each has its turn.
    """
    running = RuleBackfill.objects.across_workspaces(
        reason="the task advances the backfills of all workspaces"
    ).running()
    turn = Window(RowNumber(), partition_by="workspace__organization", order_by=Random())
    in_turn = running.annotate(turn=turn).order_by("turn", Random())
    for backfill_id in list(in_turn.values_list("pk", flat=True)[:MAX_STEPS]):
        try:
            with transaction.atomic():
                # Serializes with a change of the rule, which drops what waits, and its deletion.
                rows = running.select_for_update(skip_locked=True, of=("self", "rule"), no_key=True)
                backfill = rows.select_related("rule__evaluator").filter(pk=backfill_id).first()
                if backfill is not None:
                    _advance(backfill)
        except Exception:
            log.exception(
                "The backfill %s could not be advanced; the next call tries.", backfill_id
            )


def _advance(backfill: RuleBackfill) -> None:
    rule = backfill.rule
    project_ids = _find_projects(rule)
    if not rule.is_enabled or not project_ids:
        _end(backfill, BackfillStatus.CANCELLED)
        return
    limit = _find_room(rule)
    if limit <= 0:
        return
    try:
        with transaction.atomic():
            page = _read_page(backfill, project_ids, limit)
    except AppError as error:
        _end(backfill, BackfillStatus.FAILED, error.detail)
        return
    runs = [run.row for run in page.runs]
    pairs = [
        (rule, EvaluatedRun(row.id, row.project_id, row.reference_example_id))
        for row in runs
        if row.status is not Status.PENDING and selection.is_sampled(rule, row.id)
    ]
    selection.enqueue(backfill.workspace_id, pairs, due_at=timezone.now(), backfill_id=backfill.pk)
    backfill.run_count += len(pairs)
    backfill.cursor = page.next_cursor or ""
    if runs:
        backfill.reached_at = runs[-1].start_time
    backfill.save(update_fields=["run_count", "cursor", "reached_at"])
    if page.next_cursor is None:
        _end(backfill, BackfillStatus.COMPLETED)
    if pairs:
        dispatch.evaluate()


def _find_projects(rule: EvaluatorRule) -> list[UUID]:
    """The project of the rule, or the experiments on its dataset, that are present."""
    rows = Project.objects.for_workspace(rule.workspace_id).present()
    if rule.project_id is not None:
        rows = rows.filter(pk=rule.project_id)
    else:
        rows = rows.filter(reference_dataset_id=rule.dataset_id)
    return list(rows.values_list("pk", flat=True))


def _find_room(rule: EvaluatorRule) -> int:
    """How many evaluations the rule may get now; calls that the day does not have wait."""
    rows = Evaluation.objects.for_workspace(rule.workspace_id).filter(rule=rule)
    waiting = rows.unfinished().count()
    calls = rule.max_calls_per_day - spend.calls_of_today(rule)
    return min(PAGE_SIZE, MAX_WAITING - waiting, calls - waiting)


def _read_page(backfill: RuleBackfill, project_ids: list[UUID], limit: int) -> RunPage:
    rule = backfill.rule
    query = RunQuery(
        project_ids=project_ids,
        is_root=True,
        started_from=backfill.started_from,
        started_until=backfill.started_until,
        **traces.filters_of(rule),
    )
    return run_store.query(
        backfill.workspace_id, query, limit=limit, cursor=backfill.cursor or None
    )


def _end(backfill: RuleBackfill, status: BackfillStatus, error: str = "") -> None:
    backfill.status, backfill.error, backfill.ended_at = status, error, timezone.now()
    backfill.save(update_fields=["status", "error", "ended_at"])
