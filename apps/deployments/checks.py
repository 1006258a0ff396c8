"""System checks of the tools that builds need, and of the agents' addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Info, Tags, register

from apps.deployments import git


@register
def check_git_installed(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Warn if git is missing: Dulwich fetches neither submodules nor SSH addresses."""
    if git.is_installed():
        return []
    return [
        Info(
            "git is not installed: repositories with submodules or SSH addresses cannot be built.",
            hint="Install git.",
            id="deployments.I001",
        )
    ]


@register(Tags.security, deploy=True)
def check_agent_domain(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Recommend hosts of their own for agents; on the platform's they are in a CSP sandbox."""
    if settings.AGENT_DOMAIN:
        return []
    return [
        Info(
            "Agents share the platform's host name; their pages are in a CSP sandbox.",
            hint="Set AGENT_DOMAIN to give each agent a host name of its own.",
            id="deployments.I002",
        )
    ]
