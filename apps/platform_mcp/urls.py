from django.urls import path
from django.views.decorators.http import require_http_methods

from apps.accounts.views import account_page
from apps.core.mcp.server import RESOURCE_METADATA
from apps.platform_mcp import authorize, views

_METADATA = RESOURCE_METADATA[1:]
# RFC 9728 inserts the well-known part before the path of a resource.
urlpatterns = [
    path("oauth/register", authorize.register, name="oauth-register"),
    path(
        "oauth/authorize",
        require_http_methods(["GET", "POST"])(account_page(authorize.authorize)),
        name="oauth-authorize",
    ),
    path("mcp", views.mcp, name="platform-mcp"),
    path(_METADATA, views.resource_metadata, name="platform-mcp-metadata"),
    path(f"{_METADATA}/mcp", views.resource_metadata),
    path(f"{_METADATA}/agents/<slug:slug>/mcp", views.resource_metadata, name="agent-mcp-metadata"),
]
