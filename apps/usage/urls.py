from django.urls import path

from apps.usage import views
from apps.usage.api.views import routes

SETTINGS = "o/<uuid:workspace_id>/settings/usage"
urlpatterns = [
    *routes,
    path(SETTINGS, views.settings_usage, name="settings-usage"),
    path(
        f"{SETTINGS}/<uuid:limit_id>/delete",
        views.settings_usage_limit_delete,
        name="settings-usage-limit-delete",
    ),
]
