from django.urls import path

from apps.api_keys.plain import by_method
from apps.tracing.api import downloads, info, ingest, projects, runs

urlpatterns = [
    path("info", info.InfoView.as_view(), name="info"),
    path("info/health", info.OkView.as_view(), name="info-health"),
    path("ok", info.OkView.as_view(), name="ok"),
    path("runs", by_method(post=ingest.create_run), name="run-create"),
    path("runs/batch", by_method(post=ingest.batch), name="run-batch"),
    path("runs/multipart", by_method(post=ingest.multipart), name="run-multipart"),
    path("runs/query", runs.RunsQueryView.as_view(), name="run-query"),
    path(
        "runs/<uuid:run_id>",
        by_method(get=runs.RunView.as_view(), patch=ingest.update_run),
        name="run-read-update",
    ),
    path("sessions", projects.ProjectsView.as_view(), name="project-list"),
    path("sessions/<uuid:project_id>", projects.ProjectView.as_view(), name="project-read-update"),
    path("public/download", downloads.download, name="attachment-download"),
]
