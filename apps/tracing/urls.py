from django.urls import include, path, register_converter
from django.urls.converters import StringConverter

from apps.tracing import views


class PayloadConverter(StringConverter):
    regex = "inputs|outputs|extra"


register_converter(PayloadConverter, "payload")

run = [
    path("", views.trace_detail, name="trace-detail"),
    path("/<payload:payload>.json", views.trace_payload, name="trace-payload"),
    path("/attachments/<int:number>", views.trace_attachment, name="trace-attachment"),
]
PROJECTS = "o/<uuid:workspace_id>/projects"
urlpatterns = [
    path(PROJECTS, views.project_list, name="project-list"),
    path(f"{PROJECTS}/p/<uuid:project_id>", views.project_detail, name="project-detail"),
    path(f"{PROJECTS}/p/<uuid:project_id>/new", views.project_new, name="project-new"),
    path(f"{PROJECTS}/p/<uuid:project_id>/r/<uuid:run_id>", include(run)),
    path("o/<uuid:workspace_id>/r/<uuid:run_id>", views.trace_redirect, name="trace-redirect"),
]
