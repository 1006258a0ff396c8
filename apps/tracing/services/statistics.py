"""Statistics of runs in the words of the wire: of a query, of its groups, of whole projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.feedback.services import score_stats
from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.metrics import DETAILS, Measure, RunMetrics
from apps.tracing.services import facets

M = Measure


def money(amount: Decimal | None) -> str | None:
    """An amount as text, so that no reader rounds it, and without an exponent."""
    return None if amount is None else format(amount.normalize(), "f")


def _quantile(measure: Measure, share: float) -> Callable[[RunMetrics], Any]:
    def found(figures: RunMetrics) -> Any:
        value = figures.quantile(measure, share)
        return money(value) if isinstance(value, Decimal) else value

    return found


def _total(measure: Measure) -> Callable[[RunMetrics], Any]:
    def found(figures: RunMetrics) -> Any:
        value = figures.total(measure)
        return money(value) if isinstance(value, Decimal) else value

    return found


NUMBERS: dict[str, Callable[[RunMetrics], Any]] = {
    "run_count": lambda figures: figures.runs,
    "latency_p50": _quantile(M.LATENCY, 0.5),
    "latency_p99": _quantile(M.LATENCY, 0.99),
    "latency_avg": lambda figures: figures.average(M.LATENCY),
    "first_token_p50": _quantile(M.FIRST_TOKEN, 0.5),
    "first_token_p99": _quantile(M.FIRST_TOKEN, 0.99),
    "total_tokens": _total(M.TOTAL_TOKENS),
    "prompt_tokens": _total(M.PROMPT_TOKENS),
    "completion_tokens": _total(M.COMPLETION_TOKENS),
    "median_tokens": _quantile(M.TOTAL_TOKENS, 0.5),
    "prompt_tokens_p50": _quantile(M.PROMPT_TOKENS, 0.5),
    "completion_tokens_p50": _quantile(M.COMPLETION_TOKENS, 0.5),
    "tokens_p99": _quantile(M.TOTAL_TOKENS, 0.99),
    "prompt_tokens_p99": _quantile(M.PROMPT_TOKENS, 0.99),
    "completion_tokens_p99": _quantile(M.COMPLETION_TOKENS, 0.99),
    "total_cost": _total(M.TOTAL_COST),
    "prompt_cost": _total(M.PROMPT_COST),
    "completion_cost": _total(M.COMPLETION_COST),
    "cost_p50": _quantile(M.TOTAL_COST, 0.5),
    "cost_p99": _quantile(M.TOTAL_COST, 0.99),
    "last_run_start_time": lambda figures: figures.last_start,
    "error_rate": lambda figures: figures.error_rate,
    "streaming_rate": lambda figures: figures.streaming_rate,
}
_NEEDS = {
    "latency": (M.LATENCY,),
    "first": (M.FIRST_TOKEN,),
    "total": (M.TOTAL_TOKENS, M.TOTAL_COST),
    "prompt": (M.PROMPT_TOKENS, M.PROMPT_COST),
    "completion": (M.COMPLETION_TOKENS, M.COMPLETION_COST),
    "median": (M.TOTAL_TOKENS,),
    "tokens": (M.TOTAL_TOKENS,),
    "cost": (M.TOTAL_COST,),
}
BESIDE = ("feedback_stats", "session_feedback_stats", "thread_feedback_stats", "run_facets")
SETS = {
    "all_run_stats": (*NUMBERS, *BESIDE),
    "all_token_stats": tuple(name for name in NUMBERS if "token" in name or "cost" in name),
}
SELECTABLE = frozenset({*NUMBERS, *BESIDE, *DETAILS, *SETS, "group_count"})


def run_stats(
    workspace_id: UUID,
    query: RunQuery,
    *,
    select: Collection[str] | None = None,
    with_details: bool = False,
) -> dict[str, Any]:
    """All statistics of the query's runs, or those that are selected; zeros and nulls of none.

    Where only the newest runs could be looked at, `counted_since` says from when on.
    """
    wanted = _wanted(select, with_details=with_details)
    answer = run_store.aggregate(workspace_id, _question(query, wanted))
    told = _told(answer.whole, wanted)
    told |= _beside(workspace_id, query, wanted)
    return told | _partial(answer)


def grouped_stats(
    workspace_id: UUID,
    query: RunQuery,
    group_by: GroupBy,
    *,
    groups: Sequence[str] | None = None,
    select: Collection[str] | None = None,
    with_details: bool = False,
) -> dict[str, dict[str, Any]]:
    """The same by group: those that are named, else the ones with the most runs."""
    wanted = _wanted(select, with_details=with_details) - set(BESIDE)
    if groups is not None:
        group_by = replace(group_by, max_groups=10_000)
    answer = run_store.aggregate(workspace_id, replace(_question(query, wanted), group_by=group_by))
    names = groups if groups is not None else _by_size(answer)
    count = {"group_count": len(answer.by_group)} if "group_count" in wanted else {}
    return {
        name: _told(answer.by_group.get(name) or RunMetrics(), wanted) | count | _partial(answer)
        for name in names
    }


def turn_stats(workspace_id: UUID, query: RunQuery) -> dict[str, Any]:
    """The same of those runs of the query that are turns of a conversation."""
    in_thread = filters.parse("is_not_null(thread_id)")
    turns = replace(query, where=filters.all_of([query.where, in_thread]))
    return run_stats(workspace_id, turns, select=[*NUMBERS, "feedback_stats"])


def _by_size(answer: MetricsResult) -> list[str]:
    names = [name for name in answer.by_group if name is not None]
    return sorted(names, key=lambda name: (-answer.by_group[name].runs, name))


def project_stats(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    *,
    since: datetime | None = None,
    where: RunQuery | None = None,
    select: Collection[str] | None = None,
    with_facets: bool = False,
) -> Mapping[UUID, dict[str, Any]]:
    """What the list of projects shows of each, with `include_stats`; all projects are there.

    Counts, tokens and first tokens are those of all runs; latencies and the rate of errors those of
    traces. `since` leaves out runs that started before; `where` (its filters) other runs.
    """
    if not project_ids:
        return {}
    query = replace(where or RunQuery(), project_ids=list(project_ids))
    if since is not None:
        query = replace(query, started_from=since)
    wanted = _wanted(select, with_details=False)
    everything = _by_project(workspace_id, query, wanted)
    of_traces = {"latency_p50", "latency_p99", "latency_avg", "error_rate"} & wanted
    roots: Mapping[str | None, RunMetrics] = {}
    if of_traces:
        roots = _by_project(workspace_id, replace(query, is_root=True), of_traces)
    said = _feedback(workspace_id, project_ids, since, wanted)
    told: dict[UUID, dict[str, Any]] = {}
    for project_id in project_ids:
        told[project_id] = _told(everything.get(str(project_id)) or RunMetrics(), wanted)
        told[project_id] |= _told(roots.get(str(project_id)) or RunMetrics(), of_traces)
        told[project_id] |= {
            name: score_stats.get(project_id, {}) for name, score_stats in said.items()
        }
        if with_facets:
            one = replace(query, project_ids=[project_id])
            told[project_id]["run_facets"] = facets.facets_of(workspace_id, one)
    return told


def _by_project(
    workspace_id: UUID, query: RunQuery, wanted: Collection[str]
) -> Mapping[str | None, RunMetrics]:
    group_by = GroupBy(GroupAttribute.PROJECT, max_groups=len(query.project_ids or ()))
    question = replace(_question(query, wanted), group_by=group_by)
    return run_store.aggregate(workspace_id, question).by_group


def _feedback(
    workspace_id: UUID, project_ids: Sequence[UUID], since: datetime | None, wanted: Collection[str]
) -> dict[str, Mapping[UUID, Any]]:
    said: dict[str, Mapping[UUID, Any]] = {}
    if "feedback_stats" in wanted:
        said["feedback_stats"] = score_stats.by_project_runs(
            workspace_id, project_ids, started_from=since
        )
    if "session_feedback_stats" in wanted:
        said["session_feedback_stats"] = score_stats.by_project(workspace_id, project_ids)
    return said


def _wanted(select: Collection[str] | None, *, with_details: bool) -> set[str]:
    if not select:
        return {*NUMBERS, *BESIDE, *(DETAILS if with_details else ())}
    wanted = {name for one in select for name in SETS.get(one, (one,))}
    return wanted | set(DETAILS if with_details else ())


def _question(query: RunQuery, wanted: Collection[str]) -> MetricsQuery:
    needed = {
        measure for name in wanted & NUMBERS.keys() for measure in _NEEDS.get(_word(name), ())
    }
    return MetricsQuery(
        query=query,
        measures=[measure for measure in Measure if measure in needed],
        details=bool(set(DETAILS) & set(wanted)),
    )


def _word(name: str) -> str:
    return name.partition("_")[0]


def _told(figures: RunMetrics, wanted: Collection[str]) -> dict[str, Any]:
    told = {name: value(figures) for name, value in NUMBERS.items() if name in wanted}
    for kind in DETAILS:
        if kind in wanted:
            amounts = figures.details.get(kind, {})
            is_cost = kind.endswith("cost_details")
            told[kind] = {
                name: money(amount) if is_cost else int(amount) for name, amount in amounts.items()
            }
    return told


def _beside(workspace_id: UUID, query: RunQuery, wanted: Collection[str]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if "feedback_stats" in wanted:
        told["feedback_stats"] = score_stats.for_query(workspace_id, query)
    if "session_feedback_stats" in wanted:
        of_each = score_stats.by_project(workspace_id, query.project_ids or [])
        told["session_feedback_stats"] = score_stats.merge_stats(of_each.values())
    if "thread_feedback_stats" in wanted:
        told["thread_feedback_stats"] = {
            key: score_stats
            for key, score_stats in (told.get("feedback_stats") or {}).items()
            if score_stats.get("contains_thread_feedback")
        }
    if "run_facets" in wanted:
        told["run_facets"] = facets.facets_of(workspace_id, query, told.get("feedback_stats"))
    return told


def _partial(answer: MetricsResult) -> dict[str, Any]:
    if answer.counted_since is None:
        return {}
    return {"counted_since": answer.counted_since}
