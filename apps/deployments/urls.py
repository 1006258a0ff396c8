from django.urls import include, path

from apps.deployments import views, webhook_views
from apps.deployments.api.views import routes
from apps.deployments.api.webhooks import routes as webhook_routes

deployment = [
    path("", views.deployment_detail, name="deployment-detail"),
    path("/logs", views.deployment_logs, name="deployment-logs"),
    path("/environment", views.deployment_environment, name="deployment-environment"),
    path("/settings", views.deployment_settings, name="deployment-settings"),
    path("/deploy", views.deployment_deploy, name="deployment-deploy"),
    path("/stop", views.deployment_stop, name="deployment-stop"),
    path("/start", views.deployment_start, name="deployment-start"),
    path("/restart", views.deployment_restart, name="deployment-restart"),
    path("/delete", views.deployment_delete, name="deployment-delete"),
]
revision = [
    path("", views.revision_detail, name="revision-detail"),
    path("/log", views.revision_log, name="revision-log"),
    path("/stop", views.revision_stop, name="revision-stop"),
    path("/redeploy", views.revision_redeploy, name="revision-redeploy"),
]
DEPLOYMENTS = "o/<uuid:workspace_id>/deployments"
_WEBHOOKS = "o/<uuid:workspace_id>/settings/deployment-webhooks"
_WEBHOOK = f"{_WEBHOOKS}/<uuid:deployment_webhook_id>"
webhook_pages = [
    path(
        _WEBHOOKS, webhook_views.settings_deployment_webhooks, name="settings-deployment-webhooks"
    ),
    path(_WEBHOOK, webhook_views.settings_deployment_webhook, name="settings-deployment-webhook"),
    path(
        f"{_WEBHOOK}/delete",
        webhook_views.settings_deployment_webhook_delete,
        name="settings-deployment-webhook-delete",
    ),
    path(
        f"{_WEBHOOK}/deliveries/<uuid:delivery_id>/replay",
        webhook_views.settings_deployment_webhook_replay,
        name="settings-deployment-webhook-replay",
    ),
]
urlpatterns = [
    *routes,
    *webhook_routes,
    *webhook_pages,
    path(DEPLOYMENTS, views.deployment_list, name="deployment-list"),
    path(f"{DEPLOYMENTS}/new", views.deployment_new, name="deployment-new"),
    path(f"{DEPLOYMENTS}/<uuid:deployment_id>", include(deployment)),
    path(f"{DEPLOYMENTS}/<uuid:deployment_id>/revisions/<uuid:revision_id>", include(revision)),
]
