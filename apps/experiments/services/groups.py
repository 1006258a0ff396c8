"""Results of experiments by a metadata value of the runs, of the examples or of the experiments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.json import dumps_text
from apps.datasets.models import Dataset
from apps.experiments.services import results
from apps.experiments.services.results import ResultQuery
from apps.feedback.services import score_stats
from apps.trace_store import ExampleRuns, RunQuery, filters, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.filters import Expression
from apps.trace_store.metrics import RunMetrics
from apps.tracing.models import Project
from apps.tracing.services.statistics import METRICS

_ROOT_METRICS = ("latency_p50", "latency_p99", "error_rate")
_TRACE_METRICS = (
    "first_token_p50", "first_token_p99", "total_tokens", "prompt_tokens", "completion_tokens",
    "total_cost", "prompt_cost", "completion_cost", "streaming_rate",
)  # fmt: skip


@dataclass(slots=True)
class GroupStats:
    """Statistics of root runs; tokens and costs are those of their traces."""

    run_count: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    feedback: dict[str, Any] = field(default_factory=dict)
    example_count: int = 0


@dataclass(slots=True)
class ResultGroup:
    """The runs with one metadata value, and the examples with such a run in each experiment."""

    key: str | float
    filter: str
    """The filter of the group's runs."""
    total: GroupStats
    by_experiment: dict[UUID, GroupStats]
    examples: Sequence[ExampleRuns]
    """A page of the common examples."""
    example_count: int = 0
    first_time: datetime | None = None
    last_time: datetime | None = None


def group_by_run_metadata(
    query: ResultQuery, key: str, *, offset: int, limit: int, per_group: int
) -> list[ResultGroup]:
    """Return a page of the groups by a metadata value of the root runs, the largest first."""
    selected = _selection(query)
    metrics_query = MetricsQuery(
        query=selected,
        group_by=GroupBy(GroupAttribute.METADATA, key, max_groups=offset + limit),
        measures=(),
    )
    counts = run_store.aggregate(query.workspace_id, metrics_query).by_group
    values = sorted(
        (value for value in counts if value is not None),
        key=lambda value: (-counts[value].runs, value),
    )
    groups = []
    for value in values[offset : offset + limit]:
        text = (
            f"and(eq(metadata_key, {filters.quote(key)}),"
            f" eq(metadata_value, {filters.quote(value)}))"
        )
        groups.append(_build_group(query, selected, value, text, per_group))
    return groups


def group_by_example_metadata(
    query: ResultQuery, key: str, *, offset: int, limit: int, per_group: int
) -> list[ResultGroup]:
    """Return a page of the groups by a metadata value of the examples, the largest first."""
    selected = _selection(query)
    ids = [item.example_id for item in results.find_examples(query)]
    revisions = results.load_revisions(
        query.dataset, ids, results.version_of(query.experiments), with_content=False
    )
    by_value: dict[str, list[UUID]] = defaultdict(list)
    keys: dict[str, str | float] = {}
    for example_id in ids:
        value = revisions[example_id].metadata.get(key) if example_id in revisions else None
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        text = value if isinstance(value, str) else dumps_text(value)
        keys[text] = value if is_number else text
        by_value[text].append(example_id)
    values = sorted(by_value, key=lambda value: (-len(by_value[value]), value))
    groups = []
    for value in values[offset : offset + limit]:
        listed = ", ".join(filters.quote(str(example_id)) for example_id in by_value[value])
        text = f"in(reference_example_id, [{listed}])"
        groups.append(_build_group(query, selected, keys[value], text, per_group))
    return groups


def _selection(query: ResultQuery) -> RunQuery:
    """The root runs of all experiments that meet the filters of their experiment."""
    conditions = []
    for project_id in query.experiment_ids:
        parts = [f"eq(session_id, {filters.quote(str(project_id))})"]
        parts += query.filters.get(project_id, ())
        conditions.append(f"and({', '.join(parts)})")
    query.matching()  # reports unknown experiments and invalid filters
    where = filters.parse(f"or({', '.join(conditions)})") if any(query.filters.values()) else None
    return RunQuery(
        project_ids=query.experiment_ids,
        reference_example_ids=None if query.example_ids is None else list(query.example_ids),
        is_root=True,
        where=where,
    )


def _build_group(
    query: ResultQuery, selected: RunQuery, key: str | float, text: str, per_group: int
) -> ResultGroup:
    condition = filters.all_of([selected.where, filters.parse(text)])
    roots = RunQuery(project_ids=selected.project_ids, is_root=True, where=condition)
    by_experiment = _stats_by_experiment(query, roots, condition)
    common = run_store.find_examples(
        query.workspace_id,
        query.experiment_ids,
        matching=[
            RunQuery(project_ids=[project_id], is_root=True, where=condition)
            for project_id in query.experiment_ids
        ],
    )
    return ResultGroup(
        key=key,
        filter=f"and(eq(is_root, true), {text})",
        total=by_experiment.pop(None, GroupStats()),
        by_experiment={item: stats for item, stats in by_experiment.items() if item is not None},
        examples=common[:per_group],
        example_count=len(common),
        first_time=min((item.first_time for item in common), default=None),
        last_time=max((item.last_time for item in common), default=None),
    )


def _stats_by_experiment(
    query: ResultQuery, roots: RunQuery, condition: Expression | None
) -> dict[UUID | None, GroupStats]:
    """Return the statistics by experiment, and those of all of them for None."""
    traces = RunQuery(project_ids=roots.project_ids, where_root=condition)
    runs = run_store.list_experiment_runs(query.workspace_id, roots)
    feedback = score_stats.by_run(
        query.workspace_id, [run.run_id for run in runs], comparison_id=query.comparison_id
    )
    stats = _metrics_by_project(query.workspace_id, query.experiment_ids, roots, traces)
    for project_id, group in stats.items():
        own = [run for run in runs if project_id in {None, run.project_id}]
        group.feedback = score_stats.merge_stats(
            feedback[run.run_id] for run in own if run.run_id in feedback
        )
        group.example_count = len({run.example_id for run in own})
    return stats


def _metrics_by_project(
    workspace_id: UUID, project_ids: Sequence[UUID], roots: RunQuery, traces: RunQuery
) -> dict[UUID | None, GroupStats]:
    """Return counts and metrics by project, and those of all projects for None."""
    group_by = GroupBy(GroupAttribute.PROJECT, max_groups=len(project_ids))
    by_project = [
        run_store.aggregate(workspace_id, MetricsQuery(query=query, group_by=group_by)).by_group
        for query in (roots, traces)
    ]
    stats: dict[UUID | None, GroupStats] = {
        project_id: _group_stats(*(metrics.get(str(project_id)) for metrics in by_project))
        for project_id in project_ids
    }
    stats[None] = _overall_metrics(workspace_id, roots, traces)
    return stats


def _overall_metrics(workspace_id: UUID, roots: RunQuery, traces: RunQuery) -> GroupStats:
    # Not merged from the projects, because quantiles that are computed from runs cannot be merged.
    overall = [
        run_store.aggregate(workspace_id, MetricsQuery(query=query)).overall
        for query in (roots, traces)
    ]
    return _group_stats(*overall)


def _group_stats(roots: RunMetrics | None, traces: RunMetrics | None) -> GroupStats:
    roots, traces = roots or RunMetrics(), traces or RunMetrics()
    metrics = {name: METRICS[name](roots) for name in _ROOT_METRICS}
    metrics |= {name: METRICS[name](traces) for name in _TRACE_METRICS}
    return GroupStats(run_count=roots.runs, metrics=metrics)


@dataclass(slots=True)
class ExperimentGroup:
    """Experiments with the same values of metadata keys."""

    values: Mapping[str, Any]
    experiments: list[Project]
    filter: str
    stats: GroupStats = field(default_factory=GroupStats)
    session_feedback: dict[str, Any] = field(default_factory=dict)


def group_experiments(
    dataset: Dataset, experiments: Sequence[Project], keys: Sequence[str], since: datetime | None
) -> list[ExperimentGroup]:
    """Group the experiments by their values of the keys, the largest group first.

    Experiments without a key are in the groups with the value None. The number of queries depends
    on the number of groups only by one each.
    """
    groups: dict[str, ExperimentGroup] = {}
    for project in experiments:
        metadata: Any = project.extra.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        values = {key: metadata.get(key) for key in keys}
        name = dumps_text(values)
        if name not in groups:
            groups[name] = ExperimentGroup(values, [], _metadata_text(values))
        groups[name].experiments.append(project)
    ordered = sorted(groups.values(), key=lambda group: -len(group.experiments))
    ids = [project.pk for project in experiments]
    run_scores = score_stats.by_project_runs(
        dataset.workspace_id, ids, started_from=since, roots_only=True
    )
    own_scores = score_stats.by_project(dataset.workspace_id, ids)
    for group in ordered:
        members = [project.pk for project in group.experiments]
        roots = RunQuery(project_ids=members, is_root=True, started_from=since)
        traces = RunQuery(project_ids=members, started_from=since)
        group.stats = _overall_metrics(dataset.workspace_id, roots, traces)
        group.stats.feedback = score_stats.merge_stats(
            run_scores[item] for item in members if item in run_scores
        )
        group.session_feedback = score_stats.merge_stats(
            own_scores[item] for item in members if item in own_scores
        )
    return ordered


def _metadata_text(values: Mapping[str, Any]) -> str:
    """Return the filter of the list of experiments that selects the group."""
    parts = []
    for key, value in values.items():
        name = filters.quote(key)
        if value is None:
            parts.append(f"neq(metadata_key, {name})")
        else:
            text = value if isinstance(value, str) else dumps_text(value)
            parts.append(
                f"and(eq(metadata_key, {name}), eq(metadata_value, {filters.quote(text)}))"
            )
    return f"and({', '.join(parts)})"
