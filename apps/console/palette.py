"""Search of the command palette: actions, pages, runs and threads by id, and others by name."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from apps.console.sections import SECTIONS, settings_links
from apps.core.callers import Caller, OrganizationCaller
from apps.datasets.models import Dataset
from apps.deployments.models import Deployment
from apps.monitoring.models import Section
from apps.organizations.permissions import Permission
from apps.prompts.models import Repository
from apps.trace_store import RunQuery, filters, run_store
from apps.tracing.models import Project

MAX_RESULTS = 6
"""The maximum number of results in a group."""
MAX_SEARCHED_PROJECTS = 100
_MIN_SETTINGS_TEXT = 2
"""Settings pages are listed only for a text of this length, because they are many."""
ACTIONS = (
    ("Connect a program", "start", Permission.WORKSPACE_READ),
    ("New dataset", "dataset-new", Permission.DATASETS_WRITE),
    ("New annotation queue", "annotation-new", Permission.ANNOTATION_QUEUES_WRITE),
    ("New prompt", "prompt-new", Permission.PROMPTS_WRITE),
    ("New deployment", "deployment-new", Permission.DEPLOYMENTS_WRITE),
    ("New dashboard", "dashboard-list", Permission.CHARTS_WRITE),
    ("New alert", "alert-new", Permission.ALERTS_WRITE),
    ("Create key", "settings-personal-keys", Permission.WORKSPACE_READ),
)
"""Name, URL name and permission of what the palette starts."""


@dataclass(frozen=True)
class PaletteItem:
    name: str
    icon: str
    url: str
    note: str = ""


@dataclass(frozen=True)
class Group:
    name: str
    items: list[PaletteItem]


def search(
    caller: Caller, text: str, organization: OrganizationCaller | None = None
) -> list[Group]:
    """Return the matches in groups; an empty text matches everything but settings.

    `organization` is the same person's caller on the organization, for its settings.
    """
    text = text.strip()
    groups = [
        Group("Runs", _find_run(caller, text)),
        Group("Threads", _find_thread(caller, text)),
        Group("Go to", _find_pages(caller, text)),
        Group("Actions", _find_actions(caller, text)),
        Group("Projects", _find_projects(caller, text)),
        Group("Datasets", _find_datasets(caller, text)),
        Group("Prompts", _find_prompts(caller, text)),
        Group("Deployments", _find_deployments(caller, text)),
        Group("Dashboards", _find_dashboards(caller, text)),
        Group("Settings", _find_settings(caller, organization, text)),
    ]
    return [group for group in groups if group.items]


def _find_pages(caller: Caller, text: str) -> list[PaletteItem]:
    workspace_id = caller.workspace_id
    pages = [
        PaletteItem(section.name, section.icon, reverse(section.url_name, args=[workspace_id]))
        for section in SECTIONS
        if caller.may(section.permission)
    ]
    return [page for page in pages if text.lower() in page.name.lower()]


def _find_actions(caller: Caller, text: str) -> list[PaletteItem]:
    return [
        PaletteItem(name, "plus", reverse(url_name, args=[caller.workspace_id]))
        for name, url_name, permission in ACTIONS
        if caller.may(permission) and text.lower() in name.lower()
    ]


def _find_settings(
    caller: Caller, organization: OrganizationCaller | None, text: str
) -> list[PaletteItem]:
    if len(text) < _MIN_SETTINGS_TEXT:
        return []
    items = [
        PaletteItem(page["name"], "settings", page["url"], group["name"])
        for group in settings_links(caller, organization, None)
        for page in group["pages"]
    ]
    return [item for item in items if text.lower() in item.name.lower()][:MAX_RESULTS]


def _find_thread(caller: Caller, text: str) -> list[PaletteItem]:
    """Return the newest thread with exactly this id."""
    if not text or not caller.may(Permission.RUNS_READ):
        return []
    projects = Project.objects.for_workspace(caller.workspace_id).present().newest_first()
    project_ids = list(projects.values_list("pk", flat=True)[:MAX_SEARCHED_PROJECTS])
    if not project_ids:
        return []
    query = RunQuery(project_ids=project_ids, is_root=True, where=filters.thread_filter(text))
    page = run_store.query(caller.workspace_id, query, limit=1)
    if not page.runs:
        return []
    row = page.runs[0].row
    url = reverse("thread-detail", args=[caller.workspace_id, row.project_id])
    return [PaletteItem(text, "messages-square", f"{url}?{urlencode({'thread': text})}", row.name)]


def _find_run(caller: Caller, text: str) -> list[PaletteItem]:
    try:
        run_id = UUID(text)
    except ValueError:
        return []
    if not caller.may(Permission.RUNS_READ):
        return []
    run = run_store.get(caller.workspace_id, run_id, payloads=())
    if run is None:
        return []
    url = reverse("trace-detail", args=[caller.workspace_id, run.row.project_id, run_id])
    return [PaletteItem(run.row.shown_name, "list-tree", url, run.row.run_type)]


def _find_projects(caller: Caller, text: str) -> list[PaletteItem]:
    if not caller.may(Permission.PROJECTS_READ):
        return []
    rows = Project.objects.for_workspace(caller.workspace_id).newest_first()
    return [
        PaletteItem(
            row.name, "folder", reverse("project-detail", args=[caller.workspace_id, row.pk])
        )
        for row in rows.filter(name__icontains=text)[:MAX_RESULTS]
    ]


def _find_datasets(caller: Caller, text: str) -> list[PaletteItem]:
    if not caller.may(Permission.DATASETS_READ):
        return []
    rows = Dataset.objects.for_workspace(caller.workspace_id).present().order_by("-updated_at")
    return [
        PaletteItem(
            row.name, "database", reverse("dataset-examples", args=[row.workspace_id, row.pk])
        )
        for row in rows.filter(name__icontains=text)[:MAX_RESULTS]
    ]


def _find_prompts(caller: Caller, text: str) -> list[PaletteItem]:
    if not caller.may(Permission.PROMPTS_READ):
        return []
    rows = Repository.objects.for_workspace(caller.workspace_id).order_by("-updated_at")
    return [
        PaletteItem(
            row.handle,
            "message-square-text",
            reverse("prompt-detail", args=[row.workspace_id, row.handle]),
            row.type,
        )
        for row in rows.filter(handle__icontains=text)[:MAX_RESULTS]
    ]


def _find_dashboards(caller: Caller, text: str) -> list[PaletteItem]:
    if not caller.may(Permission.CHARTS_READ):
        return []
    rows = Section.objects.for_workspace(caller.workspace_id).in_order()
    return [
        PaletteItem(
            row.title, "chart-line", reverse("dashboard-detail", args=[row.workspace_id, row.pk])
        )
        for row in rows.filter(title__icontains=text)[:MAX_RESULTS]
    ]


def _find_deployments(caller: Caller, text: str) -> list[PaletteItem]:
    if not caller.may(Permission.DEPLOYMENTS_READ):
        return []
    rows = Deployment.objects.for_workspace(caller.workspace_id).present().order_by("-created_at")
    return [
        PaletteItem(
            row.name,
            "ship",
            reverse("deployment-detail", args=[row.workspace_id, row.pk]),
            row.slug,
        )
        for row in rows.filter(name__icontains=text)[:MAX_RESULTS]
    ]
