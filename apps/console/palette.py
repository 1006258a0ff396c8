"""The command palette: everything with an address, by a few letters or an id."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from apps.console.sections import SECTIONS
from apps.core.callers import Caller
from apps.deployments.models import Deployment
from apps.organizations.permissions import Permission
from apps.trace_store import run_store
from apps.tracing.models import Project

EACH = 6


@dataclass(frozen=True)
class Item:
    name: str
    icon: str
    url: str
    note: str = ""


@dataclass(frozen=True)
class Group:
    name: str
    items: list[Item]


def search(caller: Caller, text: str) -> list[Group]:
    """What matches, in groups; with nothing typed the newest of each."""
    text = text.strip()
    groups = [
        Group("Runs", _run(caller, text)),
        Group("Go to", _pages(caller, text)),
        Group("Projects", _projects(caller, text)),
        Group("Deployments", _deployments(caller, text)),
    ]
    return [group for group in groups if group.items]


def _pages(caller: Caller, text: str) -> list[Item]:
    workspace = caller.workspace_id
    pages = [
        Item(section.name, section.icon, reverse(section.url_name, args=[workspace]))
        for section in SECTIONS
        if caller.may(section.permission)
    ]
    if caller.may(Permission.DEPLOYMENTS_WRITE):
        pages.append(Item("New deployment", "plus", reverse("deployment-new", args=[workspace])))
    return [page for page in pages if text.lower() in page.name.lower()]


def _run(caller: Caller, text: str) -> list[Item]:
    try:
        run_id = UUID(text)
    except ValueError:
        return []
    if not caller.may(Permission.RUNS_READ):
        return []
    run = run_store.get(caller.workspace_id, run_id, payloads=())
    if run is None:
        return []
    where = [caller.workspace_id, run.row.project_id, run_id]
    return [Item(run.row.name, "list-tree", reverse("trace-detail", args=where), run.row.run_type)]


def _projects(caller: Caller, text: str) -> list[Item]:
    if not caller.may(Permission.PROJECTS_READ):
        return []
    rows = Project.objects.for_workspace(caller.workspace_id).newest_first()
    return [
        Item(row.name, "folder", reverse("project-detail", args=[caller.workspace_id, row.pk]))
        for row in rows.filter(name__icontains=text)[:EACH]
    ]


def _deployments(caller: Caller, text: str) -> list[Item]:
    if not caller.may(Permission.DEPLOYMENTS_READ):
        return []
    rows = Deployment.objects.for_workspace(caller.workspace_id).present().order_by("-created_at")
    return [
        Item(
            row.name,
            "ship",
            reverse("deployment-detail", args=[row.workspace_id, row.pk]),
            row.slug,
        )
        for row in rows.filter(name__icontains=text)[:EACH]
    ]
