"""Where an agent answers."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings


def agent_url(slug: str) -> str:
    """The address of the deployment's Agent Server, under the wildcard domain if there is one."""
    if settings.AGENT_DOMAIN:
        return f"{urlsplit(settings.BASE_URL).scheme}://{slug}.{settings.AGENT_DOMAIN}"
    return f"{settings.BASE_URL}/agents/{slug}"
