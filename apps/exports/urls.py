from django.urls import path

from apps.exports import views
from apps.exports.api import views as api

EXPORTS = "o/<uuid:workspace_id>/exports"
urlpatterns = [
    *api.routes,
    path(EXPORTS, views.export_list, name="export-list"),
    path(f"{EXPORTS}/new", views.export_new, name="export-new"),
    path(f"{EXPORTS}/destinations/new", views.destination_new, name="export-destination-new"),
    path(
        f"{EXPORTS}/destinations/<uuid:destination_id>",
        views.destination_edit,
        name="export-destination",
    ),
    path(f"{EXPORTS}/<uuid:export_id>", views.export_detail, name="export-detail"),
    path(f"{EXPORTS}/<uuid:export_id>/cancel", views.export_cancel, name="export-cancel"),
]
