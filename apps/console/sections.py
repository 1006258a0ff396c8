"""The navigation: sections and settings pages, in display order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, ResolverMatch, reverse

from apps.core.callers import Caller, OrganizationCaller
from apps.organizations.permissions import OrganizationPermission, Permission


@dataclass(frozen=True)
class NavigationSection:
    name: str
    icon: str
    url_name: str
    permission: Permission
    url_name_prefixes: tuple[str, ...]
    """First parts of the URL names that belong to the section."""


SECTIONS = (
    NavigationSection(
        "Tracing",
        "list-tree",
        "project-list",
        Permission.PROJECTS_READ,
        ("project", "projects", "trace", "traces", "thread", "export", "start"),
    ),
    NavigationSection(
        "Datasets",
        "database",
        "dataset-list",
        Permission.DATASETS_READ,
        ("dataset", "datasets", "example", "experiment", "experiments", "comparison", "evaluator"),
    ),
    NavigationSection(
        "Annotation",
        "check-check",
        "annotation-list",
        Permission.ANNOTATION_QUEUES_READ,
        ("annotation",),
    ),
    NavigationSection(
        "Prompts", "message-square-text", "prompt-list", Permission.PROMPTS_READ, ("prompt",)
    ),
    NavigationSection(
        "Playground",
        "flask-conical",
        "playground",
        Permission.PROMPTS_READ,
        ("playground",),
    ),
    NavigationSection(
        "Deployments",
        "ship",
        "deployment-list",
        Permission.DEPLOYMENTS_READ,
        ("deployment", "revision"),
    ),
    NavigationSection(
        "Dashboards", "chart-line", "dashboard-list", Permission.CHARTS_READ, ("dashboard", "chart")
    ),
    NavigationSection("Alerts", "bell", "alert-list", Permission.ALERTS_READ, ("alert",)),
    NavigationSection(
        "Settings", "settings", "settings-general", Permission.WORKSPACE_READ, ("settings",)
    ),
)


@dataclass(frozen=True)
class SettingsPage:
    """A settings page and the permission that it requires."""

    name: str
    url_name: str
    permission: Permission | OrganizationPermission


_W, _O = Permission, OrganizationPermission
SETTINGS_GROUPS: tuple[tuple[str, tuple[SettingsPage, ...]], ...] = (
    (
        "Workspace",
        (
            SettingsPage("General", "settings-general", _W.WORKSPACE_READ),
            SettingsPage("Members", "settings-members", _W.MEMBERS_READ),
            SettingsPage("Service keys", "settings-keys", _W.KEYS_READ),
            SettingsPage("Secrets", "settings-secrets", _W.SECRETS_READ),
            SettingsPage("Tags", "settings-tags", _W.TAGS_READ),
            SettingsPage("Prompt webhooks", "settings-prompt-webhooks", _W.PROMPTS_READ),
            SettingsPage(
                "Deployment webhooks", "settings-deployment-webhooks", _W.DEPLOYMENTS_READ
            ),
        ),
    ),
    (
        "Traces",
        (
            SettingsPage("Ingest log", "settings-ingest-log", _W.WORKSPACE_READ),
            SettingsPage("Usage", "settings-usage", _W.WORKSPACE_READ),
            SettingsPage("Retention", "settings-retention", _W.WORKSPACE_READ),
            SettingsPage("Model prices", "settings-prices", _W.WORKSPACE_READ),
            SettingsPage("Feedback keys", "settings-feedback", _W.FEEDBACK_READ),
        ),
    ),
    ("Account", (SettingsPage("Personal keys", "settings-personal-keys", _O.ORGANIZATION_READ),)),
    (
        "Organization",
        (
            SettingsPage("General", "settings-organization", _O.ORGANIZATION_READ),
            SettingsPage("Organization members", "settings-organization-members", _O.PEOPLE_READ),
            SettingsPage("Roles", "settings-roles", _O.ORGANIZATION_READ),
            SettingsPage("Workspaces", "settings-workspaces", _O.ORGANIZATION_READ),
            SettingsPage("API keys", "settings-organization-keys", _O.SERVICE_KEYS_MANAGE),
            SettingsPage("Rate limits", "settings-limits", _O.USAGE_READ),
            SettingsPage("Network addresses", "settings-addresses", _O.ORGANIZATION_READ),
            SettingsPage("Billing", "settings-billing", _O.BILLING_MANAGE),
            SettingsPage("Audit log", "settings-audit", _O.AUDIT_READ),
        ),
    ),
)


def navigation_links(caller: Caller, match: ResolverMatch | None) -> list[dict[str, Any]]:
    """Return the sections that the caller may open, with their URLs in the workspace."""
    prefix = (match.url_name or "").partition("-")[0] if match else ""
    return [
        {
            "name": section.name,
            "icon": section.icon,
            "url": reverse(section.url_name, args=[caller.workspace_id]),
            "is_current": prefix in section.url_name_prefixes,
        }
        for section in SECTIONS
        if caller.may(section.permission)
    ]


def settings_links(
    caller: Caller, organization: OrganizationCaller | None, match: ResolverMatch | None
) -> list[dict[str, Any]]:
    """Return the settings pages that the caller may open, in groups."""
    permissions = caller.permissions | (organization.permissions if organization else frozenset())
    groups = []
    for name, pages in SETTINGS_GROUPS:
        links = [
            {
                "name": page.name,
                "url": url,
                "is_current": match is not None and match.url_name == page.url_name,
            }
            for page in pages
            if page.permission in permissions and (url := _page_url(page, caller))
        ]
        if links:
            groups.append({"name": name, "pages": links})
    return groups


def _page_url(page: SettingsPage, caller: Caller) -> str | None:
    """Return the URL, or None if the installation does not include the page's app."""
    try:
        return reverse(page.url_name, args=[caller.workspace_id])
    except NoReverseMatch:
        return None
