"""System checks of the tools that builds need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Info, register

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
