"""URLs of tracing's API; each module defines its own routes."""

from apps.tracing.api import downloads, info, openapi, telemetry
from apps.tracing.api.public import views as public
from apps.tracing.api.v1 import (
    deletion,
    groups,
    prices,
    projects,
    retention,
    saved_views,
    sharing,
    stats,
)
from apps.tracing.api.v1 import runs as v1_runs
from apps.tracing.api.v2 import runs as v2_runs
from apps.tracing.api.v2 import sessions, thread_messages, threads, traces

# Literal segments before parameters: `runs/query` before `runs/<id>`.
urlpatterns = [
    *info.routes,
    *openapi.routes,
    *deletion.routes,
    *stats.routes,
    *groups.routes,
    *v1_runs.routes,
    *v2_runs.routes,
    *sessions.routes,
    *traces.routes,
    *thread_messages.routes,
    *threads.routes,
    *projects.routes,
    *saved_views.routes,
    *retention.routes,
    *downloads.routes,
    *sharing.routes,
    *public.routes,
    *prices.routes,
    *telemetry.routes,
]
