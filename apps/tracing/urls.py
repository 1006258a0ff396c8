from django.urls import URLPattern, URLResolver, include, path, register_converter
from django.urls.converters import StringConverter

from apps.tracing.views import (
    bulk_actions,
    compare,
    downloads,
    feedback,
    monitoring,
    projects,
    related_runs,
    run_list,
    saved_views,
    settings,
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
    path("/share", sharing.trace_share, name="trace-share"),
    path("/download", downloads.trace_download, name="trace-download"),
    path("/feedback", feedback.run_feedback, name="run-feedback"),
    path("/feedback/<uuid:feedback_id>/delete", feedback.feedback_delete, name="feedback-delete"),
    path("/<payload:payload>.json", traces.trace_payload, name="trace-payload"),
    path("/attachments/<int:number>", traces.trace_attachment, name="trace-attachment"),
]
project: list[URLPattern | URLResolver] = [
    path("", run_list.project_detail, name="project-detail"),
    path("/strip", related_runs.project_strip, name="project-strip"),
    path("/facets", related_runs.project_facets, name="project-facets"),
    path("/values", related_runs.project_values, name="project-values"),
    path("/columns", run_list.project_columns, name="project-columns"),
    path("/views", saved_views.project_views, name="project-views"),
    path("/download", downloads.list_download, name="list-download"),
    path("/compare", compare.traces_compare, name="traces-compare"),
    path("/threads", threads.project_threads, name="project-threads"),
    path("/thread", threads.thread_detail, name="thread-detail"),
    path("/selected", bulk_actions.bulk_action, name="traces-selected"),
    path("/monitoring", monitoring.project_monitoring, name="project-monitoring"),
    path("/settings", settings.project_settings, name="project-settings"),
    path("/tags", settings.project_tags, name="project-tags"),
    path("/delete", settings.project_delete, name="project-delete"),
    path("/r/<uuid:run_id>", include(run)),
]
settings_pages = [
    path("/prices", workspace_settings.setting_prices, name="setting-prices"),
    path(
        "/prices/<uuid:price_id>/delete",
        workspace_settings.setting_price_delete,
        name="setting-price-delete",
    ),
    path("/feedback", workspace_settings.setting_feedback, name="setting-feedback"),
    path(
        "/feedback/delete",
        workspace_settings.setting_feedback_delete,
        name="setting-feedback-delete",
    ),
    path("/retention", workspace_settings.setting_retention, name="setting-retention"),
]
PROJECTS = "o/<uuid:workspace_id>/projects"
urlpatterns = [
    path(PROJECTS, projects.project_list, name="project-list"),
    path(f"{PROJECTS}/delete", projects.projects_delete, name="projects-delete"),
    path("o/<uuid:workspace_id>/settings", include(settings_pages)),
    path(f"{PROJECTS}/p/<uuid:project_id>", include(project)),
    path("public/<uuid:token>/r", sharing.public_trace, name="public-trace"),
    path("public/<uuid:token>/r/<uuid:run_id>", sharing.public_trace, name="public-trace-run"),
    path("o/<uuid:workspace_id>/r/<uuid:run_id>", traces.trace_redirect, name="trace-redirect"),
]
