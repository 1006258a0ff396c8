"""The platform API's addresses of tracing: each module lists its own."""

from apps.tracing.api import (
    deletion,
    downloads,
    feedback,
    feedback_configs,
    feedback_formulas,
    feedback_tokens,
    info,
    ingest,
    lives,
    otlp,
    prices,
    projects,
    public,
    runs,
    sharing,
    stats,
    v2_runs,
    v2_traces,
)

# Words before variables: `runs/query` before `runs/<id>`.
urlpatterns = [
    *info.routes,
    *deletion.routes,
    *stats.routes,
    *runs.routes,
    *v2_runs.routes,
    *v2_traces.routes,
    *projects.routes,
    *lives.routes,
    *downloads.routes,
    *sharing.routes,
    *public.routes,
    *feedback_tokens.routes,
    *feedback_formulas.routes,
    *feedback_configs.routes,
    *feedback.routes,
    *ingest.routes,
    *otlp.routes,
    *prices.routes,
]
