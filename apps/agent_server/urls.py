"""The page and the control-plane route of agents; their own routes are in `endpoints`."""

from django.urls import path

from apps.agent_server.api import ApiPageView, WebhookSecretView

urlpatterns = [
    path("agents/<slug:slug>/docs", ApiPageView.as_view()),
    path("v2/deployments/<uuid:deployment_id>/webhook-secret", WebhookSecretView.as_view()),
]
