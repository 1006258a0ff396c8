"""The web process: agents and WebSockets on ASGI, everything else by the WSGI handler."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from config.wsgi import application as wsgi_application  # first: it loads the apps

# isort: split
from django.conf import settings

from apps.agent_server.endpoints import routes as agent_routes
from apps.agent_server.messaging import redis_dispatcher
from apps.agent_server.web.router import AgentRouter
from apps.api_keys.body_authentication import authenticate_sender
from apps.core.http.asgi import Application, AsgiRouter, websocket_application
from apps.core.http.wsgi_bridge import WSGIBridge
from apps.deployments import consumers as deployments_routing
from apps.ingest.api.otlp import encode_refusal
from apps.ingest.services import unread_usage
from apps.playground.forwarding import PlaygroundAddress, PlaygroundForwarder
from apps.prompts import pull_counts
from apps.usage import meter


def _on_startup() -> None:
    redis_dispatcher.set_process_dispatcher()
    meter.start()
    pull_counts.start()
    unread_usage.start()


_django = WSGIBridge(wsgi_application, authenticate_sender, encode_refusal)
_websocket = websocket_application(
    [*deployments_routing.websocket_routes, *agent_routes.websocket_routes]
)
_http: Application = _django
if settings.PLAYGROUND_PROCESSES:
    _playground = PlaygroundAddress.parse(settings.PLAYGROUND_URL, settings.PLAYGROUND_SOCKET)
    _http = PlaygroundForwarder(_playground, _django)
application = AsgiRouter(
    agents=AgentRouter(websocket=_websocket, fallback=_django),
    websocket=_websocket,
    fallback=_http,
    on_startup=_on_startup,
)
