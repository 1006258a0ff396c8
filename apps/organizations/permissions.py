"""Named permissions, and the sets of them that make a role."""

from __future__ import annotations

from enum import StrEnum


class Permission(StrEnum):
    RUNS_READ = "runs:read"
    RUNS_INGEST = "runs:ingest"
    RUNS_DELETE = "runs:delete"
    RUNS_SHARE = "runs:share"
    FEEDBACK_READ = "feedback:read"
    FEEDBACK_WRITE = "feedback:write"
    CHARTS_READ = "charts:read"
    CHARTS_WRITE = "charts:write"
    EXPORTS_MANAGE = "exports:manage"
    PROJECTS_READ = "projects:read"
    PROJECTS_WRITE = "projects:write"
    PROJECTS_DELETE = "projects:delete"
    DEPLOYMENTS_READ = "deployments:read"
    DEPLOYMENTS_WRITE = "deployments:write"
    AGENTS_READ = "agents:read"
    AGENTS_RUN = "agents:run"
    WORKSPACE_READ = "workspace:read"
    WORKSPACE_MANAGE = "workspace:manage"


_EVERYTHING = frozenset(Permission)
_READ = frozenset(
    {
        Permission.RUNS_READ,
        Permission.FEEDBACK_READ,
        Permission.CHARTS_READ,
        Permission.PROJECTS_READ,
        Permission.DEPLOYMENTS_READ,
        Permission.AGENTS_READ,
        Permission.WORKSPACE_READ,
    }
)
_EDIT = _READ | {
    Permission.RUNS_INGEST,
    Permission.RUNS_DELETE,
    Permission.RUNS_SHARE,
    Permission.FEEDBACK_WRITE,
    Permission.CHARTS_WRITE,
    Permission.PROJECTS_WRITE,
    Permission.PROJECTS_DELETE,
    Permission.DEPLOYMENTS_WRITE,
    Permission.AGENTS_RUN,
}

WORKSPACE_ROLES: dict[str, frozenset[Permission]] = {
    "admin": _EVERYTHING,
    "editor": frozenset(_EDIT),
    "viewer": _READ,
    "annotator": frozenset(
        {
            Permission.RUNS_READ,
            Permission.PROJECTS_READ,
            Permission.FEEDBACK_READ,
            Permission.FEEDBACK_WRITE,
            Permission.WORKSPACE_READ,
        }
    ),
}

ORGANIZATION_ROLES: tuple[str, ...] = ("owner", "admin", "member", "viewer")
# Owners and admins of an organization administer each of its workspaces.
ORGANIZATION_ADMINS = frozenset({"owner", "admin"})

SCOPES: dict[str, frozenset[Permission]] = {
    "read": _READ,
    "write": frozenset(_EDIT - {Permission.DEPLOYMENTS_WRITE}),
    "ingest": frozenset({Permission.RUNS_INGEST}),
    "deploy": frozenset(
        {Permission.DEPLOYMENTS_READ, Permission.DEPLOYMENTS_WRITE, Permission.WORKSPACE_READ}
    ),
    "admin": _EVERYTHING,
}


def of_scopes(scopes: list[str]) -> frozenset[str]:
    """All permissions that the scopes of a key grant; an unknown scope grants nothing."""
    return frozenset(str(p) for scope in scopes for p in SCOPES.get(scope, ()))
