"""Routes of the platform API; each module lists its own."""

from apps.organizations.api import (
    audit_log,
    organization,
    organization_members,
    secrets,
    tags,
    workspace_members,
    workspaces,
)

# Literal paths before variables: `workspaces/current/...` before `workspaces/<id>`.
urlpatterns = [
    *workspace_members.routes,
    *organization_members.routes,
    *secrets.routes,
    *tags.routes,
    *organization.routes,
    *workspaces.routes,
    *audit_log.routes,
]
