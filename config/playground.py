"""The playground process: calls of models that web processes forward, and those of experiments."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from config.wsgi import application as wsgi_application  # first: it loads the apps

# isort: split
from apps.api_keys.body_authentication import authenticate_sender
from apps.core.http.wsgi_bridge import WSGIBridge
from apps.core.observability import readiness
from apps.ingest.services import unread_usage
from apps.playground.due_calls import DueCallListener
from apps.playground.forwarding import ForwardedCalls
from apps.usage import meter

_due_calls = DueCallListener()


def _on_startup() -> None:
    meter.start()
    unread_usage.start()
    _due_calls.start()
    readiness.start_heartbeat(readiness.PLAYGROUND)


application = ForwardedCalls(
    WSGIBridge(wsgi_application, authenticate_sender),
    on_startup=_on_startup,
    on_shutdown=_due_calls.stop,
)
