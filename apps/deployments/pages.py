"""Page-shaped reads: what the deployment pages show, each in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.core.tenancy import get_or_404
from apps.deployments.addresses import agent_url
from apps.deployments.models import (
    Deployment,
    EnvironmentVariable,
    LogKind,
    LogLine,
    Revision,
    StatusChange,
)
from apps.deployments.statuses import FAILED, FINAL, RevisionStatus

REVISIONS_A_PAGE = 25
LINES_IN_PAGE = 2000


@dataclass(frozen=True)
class DeploymentRow:
    """A deployment as the list and the head of its page show it."""

    deployment: Deployment
    newest: Revision | None

    @property
    def url(self) -> str:
        return agent_url(self.deployment.slug)

    @property
    def is_settled(self) -> bool:
        """Nothing is on its way, so the page need not look again."""
        return self.newest is None or self.newest.is_final

    @property
    def state(self) -> str:
        """What it does, in the words of apps.web_ui.badges."""
        active, newest = self.deployment.active_revision_id, self.newest
        if newest is not None and not newest.is_final:
            return "updating" if active else "starting"
        failed = newest is not None and newest.status in FAILED
        if active is None:
            return "failed" if failed else "idle"
        return "behind" if failed and newest is not None and newest.pk != active else "serving"


def deployments(workspace_id: UUID) -> list[DeploymentRow]:
    """All deployments of the workspace, newest first."""
    rows = Deployment.objects.for_workspace(workspace_id).present().newest_first()
    return _with_newest(workspace_id, list(rows.select_related("active_revision")))


def deployment(workspace_id: UUID, deployment_id: UUID) -> DeploymentRow:
    """One deployment; 404 when it is not here."""
    rows = Deployment.objects.for_workspace(workspace_id).present()
    row = get_or_404(rows.select_related("active_revision", "created_by"), pk=deployment_id)
    return _with_newest(workspace_id, [row])[0]


def _with_newest(workspace_id: UUID, rows: Sequence[Deployment]) -> list[DeploymentRow]:
    newest = (
        Revision.objects.for_workspace(workspace_id)
        .filter(deployment__in=rows)
        .defer("config", "environment")
        .order_by("deployment_id", "-number")
        .distinct("deployment_id")
    )
    by_deployment = {revision.deployment_id: revision for revision in newest}
    return [DeploymentRow(row, by_deployment.get(row.pk)) for row in rows]


def revisions(
    deployment: Deployment, *, before: int | None = None
) -> tuple[list[Revision], int | None]:
    """A page of revisions, newest first, and the number to ask for those before them."""
    rows = Revision.objects.for_workspace(deployment.workspace_id).filter(deployment=deployment)
    if before is not None:
        rows = rows.filter(number__lt=before)
    rows = rows.defer("config", "environment").select_related("created_by").newest_first()
    found = list(rows[: REVISIONS_A_PAGE + 1])
    page = found[:REVISIONS_A_PAGE]
    return page, page[-1].number if len(found) > REVISIONS_A_PAGE else None


def variable_names(deployment: Deployment) -> list[str]:
    """What the environment of its agents is called; the values stay where they are."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    names = rows.filter(deployment=deployment).order_by("name")
    return list(names.values_list("name", flat=True))


def revision(workspace_id: UUID, deployment_id: UUID, revision_id: UUID) -> Revision:
    """One revision with its deployment; 404 when it is not here."""
    rows = Revision.objects.for_workspace(workspace_id).filter(deployment__deleted_at=None)
    related = rows.select_related("deployment", "created_by").defer("environment")
    return get_or_404(related, pk=revision_id, deployment_id=deployment_id)


@dataclass(frozen=True)
class Log:
    """The end of a log, and whether there is more before it."""

    lines: list[LogLine]
    is_cut: bool

    @property
    def last_id(self) -> int:
        return self.lines[-1].pk if self.lines else 0


def log(revision: Revision, kind: LogKind) -> Log:
    """The last lines of the revision's log, oldest first."""
    rows = LogLine.objects.for_workspace(revision.workspace_id)
    newest = rows.filter(revision=revision, kind=kind).order_by("-pk")[: LINES_IN_PAGE + 1]
    found = list(newest)
    return Log(found[:LINES_IN_PAGE][::-1], len(found) > LINES_IN_PAGE)


def log_text(revision: Revision, kind: LogKind) -> str:
    """The whole log as text, each line with its time."""
    rows = LogLine.objects.for_workspace(revision.workspace_id)
    lines = rows.filter(revision=revision, kind=kind).order_by("pk")
    values = lines.values_list("created_at", "level", "message")
    return "".join(f"{at:%Y-%m-%dT%H:%M:%S.%fZ} {level:7} {text}\n" for at, level, text in values)


@dataclass(frozen=True)
class Station:
    """A part of a revision's way, and how it went."""

    name: str
    state: str
    """`done`, `now`, `failed`, `stopped` or `ahead`."""
    took: timedelta | None = None
    since: datetime | None = None

    @property
    def began(self) -> datetime | None:
        """When the clock of a station that is still busy would have started."""
        return timezone.now() - self.took if self.took is not None else None


_S = RevisionStatus
_STATIONS: tuple[tuple[str, frozenset[RevisionStatus]], ...] = (
    ("Queued", frozenset({_S.CREATING, _S.QUEUED, _S.AWAITING_BUILD})),
    ("Built", frozenset({_S.BUILDING})),
    ("Deployed", frozenset({_S.AWAITING_DEPLOY, _S.DEPLOYING})),
    ("Live", frozenset({_S.DEPLOYED})),
)
_NOW = {"Queued": "Waiting", "Built": "Building", "Deployed": "Deploying", "Live": "Live"}
_FAILED = {"Queued": "Create failed", "Built": "Build failed", "Deployed": "Deploy failed"}


def way(revision: Revision) -> list[Station]:
    """The revision's way down the slip, from the record of its states."""
    changes = StatusChange.objects.for_workspace(revision.workspace_id).filter(revision=revision)
    return stations(list(changes.in_order().values_list("status", "created_at")), timezone.now())


def stations(changes: Sequence[tuple[Any, datetime]], now: datetime) -> list[Station]:
    """The stations of these state changes; a second deploy counts from its own beginning."""
    if not changes:
        return [Station(name, "ahead") for name, _ in _STATIONS]
    took = [timedelta()] * len(_STATIONS)
    reached = -1
    ends = [at for _, at in changes[1:]] + [now]
    for (status, begin), end in zip(changes, ends, strict=True):
        at = _station(status)
        if at is None:
            continue
        if at < reached:
            took[at:] = [timedelta()] * (len(took) - at)
        took[at] += end - begin
        reached = at

    status, since = changes[-1]
    made = []
    for at, (name, _) in enumerate(_STATIONS):
        if at > reached:
            made.append(Station(name, "ahead"))
        elif at < reached:
            made.append(Station(name, "done", took[at]))
        else:
            made.append(_last_station(name, RevisionStatus(status), took[at], since))
    return made


def _last_station(name: str, status: RevisionStatus, took: timedelta, since: datetime) -> Station:
    if status == _S.DEPLOYED:
        return Station("Live", "done", since=since)
    if status in FAILED:
        return Station(_FAILED.get(name, "Failed"), "failed", took)
    if status in FINAL:
        return Station("Skipped" if status == _S.SKIPPED else "Stopped", "stopped", took)
    return Station(_NOW[name], "now", took, since)


def _station(status: str) -> int | None:
    return next((at for at, (_, statuses) in enumerate(_STATIONS) if status in statuses), None)


def lines_after(
    workspace_id: UUID, revision_id: UUID, kind: LogKind, after: int, limit: int
) -> list[tuple[int, datetime, str, str]]:
    """The next lines of a log behind the one with that id."""
    rows = LogLine.objects.for_workspace(workspace_id).filter(revision_id=revision_id, kind=kind)
    values = rows.after(after).values_list("pk", "created_at", "level", "message")
    return list(values[:limit])


def graph_names(revision: Revision) -> Iterable[str]:
    """The graphs that the revision offers."""
    return revision.graphs.in_order().values_list("graph_id", flat=True)
