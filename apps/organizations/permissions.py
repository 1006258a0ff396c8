"""Permissions and the permission sets of system roles and key scopes.

A permission belongs to one level: workspace, organization or user.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Level(StrEnum):
    """The level that a role applies to."""

    ORGANIZATION = "organization"
    WORKSPACE = "workspace"


class Permission(StrEnum):
    """Permissions in a workspace."""

    RUNS_READ = "runs:read"
    RUNS_INGEST = "runs:ingest"
    RUNS_DELETE = "runs:delete"
    RUNS_SHARE = "runs:share"
    FEEDBACK_READ = "feedback:read"
    FEEDBACK_WRITE = "feedback:write"
    CHARTS_READ = "charts:read"
    CHARTS_WRITE = "charts:write"
    ALERTS_READ = "alerts:read"
    ALERTS_WRITE = "alerts:write"
    EXPORTS_MANAGE = "exports:manage"
    PROJECTS_READ = "projects:read"
    PROJECTS_WRITE = "projects:write"
    PROJECTS_DELETE = "projects:delete"
    DATASETS_READ = "datasets:read"
    DATASETS_WRITE = "datasets:write"
    DATASETS_DELETE = "datasets:delete"
    DATASETS_SHARE = "datasets:share"
    EXPERIMENTS_READ = "experiments:read"
    EXPERIMENTS_WRITE = "experiments:write"
    EXPERIMENTS_DELETE = "experiments:delete"
    ANNOTATION_QUEUES_READ = "annotation-queues:read"
    ANNOTATION_QUEUES_REVIEW = "annotation-queues:review"
    ANNOTATION_QUEUES_WRITE = "annotation-queues:write"
    EVALUATORS_READ = "evaluators:read"
    EVALUATORS_WRITE = "evaluators:write"
    DEPLOYMENTS_READ = "deployments:read"
    DEPLOYMENTS_WRITE = "deployments:write"
    AGENTS_READ = "agents:read"
    AGENTS_RUN = "agents:run"
    WORKSPACE_READ = "workspace:read"
    WORKSPACE_MANAGE = "workspace:manage"
    WORKSPACE_DELETE = "workspace:delete"
    MEMBERS_READ = "members:read"
    MEMBERS_MANAGE = "members:manage"
    KEYS_READ = "keys:read"
    KEYS_MANAGE = "keys:manage"
    SECRETS_READ = "secrets:read"
    SECRETS_WRITE = "secrets:write"
    PROMPTS_READ = "prompts:read"
    PROMPTS_WRITE = "prompts:write"
    PROMPTS_DELETE = "prompts:delete"
    PROMPTS_SHARE = "prompts:share"
    TAGS_READ = "tags:read"
    TAGS_WRITE = "tags:write"


class OrganizationPermission(StrEnum):
    """Permissions on an organization."""

    ORGANIZATION_READ = "organization:read"
    ORGANIZATION_MANAGE = "organization:manage"
    PEOPLE_READ = "people:read"
    PEOPLE_MANAGE = "people:manage"
    OWNERS_MANAGE = "owners:manage"
    ROLES_MANAGE = "roles:manage"
    WORKSPACES_CREATE = "workspaces:create"
    WORKSPACES_ADMINISTER = "workspaces:administer"
    SERVICE_KEYS_MANAGE = "service-keys:manage"
    PERSONAL_KEYS_CREATE = "personal-keys:create"
    AUDIT_READ = "audit:read"
    USAGE_READ = "usage:read"
    LIMITS_MANAGE = "limits:manage"
    BILLING_READ = "billing:read"
    BILLING_MANAGE = "billing:manage"


class PersonPermission(StrEnum):
    """Permissions of users on their own account, independent of any organization."""

    ME_READ = "me:read"
    ME_WRITE = "me:write"


_ALL = frozenset(Permission)
_READ = frozenset(
    {
        Permission.RUNS_READ,
        Permission.FEEDBACK_READ,
        Permission.CHARTS_READ,
        Permission.ALERTS_READ,
        Permission.PROJECTS_READ,
        Permission.DATASETS_READ,
        Permission.EXPERIMENTS_READ,
        Permission.ANNOTATION_QUEUES_READ,
        Permission.EVALUATORS_READ,
        Permission.DEPLOYMENTS_READ,
        Permission.AGENTS_READ,
        Permission.WORKSPACE_READ,
        Permission.MEMBERS_READ,
        Permission.PROMPTS_READ,
        Permission.TAGS_READ,
    }
)
_EDIT = _READ | {
    Permission.RUNS_INGEST,
    Permission.RUNS_DELETE,
    Permission.RUNS_SHARE,
    Permission.FEEDBACK_WRITE,
    Permission.CHARTS_WRITE,
    Permission.ALERTS_WRITE,
    Permission.PROJECTS_WRITE,
    Permission.PROJECTS_DELETE,
    Permission.DATASETS_WRITE,
    Permission.DATASETS_DELETE,
    Permission.DATASETS_SHARE,
    Permission.EXPERIMENTS_WRITE,
    Permission.EXPERIMENTS_DELETE,
    Permission.ANNOTATION_QUEUES_REVIEW,
    Permission.ANNOTATION_QUEUES_WRITE,
    Permission.EVALUATORS_WRITE,
    Permission.DEPLOYMENTS_WRITE,
    Permission.AGENTS_RUN,
    Permission.SECRETS_READ,
    Permission.SECRETS_WRITE,
    Permission.PROMPTS_WRITE,
    Permission.PROMPTS_DELETE,
    Permission.PROMPTS_SHARE,
    Permission.TAGS_WRITE,
}

WORKSPACE_ROLES: dict[str, frozenset[Permission]] = {
    "admin": _ALL,
    "editor": frozenset(_EDIT),
    "viewer": _READ,
    "annotator": frozenset(
        {
            Permission.RUNS_READ,
            Permission.PROJECTS_READ,
            Permission.DATASETS_READ,
            Permission.EXPERIMENTS_READ,
            Permission.FEEDBACK_READ,
            Permission.FEEDBACK_WRITE,
            Permission.ANNOTATION_QUEUES_READ,
            Permission.ANNOTATION_QUEUES_REVIEW,
            Permission.WORKSPACE_READ,
        }
    ),
}

_ALL_ORGANIZATION = frozenset(OrganizationPermission)
_ORGANIZATION_READ = frozenset(
    {OrganizationPermission.ORGANIZATION_READ, OrganizationPermission.PEOPLE_READ}
)
_OWNER_ONLY = frozenset(
    {OrganizationPermission.OWNERS_MANAGE, OrganizationPermission.BILLING_MANAGE}
)

ORGANIZATION_ROLES: dict[str, frozenset[OrganizationPermission]] = {
    "owner": _ALL_ORGANIZATION,
    "admin": _ALL_ORGANIZATION - _OWNER_ONLY,
    "member": _ORGANIZATION_READ
    | {OrganizationPermission.USAGE_READ, OrganizationPermission.PERSONAL_KEYS_CREATE},
    "viewer": _ORGANIZATION_READ,
}
# Owners and admins of an organization administer each of its workspaces.
ORGANIZATION_ADMINS = frozenset({"owner", "admin"})

SCOPES: dict[str, frozenset[Permission]] = {
    "read": _READ,
    "write": frozenset(_EDIT - {Permission.DEPLOYMENTS_WRITE, Permission.SECRETS_WRITE}),
    "ingest": frozenset({Permission.RUNS_INGEST}),
    "deploy": frozenset(
        {Permission.DEPLOYMENTS_READ, Permission.DEPLOYMENTS_WRITE, Permission.WORKSPACE_READ}
    ),
    "admin": _ALL,
}
# Permissions on the organization that the scopes of an organization-wide key grant. No scope
# grants owner permissions.
_ORGANIZATION_SCOPES: dict[str, frozenset[OrganizationPermission]] = {
    "read": _ORGANIZATION_READ | {OrganizationPermission.USAGE_READ},
    "write": _ORGANIZATION_READ | {OrganizationPermission.USAGE_READ},
    "deploy": frozenset({OrganizationPermission.ORGANIZATION_READ}),
    "admin": _ALL_ORGANIZATION - _OWNER_ONLY,
}
_PERSON_SCOPES: dict[str, frozenset[PersonPermission]] = {
    "read": frozenset({PersonPermission.ME_READ}),
    "write": frozenset({PersonPermission.ME_READ}),
    "admin": frozenset(PersonPermission),
}


def scope_permissions(scopes: Iterable[str]) -> frozenset[str]:
    """Workspace permissions that a key's scopes grant; an unknown scope grants nothing."""
    return frozenset(str(p) for scope in scopes for p in SCOPES.get(scope, ()))


def organization_scope_permissions(scopes: Iterable[str]) -> frozenset[str]:
    """Organization permissions that a key's scopes grant."""
    return frozenset(str(p) for scope in scopes for p in _ORGANIZATION_SCOPES.get(scope, ()))


def person_scope_permissions(scopes: Iterable[str]) -> frozenset[str]:
    """Permissions on the user's own account that a personal key's scopes grant."""
    return frozenset(str(p) for scope in scopes for p in _PERSON_SCOPES.get(scope, ()))


DESCRIPTIONS: dict[str, str] = {
    Permission.RUNS_READ: "View runs, traces and threads",
    Permission.RUNS_INGEST: "Ingest runs",
    Permission.RUNS_DELETE: "Delete traces",
    Permission.RUNS_SHARE: "Share traces by public link",
    Permission.FEEDBACK_READ: "View feedback",
    Permission.FEEDBACK_WRITE: "Create and delete feedback, configure feedback keys",
    Permission.CHARTS_READ: "View dashboards",
    Permission.CHARTS_WRITE: "Create and edit dashboards",
    Permission.ALERTS_READ: "View alerts",
    Permission.ALERTS_WRITE: "Create, edit and silence alerts and their channels",
    Permission.EXPORTS_MANAGE: "Export runs in bulk",
    Permission.PROJECTS_READ: "View projects",
    Permission.PROJECTS_WRITE: "Create and edit projects",
    Permission.PROJECTS_DELETE: "Delete projects",
    Permission.DATASETS_READ: "View datasets and examples",
    Permission.DATASETS_WRITE: "Create and edit datasets and examples",
    Permission.DATASETS_DELETE: "Delete datasets",
    Permission.DATASETS_SHARE: "Share datasets by public link",
    Permission.EXPERIMENTS_READ: "View and compare results of experiments",
    Permission.EXPERIMENTS_WRITE: "Run, compare and upload experiments",
    Permission.EXPERIMENTS_DELETE: "Delete comparisons of experiments",
    Permission.ANNOTATION_QUEUES_READ: "View annotation queues and their items",
    Permission.ANNOTATION_QUEUES_REVIEW: "Review items of annotation queues",
    Permission.ANNOTATION_QUEUES_WRITE: "Create, edit, fill and delete annotation queues",
    Permission.EVALUATORS_READ: "View evaluators, their rules and logs",
    Permission.EVALUATORS_WRITE: "Create, edit, run and delete evaluators and their rules",
    Permission.DEPLOYMENTS_READ: "View deployments, builds and logs",
    Permission.DEPLOYMENTS_WRITE: "Deploy, roll back and delete",
    Permission.AGENTS_READ: "View agent threads and state",
    Permission.AGENTS_RUN: "Run agents",
    Permission.WORKSPACE_READ: "View the workspace and its settings",
    Permission.WORKSPACE_MANAGE: "Edit workspace settings",
    Permission.WORKSPACE_DELETE: "Delete the workspace",
    Permission.MEMBERS_READ: "View workspace members",
    Permission.MEMBERS_MANAGE: "Add and remove workspace members, change their roles",
    Permission.KEYS_READ: "View service keys of the workspace",
    Permission.KEYS_MANAGE: "Create, rotate and revoke service keys",
    Permission.SECRETS_READ: "View the names of secrets",
    Permission.SECRETS_WRITE: "Set and delete secrets",
    Permission.PROMPTS_READ: "View prompts, agents and skills",
    Permission.PROMPTS_WRITE: "Create and edit prompts, commit, move tags",
    Permission.PROMPTS_DELETE: "Delete prompts",
    Permission.PROMPTS_SHARE: "Make prompts public",
    Permission.TAGS_READ: "View tags",
    Permission.TAGS_WRITE: "Create tags and assign them to resources",
    OrganizationPermission.ORGANIZATION_READ: "View the organization and its roles",
    OrganizationPermission.ORGANIZATION_MANAGE: "Edit the name and policies of the organization",
    OrganizationPermission.PEOPLE_READ: "View organization members",
    OrganizationPermission.PEOPLE_MANAGE: "Invite and remove members, change their roles",
    OrganizationPermission.OWNERS_MANAGE: "Add and remove owners",
    OrganizationPermission.ROLES_MANAGE: "Create, edit and delete roles",
    OrganizationPermission.WORKSPACES_CREATE: "Create workspaces",
    OrganizationPermission.WORKSPACES_ADMINISTER: "Administer all workspaces",
    OrganizationPermission.SERVICE_KEYS_MANAGE: "Create and revoke organization-wide keys",
    OrganizationPermission.PERSONAL_KEYS_CREATE: "Create personal keys",
    OrganizationPermission.AUDIT_READ: "Read and export the audit log",
    OrganizationPermission.USAGE_READ: "View usage and limits",
    OrganizationPermission.LIMITS_MANAGE: "Set usage limits",
    OrganizationPermission.BILLING_READ: "View billing",
    OrganizationPermission.BILLING_MANAGE: "Manage billing",
}


def permission_names(level: Level) -> tuple[str, ...]:
    """Every permission that a role of the level may contain, in display order."""
    names: type[StrEnum] = Permission if level == Level.WORKSPACE else OrganizationPermission
    return tuple(str(name) for name in names)
