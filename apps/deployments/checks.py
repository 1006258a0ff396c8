"""System checks: the machine can build agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Info, register

from apps.deployments import git


@register
def builds_have_their_tools(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """Builds clone without git as well, but not everything; what the sandbox lacks it says."""
    if git.is_installed():
        return []
    return [
        Info(
            "git is not installed: repositories with submodules or SSH addresses cannot be built.",
            id="deployments.I001",
        )
    ]
