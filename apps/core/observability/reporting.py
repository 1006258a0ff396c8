"""Error reports to a Sentry-compatible server, if SENTRY_DSN is set.

Reports contain no tenant data: no bodies, headers, cookies, addresses or query strings, no frame
variables, and no lines of PostgreSQL messages that quote values.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings

from apps.core import request_context

_QUOTING_PREFIXES = ("DETAIL:", "CONTEXT:")
_REQUEST_FIELDS = ("method", "url")
_MAX_TEXT = 300


def start() -> None:
    """Initialise reporting; no effect without a DSN."""
    if not settings.SENTRY_DSN:
        return
    import sentry_sdk  # noqa: PLC0415  (0.2 s to import)
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
        before_send=remove_tenant_data,
    )


def remove_tenant_data(event: Any, hint: Any) -> Any:
    """Remove tenant data from the event; only ids identify the tenant."""
    request = event.get("request")
    if request:
        event["request"] = {name: request[name] for name in _REQUEST_FIELDS if name in request}
        url = str(event["request"].get("url", ""))
        event["request"]["url"] = url.partition("?")[0]
    for name in ("extra", "user", "breadcrumbs", "server_name"):
        event.pop(name, None)
    for item in (event.get("exception") or {}).get("values") or ():
        item["value"] = _remove_quoted_values(str(item.get("value") or ""))
        for frame in (item.get("stacktrace") or {}).get("frames") or ():
            frame.pop("vars", None)
    if "logentry" in event:
        # The format string only; its arguments may hold tenant data.
        event["logentry"] = {"message": str(event["logentry"].get("message", ""))[:_MAX_TEXT]}
    tags = event.setdefault("tags", {})
    context = request_context.current()
    if context is not None:
        tags["request_id"] = context.request_id
        if context.caller is not None:
            tags["workspace_id"] = str(context.caller.workspace_id)
    return event


def _remove_quoted_values(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(_QUOTING_PREFIXES)]
    return "\n".join(lines)[:_MAX_TEXT]
