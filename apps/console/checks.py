"""System checks of the front end."""

from __future__ import annotations

from typing import Any

from django.contrib.staticfiles import finders
from django.core import checks


@checks.register
def libraries_are_there(app_configs: Any, **_: Any) -> list[checks.CheckMessage]:
    """The front-end libraries were put into static/vendor."""
    if finders.find("vendor/htmx.js"):
        return []
    return [
        checks.Warning(
            "static/vendor is empty, so pages have no icons, fonts or behaviour.",
            hint="Run `npm ci` and `npm run vendor`.",
            id="console.W001",
        )
    ]
