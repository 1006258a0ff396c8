"""WebSocket routes of the deployment pages."""

from django.urls import path

from apps.deployments.consumers import RevisionLogConsumer

websocket_routes = [
    path(
        "o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/revisions/<uuid:revision_id>/live",
        RevisionLogConsumer.as_asgi(),
        name="revision-live",
    ),
]
