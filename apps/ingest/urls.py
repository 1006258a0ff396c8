from django.urls import path

from apps.ingest import views

urlpatterns = [
    path(
        "o/<uuid:workspace_id>/settings/ingest-log",
        views.ingest_log_page,
        name="settings-ingest-log",
    )
]
