"""The platform API's addresses of tracing: each module lists its own."""

from apps.feedback.api import configs, formulas, tokens
from apps.feedback.api import views as feedback
from apps.ingest.api import ingest_log, otlp
from apps.ingest.api import views as ingest
from apps.tracing.api import (
    agent_versions,
    deletion,
    downloads,
    groups,
    info,
    openapi,
    prices,
    projects,
    public,
    retention_api,
    rules,
    runs,
    sharing,
    stats,
    telemetry,
    v2_runs,
    v2_sessions,
    v2_thread_messages,
    v2_threads,
    v2_traces,
    views,
)

# Words before variables: `runs/query` before `runs/<id>`.
urlpatterns = [
    *info.routes,
    *openapi.routes,
    *deletion.routes,
    *stats.routes,
    *groups.routes,
    *rules.routes,
    *runs.routes,
    *v2_runs.routes,
    *v2_sessions.routes,
    *v2_traces.routes,
    *v2_thread_messages.routes,
    *v2_threads.routes,
    *projects.routes,
    *agent_versions.routes,
    *views.routes,
    *retention_api.routes,
    *downloads.routes,
    *sharing.routes,
    *public.routes,
    *tokens.routes,
    *formulas.routes,
    *configs.routes,
    *feedback.routes,
    *ingest.routes,
    *otlp.routes,
    *prices.routes,
    *ingest_log.routes,
    *telemetry.routes,
]
