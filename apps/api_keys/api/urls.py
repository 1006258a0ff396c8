"""Routes of the platform API; each module lists its own."""

from apps.api_keys.api import organization, personal, workspace

urlpatterns = [*personal.routes, *workspace.routes, *organization.routes]
