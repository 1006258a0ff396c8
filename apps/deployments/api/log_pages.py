"""Log pages in the format of the deployment clients."""

from __future__ import annotations

from typing import Any

from apps.core import errors
from apps.deployments.models import LogLine
from apps.deployments.querysets import LogLineQuerySet

_LEVELS = {
    "DEBUG": ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "INFO": ("INFO", "WARNING", "ERROR", "CRITICAL"),
    "WARNING": ("WARNING", "ERROR", "CRITICAL"),
    "ERROR": ("ERROR", "CRITICAL"),
    "CRITICAL": ("CRITICAL",),
}


def log_page(lines: LogLineQuerySet, query: dict[str, Any]) -> dict[str, Any]:
    """Return one page; `next_offset` is valid as an offset even after an empty page.

    The offset is the id of the last line: ids order lines within a millisecond, so that no line
    repeats.
    """
    ascending = query["order"] == "asc"
    offset = _offset(query.get("offset"))
    if query.get("level"):
        lines = lines.filter(level__in=_LEVELS[query["level"]])
    if query.get("query"):
        lines = lines.filter(message__icontains=query["query"])
    if query.get("start_time"):
        lines = lines.filter(created_at__gte=query["start_time"])
    if query.get("end_time"):
        lines = lines.filter(created_at__lte=query["end_time"])
    if offset is not None:
        lines = lines.filter(pk__gt=offset) if ascending else lines.filter(pk__lt=offset)
    page = list(lines.order_by("pk" if ascending else "-pk")[: query["limit"]])
    # Descending, an empty page is the end: no line has an id below 1.
    at_end = (offset or 0) if ascending else 0
    return {
        "logs": [_line(line) for line in page],
        "next_offset": str(page[-1].pk if page else at_end),
    }


def _offset(text: str | None) -> int | None:
    if text in (None, ""):
        return None
    if not text.isdecimal() or len(text) > 18:
        raise errors.Invalid("offset must be a next_offset of an earlier response.")
    return int(text)


def _line(line: LogLine) -> dict[str, Any]:
    return {
        "id": str(line.pk),
        "timestamp": int(line.created_at.timestamp() * 1000),
        "level": line.level,
        "message": line.message,
    }
