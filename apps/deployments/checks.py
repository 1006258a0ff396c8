"""System checks: the machine can build agents."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Warning, register  # noqa: A004


@register
def builds_have_their_tools(
    app_configs: Sequence[AppConfig] | None, **_: Any
) -> list[CheckMessage]:
    """Builds need git; what the sandbox lacks it says itself."""
    if shutil.which("git"):
        return []
    return [Warning("git is not installed: no agent can be built.", id="deployments.W001")]
