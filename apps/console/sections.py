"""The parts of the product that have pages, in the order of the navigation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import ResolverMatch, reverse

from apps.core.access import Caller
from apps.organizations.permissions import Permission


@dataclass(frozen=True)
class Section:
    name: str
    icon: str
    url_name: str
    permission: Permission
    nouns: tuple[str, ...]
    """The first words of the URL names that belong to it."""


SECTIONS = (
    Section(
        "Tracing",
        "list-tree",
        "project-list",
        Permission.PROJECTS_READ,
        ("project", "trace", "export"),
    ),
    Section(
        "Deployments",
        "ship",
        "deployment-list",
        Permission.DEPLOYMENTS_READ,
        ("deployment", "revision"),
    ),
    Section(
        "Dashboards", "chart-line", "dashboard-list", Permission.CHARTS_READ, ("dashboard", "chart")
    ),
    Section("Settings", "settings", "setting-ledger", Permission.WORKSPACE_READ, ("setting",)),
)


def sections_for(caller: Caller, match: ResolverMatch | None) -> list[dict[str, Any]]:
    """The sections that the person may open, with their addresses in this workspace."""
    noun = (match.url_name or "").partition("-")[0] if match else ""
    return [
        {
            "name": section.name,
            "icon": section.icon,
            "url": reverse(section.url_name, args=[caller.workspace_id]),
            "is_current": noun in section.nouns,
        }
        for section in SECTIONS
        if caller.may(section.permission)
    ]
