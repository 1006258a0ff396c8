from django.urls import path

from apps.alerts import views
from apps.alerts.api.views import routes

_ALERTS = "o/<uuid:workspace_id>/alerts"
_ALERT = f"{_ALERTS}/<uuid:rule_id>"
urlpatterns = [
    *routes,
    path(_ALERTS, views.alert_list, name="alert-list"),
    path(f"{_ALERTS}/new", views.alert_new, name="alert-new"),
    path(_ALERT, views.alert_detail, name="alert-detail"),
    path(f"{_ALERT}/edit", views.alert_edit, name="alert-edit"),
    path(f"{_ALERT}/change", views.alert_change, name="alert-change"),
    path(
        f"{_ALERT}/channels/<uuid:action_id>/delete",
        views.alert_channel_delete,
        name="alert-channel-delete",
    ),
    path(
        f"{_ALERT}/deliveries/<uuid:delivery_id>/replay",
        views.alert_delivery_replay,
        name="alert-delivery-replay",
    ),
    path(
        "o/<uuid:workspace_id>/projects/p/<uuid:project_id>/alerts",
        views.project_alerts,
        name="project-alerts",
    ),
]
