"""Filtering and sorting of projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.feedback.services import score_stats
from apps.organizations.models import ResourceType
from apps.organizations.services.tags import filter_by_tags
from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.filters import orm
from apps.tracing.api.run_queries import parse_filters, parse_time
from apps.tracing.models import Project
from apps.tracing.querysets import ProjectQuerySet
from apps.tracing.services import statistics

COLUMN_SORTS = ("name", "start_time")
COUNT_SORTS = ("last_run_start_time", "runs_count")
METRIC_SORTS = ("latency_p50", "latency_p99", "error_rate")
FEEDBACK_SORT = "feedback"
SORTS = (*COLUMN_SORTS, *COUNT_SORTS, *METRIC_SORTS, FEEDBACK_SORT)
_FILTER_COLUMNS = {
    "id": "id",
    "name": "name",
    "start_time": "start_time",
    "end_time": "end_time",
    "reference_dataset_id": "reference_dataset_id",
}
TAG_RESOURCE_TYPES = (ResourceType.PROJECT, ResourceType.EXPERIMENT)
_MAX_SORTED = 5000
"""Number of newest projects that are sorted by a metric."""


def filter_projects(workspace_id: UUID, params: dict[str, Any]) -> ProjectQuerySet:
    """Return the projects that match the validated query parameters."""
    projects = Project.objects.for_workspace(workspace_id).present()
    if "name" in params:
        projects = projects.filter(name=params["name"])
    if params.get("name_contains"):
        projects = projects.filter(name__icontains=params["name_contains"])
    if "id" in params:
        projects = projects.filter(pk__in=params["id"])
    if params.get("reference_free") is not None:
        projects = (
            projects.without_experiments() if params["reference_free"] else projects.experiments()
        )
    if "reference_dataset" in params:
        projects = projects.filter(reference_dataset_id__in=params["reference_dataset"])
    if params.get("tag_value_id"):
        projects = filter_by_tags(
            projects, workspace_id, params["tag_value_id"], TAG_RESOURCE_TYPES
        )
    if params.get("type"):
        projects = projects.filter(_kind_filter(params["type"]))
    if params.get("dataset_version"):
        projects = projects.filter(extra__metadata__dataset_version=params["dataset_version"])
    if isinstance(params.get("metadata"), dict):
        projects = projects.filter(extra__metadata__contains=params["metadata"])
    if params.get("filter"):
        expression = filters.parse(params["filter"])
        condition = orm.filter_to_q(expression, metadata="extra__metadata", columns=_FILTER_COLUMNS)
        projects = projects.filter(condition)
    return projects


def _kind_filter(kinds: Collection[str]) -> Q:
    """Filter by type: experiments have a dataset, agent projects an `agent_id`, others neither."""
    conditions = {
        "EXPERIMENT": Q(reference_dataset_id__isnull=False),
        "AGENT": Q(reference_dataset_id=None, agent_id__isnull=False),
        "PROJECT": Q(reference_dataset_id=None, agent_id=None),
    }
    return Q(*(conditions[kind] for kind in kinds), _connector=Q.OR)


def list_page(workspace_id: UUID, params: dict[str, Any]) -> tuple[list[Project], int]:
    """Return the projects of the page and the total number of matches."""
    projects = filter_projects(workspace_id, params)
    begin, end = params["offset"], params["offset"] + params["limit"]
    sort, sign = params["sort_by"], "-" if params["sort_by_desc"] else ""
    if sort in COLUMN_SORTS:
        page = list(projects.order_by(f"{sign}{sort}", f"{sign}id")[begin:end])
        total = begin + len(page) if 0 < len(page) < params["limit"] else projects.count()
        return page, total
    newest = projects.newest_first().values_list("pk", flat=True)
    ids = list(newest[:_MAX_SORTED])
    sort_value = _sort_key(workspace_id, ids, params)
    ids_with_value = [item for item in ids if sort_value(item) is not None]
    ids_with_value.sort(key=sort_value, reverse=params["sort_by_desc"])
    # Projects without a value come last in both directions.
    page_ids = [*ids_with_value, *(item for item in ids if sort_value(item) is None)][begin:end]
    by_id = {project.pk: project for project in projects.filter(pk__in=page_ids)}
    return [by_id[item] for item in page_ids if item in by_id], len(ids)


def _sort_key(
    workspace_id: UUID, ids: Sequence[UUID], params: dict[str, Any]
) -> Callable[[UUID], Any]:
    sort = params["sort_by"]
    if sort in COUNT_SORTS:
        counts = run_store.project_stats(workspace_id, ids)
        name = "run_count" if sort == "runs_count" else sort
        return lambda result: getattr(counts[result], name)
    if sort == FEEDBACK_SORT:
        key = params.get("sort_by_feedback_key") or ""
        scores = (
            score_stats.by_project(workspace_id, ids)
            if params.get("sort_by_feedback_source") == "session"
            else score_stats.by_project_runs(workspace_id, ids)
        )
        return lambda result: scores.get(result, {}).get(key, {}).get("avg")
    statistics_by_id = project_statistics(
        workspace_id, ids, params | {"stats_select": [sort], "facets": False}
    )
    return lambda result: statistics_by_id[result].get(sort)


def project_statistics(workspace_id: UUID, ids: Sequence[UUID], params: dict[str, Any]) -> Any:
    """Return the statistics of these projects over the runs that match the query parameters."""
    selected = [name for name in params.get("stats_select") or () if name in statistics.SELECTABLE]
    where = parse_filters(params.get("stats_filter"))
    return statistics.project_stats(
        workspace_id,
        ids,
        since=parse_time(params.get("stats_start_time")),
        where=None if where is None else RunQuery(where=where),
        select=selected or None,
        with_facets=bool(params.get("facets")),
    )
