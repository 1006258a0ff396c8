"""Errors go to a Sentry-compatible server where SENTRY_DSN names one: what broke, and where.

Nothing of what tenants sent: no bodies, headers, cookies, addresses or query strings, no variables
of the code, and of PostgreSQL's messages not the lines that quote values.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings

from apps.core import request_context

_QUOTES_VALUES = ("DETAIL:", "CONTEXT:")
_KEPT_OF_REQUEST = ("method", "url")
_LONGEST = 300


def start() -> None:
    """Report from now on; does nothing without a DSN."""
    if not settings.SENTRY_DSN:
        return
    import sentry_sdk  # noqa: PLC0415  (0.2 s, only where it is used)
    from sentry_sdk.integrations.celery import CeleryIntegration  # noqa: PLC0415
    from sentry_sdk.integrations.django import DjangoIntegration  # noqa: PLC0415
    from sentry_sdk.integrations.logging import LoggingIntegration  # noqa: PLC0415

    sentry_sdk.init(
        dsn=settings.SENTRY_DSN,
        environment=settings.SENTRY_ENVIRONMENT,
        integrations=[
            DjangoIntegration(middleware_spans=False, signals_spans=False, cache_spans=False),
            CeleryIntegration(),
            LoggingIntegration(level=None, event_level=logging.ERROR),
        ],
        auto_enabling_integrations=False,
        send_default_pii=False,
        max_request_body_size="never",
        include_local_variables=False,
        max_breadcrumbs=0,
        before_send=without_payloads,
    )


def without_payloads(event: Any, hint: Any) -> Any:
    """The event with what may leave; who it happened to is told by ids alone."""
    request = event.get("request")
    if request:
        event["request"] = {name: request[name] for name in _KEPT_OF_REQUEST if name in request}
        url = str(event["request"].get("url", ""))
        event["request"]["url"] = url.partition("?")[0]
    for name in ("extra", "user", "breadcrumbs", "server_name"):
        event.pop(name, None)
    for one in (event.get("exception") or {}).get("values") or ():
        one["value"] = _harmless(str(one.get("value") or ""))
        for frame in (one.get("stacktrace") or {}).get("frames") or ():
            frame.pop("vars", None)
    if "logentry" in event:
        # The sentence of the code; what was put into it stays here.
        event["logentry"] = {"message": str(event["logentry"].get("message", ""))[:_LONGEST]}
    tags = event.setdefault("tags", {})
    found = request_context.current()
    if found is not None:
        tags["request_id"] = found.request_id
        if found.caller is not None:
            tags["workspace_id"] = str(found.caller.workspace_id)
    return event


def _harmless(text: str) -> str:
    kept = [line for line in text.splitlines() if not line.lstrip().startswith(_QUOTES_VALUES)]
    return "\n".join(kept)[:_LONGEST]
