from django.urls import URLPattern, URLResolver, include, path, register_converter
from django.urls.converters import StringConverter

from apps.tracing.views import (
    bulk_actions,
    downloads,
    feedback,
    projects,
    run_list,
    saved_views,
    sharing,
    threads,
    traces,
    workspace_settings,
)


class PayloadConverter(StringConverter):
    regex = "inputs|outputs|extra|events"


register_converter(PayloadConverter, "payload")

run = [
    path("", traces.trace_detail, name="trace-detail"),
    path("/tree.json", traces.trace_tree, name="trace-tree"),
    path("/transcript", traces.trace_transcript, name="trace-transcript"),
    path("/transcript.md", traces.trace_transcript_markdown, name="trace-transcript-markdown"),
    path("/share", sharing.trace_share, name="trace-share"),
    path("/download", downloads.trace_download, name="trace-download"),
    path("/feedback", feedback.feedback_create, name="run-feedback"),
    path("/feedback/<uuid:feedback_id>/delete", feedback.feedback_delete, name="feedback-delete"),
    path("/<payload:payload>.json", traces.trace_payload, name="trace-payload"),
    path("/attachments/<int:number>", traces.trace_attachment, name="trace-attachment"),
]
project: list[URLPattern | URLResolver] = [
    path("", run_list.project_detail, name="project-detail"),
    path("/strip", run_list.project_strip, name="project-strip"),
    path("/facets", run_list.project_facets, name="project-facets"),
    path("/hints", run_list.project_hints, name="project-hints"),
    path("/values", run_list.project_values, name="project-values"),
    path("/columns", run_list.project_columns, name="project-columns"),
    path("/views", saved_views.project_views, name="project-views"),
    path("/download", downloads.project_runs_download, name="project-runs-download"),
    path("/compare", traces.traces_compare, name="traces-compare"),
    path("/threads", threads.project_threads, name="project-threads"),
    path("/thread", threads.thread_detail, name="thread-detail"),
    path("/selected", bulk_actions.bulk_action, name="traces-bulk-action"),
    path("/settings", projects.project_settings, name="project-settings"),
    path("/tags", projects.project_tags, name="project-tags"),
    path("/delete", projects.project_delete, name="project-delete"),
    path("/r/<uuid:run_id>", include(run)),
]
settings_pages = [
    path("/prices", workspace_settings.settings_prices, name="settings-prices"),
    path(
        "/prices/<uuid:price_id>/delete",
        workspace_settings.settings_price_delete,
        name="settings-price-delete",
    ),
    path("/feedback", workspace_settings.settings_feedback, name="settings-feedback"),
    path(
        "/feedback/delete",
        workspace_settings.settings_feedback_delete,
        name="settings-feedback-delete",
    ),
    path("/retention", workspace_settings.settings_retention, name="settings-retention"),
]
PROJECTS = "o/<uuid:workspace_id>/projects"
urlpatterns = [
    path(PROJECTS, projects.project_list, name="project-list"),
    path(f"{PROJECTS}/delete", projects.projects_delete, name="projects-delete"),
    path("o/<uuid:workspace_id>/settings", include(settings_pages)),
    path(f"{PROJECTS}/p/<uuid:project_id>", include(project)),
    path("public/<uuid:token>/r", sharing.public_trace, name="public-trace"),
    path("public/<uuid:token>/r/transcript", sharing.public_transcript, name="public-transcript"),
    path("public/<uuid:token>/r/<uuid:run_id>", sharing.public_trace, name="public-trace-run"),
    path("o/<uuid:workspace_id>/r/<uuid:run_id>", traces.trace_redirect, name="trace-redirect"),
]
