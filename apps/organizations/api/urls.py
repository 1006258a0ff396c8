"""Routes of the platform API; each module lists its own."""

from apps.organizations.api import (
    organization,
    organization_members,
    tags,
    workspace_members,
    workspaces,
)

# Literal paths before variables: `workspaces/current/...` before `workspaces/<id>`.
urlpatterns = [
    *workspace_members.routes,
    *organization_members.routes,
    *tags.routes,
    *organization.routes,
    *workspaces.routes,
]
