"""Which projects a client asks for, and in what order."""

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
from apps.tracing.api.run_queries import expression, moment
from apps.tracing.models import Project
from apps.tracing.querysets import ProjectQuerySet
from apps.tracing.services import statistics

COLUMNS = ("name", "start_time")
COUNTED = ("last_run_start_time", "runs_count")
MEASURED = ("latency_p50", "latency_p99", "error_rate")
FEEDBACK = "feedback"
SORTS = (*COLUMNS, *COUNTED, *MEASURED, FEEDBACK)
_FILTERED = {
    "id": "id",
    "name": "name",
    "start_time": "start_time",
    "end_time": "end_time",
    "reference_dataset_id": "reference_dataset_id",
}
TAGGED_AS = (ResourceType.PROJECT, ResourceType.EXPERIMENT)
_MOST_SORTED = 5000
"""Projects whose figures are looked up for an order; those made last."""


def matching(workspace_id: UUID, asked: dict[str, Any]) -> ProjectQuerySet:
    """The projects that the checked query string means."""
    projects = Project.objects.for_workspace(workspace_id).present()
    if "name" in asked:
        projects = projects.filter(name=asked["name"])
    if asked.get("name_contains"):
        projects = projects.filter(name__icontains=asked["name_contains"])
    if "id" in asked:
        projects = projects.filter(pk__in=asked["id"])
    if asked.get("reference_free") is not None:
        projects = projects.plain() if asked["reference_free"] else projects.experiments()
    if "reference_dataset" in asked:
        projects = projects.filter(reference_dataset_id__in=asked["reference_dataset"])
    if asked.get("tag_value_id"):
        projects = filter_by_tags(projects, workspace_id, asked["tag_value_id"], TAGGED_AS)
    if asked.get("type"):
        projects = projects.filter(_of_kinds(asked["type"]))
    if asked.get("dataset_version"):
        projects = projects.filter(extra__metadata__dataset_version=asked["dataset_version"])
    if isinstance(asked.get("metadata"), dict):
        projects = projects.filter(extra__metadata__contains=asked["metadata"])
    if asked.get("filter"):
        wanted = filters.parse(asked["filter"])
        condition = orm.filter_to_q(wanted, metadata="extra__metadata", columns=_FILTERED)
        projects = projects.filter(condition)
    return projects


def _of_kinds(kinds: Collection[str]) -> Q:
    """Experiments have a dataset, agents' projects an address, the others neither."""
    conditions = {
        "EXPERIMENT": Q(reference_dataset_id__isnull=False),
        "AGENT": Q(reference_dataset_id=None, agent_id__isnull=False),
        "PROJECT": Q(reference_dataset_id=None, agent_id=None),
    }
    return Q(*(conditions[kind] for kind in kinds), _connector=Q.OR)


def page(workspace_id: UUID, asked: dict[str, Any]) -> tuple[list[Project], int]:
    """The projects of the page, and how many match in all."""
    projects = matching(workspace_id, asked)
    begin, end = asked["offset"], asked["offset"] + asked["limit"]
    sort, sign = asked["sort_by"], "-" if asked["sort_by_desc"] else ""
    if sort in COLUMNS:
        found = list(projects.order_by(f"{sign}{sort}", f"{sign}id")[begin:end])
        total = begin + len(found) if 0 < len(found) < asked["limit"] else projects.count()
        return found, total
    newest = projects.newest_first().values_list("pk", flat=True)
    ids = list(newest[:_MOST_SORTED])
    value = _values(workspace_id, ids, asked)
    known = [one for one in ids if value(one) is not None]
    known.sort(key=value, reverse=asked["sort_by_desc"])
    # What has no value comes last, whichever way the others go.
    order = [*known, *(one for one in ids if value(one) is None)][begin:end]
    by_id = {project.pk: project for project in projects.filter(pk__in=order)}
    return [by_id[one] for one in order if one in by_id], len(ids)


def _values(
    workspace_id: UUID, ids: Sequence[UUID], asked: dict[str, Any]
) -> Callable[[UUID], Any]:
    sort = asked["sort_by"]
    if sort in COUNTED:
        counts = run_store.project_stats(workspace_id, ids)
        name = "run_count" if sort == "runs_count" else sort
        return lambda one: getattr(counts[one], name)
    if sort == FEEDBACK:
        key = asked.get("sort_by_feedback_key") or ""
        said = (
            score_stats.by_project(workspace_id, ids)
            if asked.get("sort_by_feedback_source") == "session"
            else score_stats.by_project_runs(workspace_id, ids)
        )
        return lambda one: said.get(one, {}).get(key, {}).get("avg")
    figures = stats_of(workspace_id, ids, asked | {"stats_select": [sort], "facets": False})
    return lambda one: figures[one].get(sort)


def stats_of(workspace_id: UUID, ids: Sequence[UUID], asked: dict[str, Any]) -> Any:
    """The figures of these projects, of the runs that the query string means."""
    wanted = [name for name in asked.get("stats_select") or () if name in statistics.SELECTABLE]
    where = expression(asked.get("stats_filter"))
    return statistics.project_stats(
        workspace_id,
        ids,
        since=moment(asked.get("stats_start_time")),
        where=None if where is None else RunQuery(where=where),
        select=wanted or None,
        with_facets=bool(asked.get("facets")),
    )
