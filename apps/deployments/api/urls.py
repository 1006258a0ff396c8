from django.urls import path

from apps.deployments.api import views

_DEPLOYMENT = "v2/deployments/<uuid:deployment_id>"
_REVISION = f"{_DEPLOYMENT}/revisions/<uuid:revision_id>"
_PROJECT = "v1/projects/<uuid:deployment_id>"

urlpatterns = [
    path("v2/deployments", views.DeploymentsView.as_view()),
    path(_DEPLOYMENT, views.DeploymentView.as_view()),
    path(f"{_DEPLOYMENT}/upload-url", views.UploadView.as_view()),
    path(f"{_DEPLOYMENT}/push-token", views.PushTokenView.as_view()),
    path(f"{_DEPLOYMENT}/revisions", views.RevisionsView.as_view()),
    path(_REVISION, views.RevisionView.as_view()),
    path(f"{_REVISION}/redeploy", views.RedeployView.as_view()),
    path(f"{_REVISION}/interrupt", views.InterruptView.as_view()),
    path(f"{_PROJECT}/deploy_logs", views.ServerLogView.as_view()),
    path(f"{_PROJECT}/revisions/<uuid:revision_id>/build_logs", views.BuildLogView.as_view()),
    path(f"{_PROJECT}/revisions/<uuid:revision_id>/deploy_logs", views.ServerLogView.as_view()),
    path("v2/listeners", views.ListenersView.as_view()),
    path("v1/integrations/github/install", views.GitIntegrationsView.as_view()),
]
