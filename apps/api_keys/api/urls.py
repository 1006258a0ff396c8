"""The platform API's addresses of keys: each module lists its own."""

from apps.api_keys.api import organization, personal, workspace

urlpatterns = [*personal.routes, *workspace.routes, *organization.routes]
