"""The time zone of pages: the one that the user chose, else the browser's, else UTC.

APIs are not affected: their times are in UTC.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

COOKIE = "slipway_time_zone"
"""The browser's zone; `static/js/lib/time-zone.js` sets it."""

_REGIONS = (
    "Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe",
    "Indian", "Pacific",
)  # fmt: skip


@cache
def list_zones() -> list[str]:
    """Return `UTC` and the zones named `Region/City`, without aliases such as `Cuba`."""
    zones = (name for name in zoneinfo.available_timezones() if name.startswith(_REGIONS))
    return ["UTC", *sorted(zones)]


def zone_label() -> str:
    """Return the abbreviation of the active zone at present: `CET`, `UTC+03`."""
    name = timezone.localtime().tzname() or "UTC"
    return f"UTC{name}" if name[0] in "+-" else name


class TimeZoneMiddleware:
    """Activates the zone for each page, until its response is complete."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return self.get_response(request)
        finally:
            timezone.deactivate()

    def process_view(self, request: HttpRequest, view: Any, *_: Any) -> None:
        # REST framework sets `cls` on its views: their responses are in UTC.
        if getattr(view, "cls", None) is None:
            chosen = getattr(getattr(request, "user", None), "time_zone", "")
            zone = _find_zone(chosen) or _find_zone(unquote(request.COOKIES.get(COOKIE, "")))
            if zone is not None:
                timezone.activate(zone)


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _find_zone(name: str) -> zoneinfo.ZoneInfo | None:
    return zoneinfo.ZoneInfo(name) if name in _zone_names() else None
