"""System check for the front-end libraries."""

from __future__ import annotations

from typing import Any

from django.contrib.staticfiles import finders
from django.core import checks


@checks.register
def check_frontend_libraries(app_configs: Any, **_: Any) -> list[checks.CheckMessage]:
    """Check that the front-end libraries are in static/vendor."""
    if finders.find("vendor/htmx.js"):
        return []
    return [
        checks.Warning(
            "static/vendor is empty, so pages have no icons, fonts or behaviour.",
            hint="Run `npm ci` and `npm run vendor`.",
            id="console.W001",
        )
    ]
