"""The platform API's addresses of tracing: each module lists its own."""

from apps.tracing.api import deletion, downloads, info, ingest, projects, runs

# Words before variables: `runs/query` before `runs/<id>`.
urlpatterns = [
    *info.routes,
    *deletion.routes,
    *runs.routes,
    *projects.routes,
    *downloads.routes,
    *ingest.routes,
]
