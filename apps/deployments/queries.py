"""Reads of the deployment pages and API, each with a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from apps.core.tenancy import get_or_404
from apps.deployments.models import (
    Deployment,
    LogKind,
    LogLine,
    Revision,
    StatusChange,
)
from apps.deployments.querysets import DeploymentQuerySet
from apps.deployments.routes import agent_url
from apps.deployments.statuses import FAILED, FINAL, RevisionStatus
from apps.trace_store import RunQuery, RunRow, run_store
from apps.tracing.services import statistics

REVISIONS_PER_PAGE = 25
MAX_LINES_PER_PAGE = 2000
NEWEST_TRACES = 8
STATS_PERIOD = timedelta(days=1)
_SELECTED_STATS = ("trace_count", "error_rate", "latency_p50", "latency_p99")


@dataclass(frozen=True)
class DeploymentRow:
    """A deployment with its latest revision, for the list and the page header."""

    deployment: Deployment
    latest: Revision | None

    @property
    def url(self) -> str:
        return agent_url(self.deployment.slug)

    @property
    def is_in_progress(self) -> bool:
        """Whether the latest revision is unfinished, so that the page must refresh itself."""
        return self.latest is not None and not self.latest.is_final

    @property
    def state(self) -> str:
        """The state of the deployment, a key of apps.web_ui.badges."""
        active, latest = self.deployment.active_revision_id, self.latest
        if self.deployment.is_stopped:
            return "stopped"
        if latest is not None and not latest.is_final:
            return "updating" if active else "starting"
        failed = latest is not None and latest.status in FAILED
        if active is None:
            return "failed" if failed else "idle"
        return "behind" if failed and latest is not None and latest.pk != active else "serving"


def list_deployments(workspace_id: UUID) -> list[DeploymentRow]:
    """Return all deployments of the workspace, newest first."""
    rows = Deployment.objects.for_workspace(workspace_id).present().newest_first()
    return _with_latest_revisions(workspace_id, list(rows.select_related("active_revision")))


def get_deployment(workspace_id: UUID, deployment_id: UUID) -> DeploymentRow:
    """Return a deployment of the workspace, or raise 404."""
    rows = Deployment.objects.for_workspace(workspace_id).present()
    row = get_or_404(rows.select_related("active_revision", "created_by"), pk=deployment_id)
    return _with_latest_revisions(workspace_id, [row])[0]


def _with_latest_revisions(workspace_id: UUID, rows: Sequence[Deployment]) -> list[DeploymentRow]:
    newest = (
        Revision.objects.for_workspace(workspace_id)
        .filter(deployment__in=rows)
        .defer("config", "environment")
        .order_by("deployment_id", "-number")
        .distinct("deployment_id")
    )
    by_deployment = {revision.deployment_id: revision for revision in newest}
    return [DeploymentRow(row, by_deployment.get(row.pk)) for row in rows]


def list_revisions(
    deployment: Deployment, *, before: int | None = None
) -> tuple[list[Revision], int | None]:
    """Return a page of revisions, newest first, and the `before` value of the next page."""
    rows = Revision.objects.for_workspace(deployment.workspace_id).filter(deployment=deployment)
    if before is not None:
        rows = rows.filter(number__lt=before)
    rows = rows.defer("config", "environment").select_related("created_by").newest_first()
    candidates = list(rows[: REVISIONS_PER_PAGE + 1])
    page = candidates[:REVISIONS_PER_PAGE]
    for revision in page:
        revision.deployment = deployment
    return page, page[-1].number if len(candidates) > REVISIONS_PER_PAGE else None


def get_revision(workspace_id: UUID, deployment_id: UUID, revision_id: UUID) -> Revision:
    """Return a revision with its deployment, or raise 404."""
    rows = Revision.objects.for_workspace(workspace_id).filter(deployment__deleted_at=None)
    related = rows.select_related("deployment", "created_by").defer("environment")
    return get_or_404(related, pk=revision_id, deployment_id=deployment_id)


def is_newest(revision: Revision) -> bool:
    """Return whether the deployment has no later revision."""
    rows = Revision.objects.for_workspace(revision.workspace_id)
    later = rows.filter(deployment=revision.deployment_id, number__gt=revision.number)
    return not later.exists()


@dataclass(frozen=True)
class AgentTraces:
    """The newest traces of a deployment's project, and the statistics of its last day."""

    rows: Sequence[RunRow]
    stats: Mapping[str, Any]


def load_agent_traces(workspace_id: UUID, project_id: UUID) -> AgentTraces:
    """Return the newest traces, and `trace_count`, `error_rate` and latencies of the last day."""
    query = RunQuery(project_ids=[project_id], is_root=True)
    page = run_store.query(workspace_id, query, limit=NEWEST_TRACES)
    since = timezone.now() - STATS_PERIOD
    stats = statistics.project_stats(
        workspace_id, [project_id], since=since, select=_SELECTED_STATS
    )
    return AgentTraces([run.row for run in page.runs], stats.get(project_id, {}))


@dataclass(frozen=True)
class Log:
    """The last lines of a log, and whether earlier lines are missing."""

    lines: list[LogLine]
    is_truncated: bool

    @property
    def last_id(self) -> int:
        return self.lines[-1].pk if self.lines else 0


def get_log(revision: Revision, kind: LogKind) -> Log:
    """Return the last lines of the revision's log, oldest first."""
    rows = LogLine.objects.for_workspace(revision.workspace_id)
    newest = rows.filter(revision=revision, kind=kind).order_by("-pk")[: MAX_LINES_PER_PAGE + 1]
    lines = list(newest)
    return Log(lines[:MAX_LINES_PER_PAGE][::-1], len(lines) > MAX_LINES_PER_PAGE)


def format_log(revision: Revision, kind: LogKind) -> str:
    """Return the whole log as text, each line with timestamp and level."""
    rows = LogLine.objects.for_workspace(revision.workspace_id)
    lines = rows.filter(revision=revision, kind=kind).order_by("pk")
    values = lines.values_list("created_at", "level", "message")
    return "".join(f"{at:%Y-%m-%dT%H:%M:%S.%fZ} {level:7} {text}\n" for at, level, text in values)


@dataclass(frozen=True)
class Stage:
    """A stage of a revision's timeline."""

    name: str
    state: str
    """`done`, `now`, `failed`, `stopped` or `ahead`."""
    duration: timedelta | None = None
    started_at: datetime | None = None

    @property
    def timer_start(self) -> datetime | None:
        """The start value of the elapsed-time display of the current stage."""
        return timezone.now() - self.duration if self.duration is not None else None


_S = RevisionStatus
_STAGES: tuple[tuple[str, frozenset[RevisionStatus]], ...] = (
    ("Queued", frozenset({_S.CREATING, _S.QUEUED, _S.AWAITING_BUILD})),
    ("Built", frozenset({_S.BUILDING})),
    ("Deployed", frozenset({_S.AWAITING_DEPLOY, _S.DEPLOYING})),
    ("Serving", frozenset({_S.DEPLOYED})),
)
_CURRENT_NAMES = {
    "Queued": "Waiting",
    "Built": "Building",
    "Deployed": "Deploying",
    "Serving": "Serving",
}
_FAILED_NAMES = {"Queued": "Create failed", "Built": "Build failed", "Deployed": "Deploy failed"}


def get_stages(revision: Revision) -> list[Stage]:
    """Return the stages of the revision, computed from its status changes."""
    changes = StatusChange.objects.for_workspace(revision.workspace_id).filter(revision=revision)
    stages = build_stages(
        list(changes.in_order().values_list("status", "created_at")), timezone.now()
    )
    if revision.shown_status == "REPLACED":
        stages[-1] = replace(stages[-1], name="Replaced")
    return stages


def build_stages(changes: Sequence[tuple[Any, datetime]], now: datetime) -> list[Stage]:
    """Return the stages of these status changes; a redeploy restarts the later stages."""
    if not changes:
        return [Stage(name, "ahead") for name, _ in _STAGES]
    durations = [timedelta()] * len(_STAGES)
    reached = -1
    ends = [at for _, at in changes[1:]] + [now]
    for (status, begin), end in zip(changes, ends, strict=True):
        stage = _stage_index(status)
        if stage is None:
            continue
        if stage < reached:
            durations[stage:] = [timedelta()] * (len(durations) - stage)
        durations[stage] += end - begin
        reached = stage

    status, started_at = changes[-1]
    stages = []
    for stage, (name, _) in enumerate(_STAGES):
        if stage > reached:
            stages.append(Stage(name, "ahead"))
        elif stage < reached:
            stages.append(Stage(name, "done", durations[stage]))
        else:
            stages.append(
                _current_stage(name, RevisionStatus(status), durations[stage], started_at)
            )
    return stages


def _current_stage(
    name: str, status: RevisionStatus, duration: timedelta, started_at: datetime
) -> Stage:
    if status == _S.DEPLOYED:
        return Stage("Serving", "done", started_at=started_at)
    if status in FAILED:
        return Stage(_FAILED_NAMES.get(name, "Failed"), "failed", duration)
    if status in FINAL:
        return Stage("Skipped" if status == _S.SKIPPED else "Stopped", "stopped", duration)
    return Stage(_CURRENT_NAMES[name], "now", duration, started_at)


def _stage_index(status: str) -> int | None:
    return next((at for at, (_, statuses) in enumerate(_STAGES) if status in statuses), None)


def list_lines_after(
    workspace_id: UUID, revision_id: UUID, kind: LogKind, after: int, limit: int
) -> list[tuple[int, datetime, str, str]]:
    """Return the next `limit` lines of a log after the line with that id."""
    rows = LogLine.objects.for_workspace(workspace_id).filter(revision_id=revision_id, kind=kind)
    values = rows.after(after).values_list("pk", "created_at", "level", "message")
    return list(values[:limit])


def list_graph_ids(revision: Revision) -> Iterable[str]:
    """Return the graph ids of the revision."""
    return revision.graphs.in_order().values_list("graph_id", flat=True)


_LATEST_FIELDS = {
    "latest_revision_id": "pk",
    "latest_status": "status",
    "latest_source": "source",
    "latest_ref": "ref",
    "latest_config_path": "config_path",
    "latest_commit_sha": "commit_sha",
}


def with_latest_revision(deployments: DeploymentQuerySet) -> DeploymentQuerySet:
    """Annotate the latest revision's fields as `latest_...`; None without a revision."""
    newest = Revision.unscoped.filter(deployment=OuterRef("pk")).newest_first()
    columns = {name: Subquery(newest.values(column)[:1]) for name, column in _LATEST_FIELDS.items()}
    return deployments.annotate(**columns)
