"""The platform API's addresses of keys: each module lists its own."""

from apps.api_keys.api import organization, own, workspace

urlpatterns = [*own.routes, *workspace.routes, *organization.routes]
