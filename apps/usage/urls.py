from django.urls import path

from apps.usage import views
from apps.usage.api.views import routes

SETTINGS = "o/<uuid:workspace_id>/settings/usage"
urlpatterns = [
    *routes,
    path(SETTINGS, views.setting_usage, name="setting-usage"),
    path(
        f"{SETTINGS}/<uuid:limit_id>/delete",
        views.setting_usage_limit_delete,
        name="setting-usage-limit-delete",
    ),
]
