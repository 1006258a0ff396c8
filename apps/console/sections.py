"""The parts of the product that have pages, in the order of the navigation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, ResolverMatch, reverse

from apps.core.callers import Caller, OrganizationCaller
from apps.organizations.permissions import OrganizationPermission, Permission


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
        ("project", "projects", "trace", "traces", "thread", "export"),
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
    Section("Settings", "settings", "setting-general", Permission.WORKSPACE_READ, ("setting",)),
)


@dataclass(frozen=True)
class SettingsPage:
    """A page of the settings, and what it takes to open it."""

    name: str
    url_name: str
    permission: Permission | OrganizationPermission


_W, _O = Permission, OrganizationPermission
SETTINGS: tuple[tuple[str, tuple[SettingsPage, ...]], ...] = (
    (
        "Workspace",
        (
            SettingsPage("General", "setting-general", _W.WORKSPACE_READ),
            SettingsPage("Members", "setting-members", _W.MEMBERS_READ),
            SettingsPage("Service keys", "setting-keys", _W.KEYS_READ),
            SettingsPage("Secrets", "setting-secrets", _W.SECRETS_READ),
            SettingsPage("Tags", "setting-tags", _W.TAGS_READ),
        ),
    ),
    (
        "Traces",
        (
            SettingsPage("Ingest log", "setting-ingest-log", _W.WORKSPACE_READ),
            SettingsPage("Usage", "setting-usage", _W.WORKSPACE_READ),
            SettingsPage("Retention", "setting-retention", _W.WORKSPACE_READ),
            SettingsPage("Model prices", "setting-prices", _W.WORKSPACE_READ),
            SettingsPage("Feedback keys", "setting-feedback", _W.FEEDBACK_READ),
        ),
    ),
    ("Account", (SettingsPage("Personal keys", "setting-personal-keys", _O.ORGANIZATION_READ),)),
    (
        "Organization",
        (
            SettingsPage("General", "setting-organization", _O.ORGANIZATION_READ),
            SettingsPage("Organization members", "setting-organization-members", _O.PEOPLE_READ),
            SettingsPage("Roles", "setting-roles", _O.ORGANIZATION_READ),
            SettingsPage("Workspaces", "setting-workspaces", _O.ORGANIZATION_READ),
            SettingsPage("API keys", "setting-organization-keys", _O.SERVICE_KEYS_MANAGE),
            SettingsPage("Rate limits", "setting-limits", _O.USAGE_READ),
            SettingsPage("Network addresses", "setting-addresses", _O.ORGANIZATION_READ),
            SettingsPage("Billing", "setting-billing", _O.BILLING_MANAGE),
            SettingsPage("Audit log", "setting-audit", _O.AUDIT_READ),
        ),
    ),
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


def settings_for(
    caller: Caller, organization: OrganizationCaller | None, match: ResolverMatch | None
) -> list[dict[str, Any]]:
    """The pages of the settings that the person may open, in groups."""
    words = caller.permissions | (organization.permissions if organization else frozenset())
    groups = []
    for name, pages in SETTINGS:
        links = [
            {
                "name": page.name,
                "url": url,
                "is_current": match is not None and match.url_name == page.url_name,
            }
            for page in pages
            if page.permission in words and (url := _address(page, caller))
        ]
        if links:
            groups.append({"name": name, "pages": links})
    return groups


def _address(page: SettingsPage, caller: Caller) -> str | None:
    """None for a page of an app that this installation leaves out."""
    try:
        return reverse(page.url_name, args=[caller.workspace_id])
    except NoReverseMatch:
        return None
