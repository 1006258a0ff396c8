"""Page-shaped reads: what the tracing pages show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.core import errors
from apps.core.json import Fragment, dumps_text
from apps.core.tenancy import get_or_404
from apps.tracing import messages
from apps.tracing.models import Project
from apps.tracing.store import Page, Payload, ProjectStats, RunDetail, RunQuery, RunRow, runs

PROJECTS_A_PAGE = 50
RUNS_A_PAGE = 50
INLINE_BYTES = 100_000
"""Larger payloads are fetched and parsed by the viewer, off the main thread."""
RENDERED_BYTES = 2_000_000
FIRST_ROWS = 60
"""Rows of a tree that the page has without script; the rest comes as data."""

SHOWN: dict[str, dict[str, Any]] = {
    "": {"is_root": True},
    "all": {},
    "llm": {"run_type": "llm"},
    "errors": {"is_root": True, "has_error": True},
}
"""What the list of runs can be limited to, by the parameter `show`."""


@dataclass(frozen=True)
class ProjectRow:
    project: Project
    stats: ProjectStats


def projects(
    workspace_id: UUID, *, text: str = "", after: str = ""
) -> tuple[list[ProjectRow], str | None]:
    """A page of projects, newest first, and the cursor of the next page."""
    rows = Project.objects.for_workspace(workspace_id).plain().newest_first()
    if text:
        rows = rows.filter(name__icontains=text)
    if after:
        start, last = _project_cursor(after)
        rows = rows.filter(Q(start_time__lt=start) | Q(start_time=start, pk__lt=last))
    found = list(rows[: PROJECTS_A_PAGE + 1])
    page = found[:PROJECTS_A_PAGE]
    stats = runs.project_stats(workspace_id, [row.pk for row in page])
    cursor = None
    if len(found) > PROJECTS_A_PAGE:
        cursor = f"{page[-1].start_time.isoformat()}~{page[-1].pk}"
    return [ProjectRow(row, stats[row.pk]) for row in page], cursor


def _project_cursor(text: str) -> tuple[datetime, UUID]:
    start, _, last = text.partition("~")
    try:
        return datetime.fromisoformat(start).astimezone(UTC), UUID(last)
    except ValueError:
        raise errors.BadRequest("This page address is broken; begin again at the list.") from None


def project(workspace_id: UUID, project_id: UUID) -> Project:
    """One project; 404 when it is not here."""
    return get_or_404(Project.objects.for_workspace(workspace_id), pk=project_id)


def run_list(
    project: Project, *, show: str = "", cursor: str = "", until: datetime | None = None
) -> Page:
    """A page of the project's runs, newest first."""
    limits = SHOWN.get(show, SHOWN[""])
    query = RunQuery(project_ids=[project.pk], started_until=until, **limits)
    return runs.query(project.workspace_id, query, limit=RUNS_A_PAGE, cursor=cursor or None)


@dataclass(frozen=True)
class TreeRun:
    """A run in its tree: what a row shows, times in milliseconds from the trace's beginning."""

    row: RunRow
    parent: int
    depth: int
    start: float
    took: float | None

    def as_json(self) -> list[Any]:
        """The shape that `<trace-tree>` reads."""
        usage = self.row.usage
        return [
            str(self.row.id),
            self.parent,
            self.row.run_type,
            self.row.name,
            self.row.status.value,
            round(self.start, 3),
            None if self.took is None else round(self.took, 3),
            usage.prompt_tokens,
            usage.completion_tokens,
        ]


@dataclass(frozen=True)
class Tree:
    """The runs of one trace, depth first."""

    runs: list[TreeRun]
    total: float
    """Milliseconds from the first start to the last end."""

    @property
    def first(self) -> list[TreeRun]:
        return self.runs[:FIRST_ROWS]

    @property
    def errors(self) -> int:
        return sum(run.row.error_preview is not None for run in self.runs)

    def as_json(self) -> Fragment:
        return Fragment(
            dumps_text({"total": self.total, "runs": [r.as_json() for r in self.runs]}).encode()
        )


def tree(rows: Sequence[RunRow], now: datetime) -> Tree:
    """Rows in depth-first order as a tree; a run whose parent is not there stands at the edge."""
    if not rows:
        return Tree([], 0.0)
    begin = min(row.start_time for row in rows)
    end = max(row.end_time or now for row in rows)
    at = {row.id: index for index, row in enumerate(rows)}
    made: list[TreeRun] = []
    for row in rows:
        parent = at.get(row.parent_run_id, -1) if row.parent_run_id else -1
        depth = made[parent].depth + 1 if 0 <= parent < len(made) else 0
        latency = row.latency
        took = None if latency is None else max(0.0, _milliseconds(latency))
        made.append(TreeRun(row, parent, depth, _milliseconds(row.start_time - begin), took))
    return Tree(made, max(0.0, _milliseconds(end - begin)))


def _milliseconds(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)


@dataclass(frozen=True)
class PayloadView:
    """Inputs or outputs, and the best way to show them."""

    name: str
    json: Fragment | None
    messages: list[messages.Message]
    text: str | None

    @property
    def size(self) -> int:
        return len(self.json or b"")

    @property
    def is_empty(self) -> bool:
        return self.json is None or self.json in (b"null", b"{}")

    @property
    def is_inline(self) -> bool:
        return self.size <= INLINE_BYTES

    @property
    def beginning(self) -> str:
        """Enough of it for those who have no script."""
        return bytes(self.json or b"")[:16_000].decode("utf-8", "ignore")


@dataclass(frozen=True)
class RunView:
    """One run in full."""

    row: RunRow
    inputs: PayloadView
    outputs: PayloadView
    error: str | None
    metadata: list[tuple[str, str]]
    runtime: list[tuple[str, str]]

    @property
    def first_token(self) -> timedelta | None:
        token = self.row.first_token_time
        return token - self.row.start_time if token else None


_READ = (Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR, Payload.EXTRA)


def run(project: Project, run_id: UUID) -> RunView:
    """One run with its payloads; 404 when it is not in the project."""
    detail = runs.get(project.workspace_id, run_id, project_id=project.pk, payloads=_READ)
    if detail is None:
        raise errors.NotFound
    extra = detail.value(Payload.EXTRA)
    runtime = extra.get("runtime") if isinstance(extra, dict) else None
    return RunView(
        row=detail.row,
        inputs=_payload(detail, Payload.INPUTS),
        outputs=_payload(detail, Payload.OUTPUTS),
        error=_error(detail),
        metadata=_facts(detail.row.metadata),
        runtime=_facts(runtime if isinstance(runtime, dict) else {}),
    )


def payload(project: Project, run_id: UUID, which: Payload) -> Fragment:
    """One payload as the JSON that was sent; 404 when there is none."""
    detail = runs.get(project.workspace_id, run_id, project_id=project.pk, payloads=(which,))
    found = detail.json(which) if detail else None
    if found is None:
        raise errors.NotFound
    return found


def trace(project: Project, trace_id: UUID) -> Tree:
    """The whole trace."""
    rows = runs.trace(project.workspace_id, trace_id, project_id=project.pk)
    return tree(rows, datetime.now(UTC))


def _payload(detail: RunDetail, which: Payload) -> PayloadView:
    json = detail.json(which)
    value = detail.value(which) if json is not None and len(json) <= RENDERED_BYTES else None
    found = messages.find(value)
    return PayloadView(which.value, json, found, None if found else messages.text_of(value))


def _error(detail: RunDetail) -> str | None:
    error = detail.value(Payload.ERROR)
    if error is None:
        return detail.row.error_preview
    return error if isinstance(error, str) else dumps_text(error)


def _facts(values: Any) -> list[tuple[str, str]]:
    """Names and values as text, in the order of their names."""
    pairs = ((str(k), v if isinstance(v, str) else dumps_text(v)) for k, v in values.items())
    return sorted(pairs)
