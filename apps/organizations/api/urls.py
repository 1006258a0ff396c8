"""The platform API's addresses of people and places: each module lists its own."""

from apps.organizations.api import (
    organization,
    organization_members,
    secrets,
    tags,
    workspace_members,
    workspaces,
)

# Words before variables: `workspaces/current/...` before `workspaces/<id>`.
urlpatterns = [
    *workspace_members.routes,
    *organization_members.routes,
    *secrets.routes,
    *tags.routes,
    *organization.routes,
    *workspaces.routes,
]
