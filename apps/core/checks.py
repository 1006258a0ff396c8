"""System checks of the addresses of the data services and of the served hosts."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register


@register(Tags.security, deploy=True)
def check_data_services_have_passwords(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Require a password for PostgreSQL and Redis over TCP; sockets have an owner."""
    database = settings.DATABASES["default"]
    redis_url = urlsplit(settings.REDIS_URL)
    is_database_remote = not str(database.get("HOST", "")).startswith("/")
    messages: list[CheckMessage] = []
    if is_database_remote and not database.get("PASSWORD"):
        messages.append(Error("DATABASE_URL has no password.", id="core.E001"))
    if redis_url.scheme != "unix" and not redis_url.password:
        messages.append(
            Error(
                "REDIS_URL has no password: a client that reaches Redis can start tasks.",
                hint="Set requirepass, and redis://:password@host:port/0.",
                id="core.E002",
            )
        )
    return messages


@register(Tags.security, deploy=True)
def check_hosts_are_named(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Refuse `*`: a page that any host name opens can be opened under an attacker's name."""
    if "*" not in settings.ALLOWED_HOSTS:
        return []
    return [
        Error(
            "ALLOWED_HOSTS accepts every host name.",
            hint="Set PUBLIC_URL, from which the hosts follow, or list them in ALLOWED_HOSTS.",
            id="core.E003",
        )
    ]


@register(Tags.urls)
def check_mail_has_a_public_url(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Warn if links in mails lead to the loopback address of their reader."""
    is_loopback = urlsplit(settings.BASE_URL).hostname == "127.0.0.1"
    if not (settings.EMAIL_HOST and is_loopback):
        return []
    return [
        checks.Warning(
            f"Links in mails start with {settings.BASE_URL}, which leads to the reader's machine.",
            hint="Set PUBLIC_URL.",
            id="core.W001",
        )
    ]
