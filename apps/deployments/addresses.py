"""The public address of a deployment."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings


def agent_url(slug: str) -> str:
    """Return the URL of the Agent Server: a subdomain of AGENT_DOMAIN if set, otherwise a path."""
    if settings.AGENT_DOMAIN:
        return f"{urlsplit(settings.BASE_URL).scheme}://{slug}.{settings.AGENT_DOMAIN}"
    return f"{settings.BASE_URL}/agents/{slug}"
