"""The route table, in canonical paths: without prefixes and final slashes.

`canonical` in apps/core/http/middleware.py maps requested paths to them.
Streams and WebSockets are in config.asgi.
"""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("apps.core.observability.readiness")),
    path("", include("apps.agent_server.urls")),
    path("", include("apps.operators.urls")),
    path("", include("apps.usage.urls")),
    path("", include("apps.rate_limits.urls")),
    path("", include("apps.billing.urls")),
    path("", include("apps.organizations.api.urls")),
    path("", include("apps.exports.urls")),
    path("", include("apps.evaluators.urls")),
    path("", include("apps.tracing.api.urls")),
    path("", include("apps.feedback.api.urls")),
    path("", include("apps.prompts.api.urls")),
    path("", include("apps.ingest.api.urls")),
    path("", include("apps.experiment_jobs.urls")),
    path("", include("apps.platform_mcp.urls")),
    path("", include("apps.annotation.api.urls")),
    path("", include("apps.experiments.api.urls")),
    path("", include("apps.datasets.api.urls")),
    path("", include("apps.organizations.urls")),
    path("", include("apps.api_keys.urls")),
    path("", include("apps.accounts.urls")),
    path("", include("apps.console.urls")),
    path("", include("apps.deployments.urls")),
    path("", include("apps.tracing.urls")),
    path("", include("apps.ingest.urls")),
    path("", include("apps.monitoring.urls")),
    path("", include("apps.alerts.urls")),
    path("", include("apps.prompts.urls")),
    path("", include("apps.playground.urls")),
    path("", include("apps.playground.pages.urls")),
    path("", include("apps.datasets.urls")),
    path("", include("apps.experiments.urls")),
    path("", include("apps.annotation.urls")),
]

handler400 = "apps.core.http.middleware.bad_request"
handler403 = "apps.core.http.middleware.permission_denied"
handler404 = "apps.core.http.middleware.not_found"
handler500 = "apps.core.http.middleware.server_error"
