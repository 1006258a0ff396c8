"""Search of the command palette: pages, runs by id, and projects, datasets and others by name."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from apps.console.sections import SECTIONS
from apps.core.callers import Caller
from apps.datasets.models import Dataset
from apps.deployments.models import Deployment
from apps.organizations.permissions import Permission
from apps.prompts.models import Repository
from apps.trace_store import run_store
from apps.tracing.models import Project

MAX_RESULTS = 6
"""The maximum number of results in a group."""


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


def search(caller: Caller, text: str) -> list[Group]:
    """Return the matches in groups; an empty text matches everything."""
    text = text.strip()
    groups = [
        Group("Runs", _find_run(caller, text)),
        Group("Go to", _find_pages(caller, text)),
        Group("Projects", _find_projects(caller, text)),
        Group("Datasets", _find_datasets(caller, text)),
        Group("Prompts", _find_prompts(caller, text)),
        Group("Deployments", _find_deployments(caller, text)),
    ]
    return [group for group in groups if group.items]


def _find_pages(caller: Caller, text: str) -> list[PaletteItem]:
    workspace_id = caller.workspace_id
    pages = [
        PaletteItem(section.name, section.icon, reverse(section.url_name, args=[workspace_id]))
        for section in SECTIONS
        if caller.may(section.permission)
    ]
    if caller.may(Permission.DEPLOYMENTS_WRITE):
        pages.append(
            PaletteItem("New deployment", "plus", reverse("deployment-new", args=[workspace_id]))
        )
    return [page for page in pages if text.lower() in page.name.lower()]


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
    return [PaletteItem(run.row.name, "list-tree", url, run.row.run_type)]


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
