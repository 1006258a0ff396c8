"""The platform API's addresses of people and places: each module lists its own."""

from apps.organizations.api import members, organization, people, secrets, tags, workspaces

# Words before variables: `workspaces/current/...` before `workspaces/<id>`.
urlpatterns = [
    *members.routes,
    *people.routes,
    *secrets.routes,
    *tags.routes,
    *organization.routes,
    *workspaces.routes,
]
