"""The web process: streams and sockets go to Channels consumers, the rest to the WSGI handler."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from config.wsgi import application as wsgi_application  # first: it loads the apps

# isort: split
from apps.agent_server import routing as agent_server_routing
from apps.agent_server.api import urls as agent_server_urls
from apps.agent_server.consumers import drf_adapter
from apps.agent_server.messaging import redis_dispatcher
from apps.agent_server.web.router import AgentRouter
from apps.core.http.wsgi_bridge import WSGIBridge
from apps.deployments import routing as deployments_routing
from apps.rate_limits.consumers import limited
from apps.usage import meter


def _on_startup() -> None:
    redis_dispatcher.set_process_dispatcher()
    meter.start()


application = AgentRouter(
    http_routes=[
        *agent_server_routing.http_routes,
        *drf_adapter.routes_of(agent_server_urls.urlpatterns),
    ],
    websocket_routes=[
        *deployments_routing.websocket_routes,
        *agent_server_routing.websocket_routes,
    ],
    fallback=WSGIBridge(wsgi_application),
    middleware=limited,
    on_startup=_on_startup,
)
