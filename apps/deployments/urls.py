from django.urls import include, path

from apps.deployments import views
from apps.deployments.api.views import routes

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
urlpatterns = [
    *routes,
    path(DEPLOYMENTS, views.deployment_list, name="deployment-list"),
    path(f"{DEPLOYMENTS}/new", views.deployment_new, name="deployment-new"),
    path(f"{DEPLOYMENTS}/<uuid:deployment_id>", include(deployment)),
    path(f"{DEPLOYMENTS}/<uuid:deployment_id>/revisions/<uuid:revision_id>", include(revision)),
]
