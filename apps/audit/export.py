"""Export of the audit log as CSV or JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from apps.audit.models import Entry
from apps.audit.search import Search, iterate_entries
from apps.core.json import dumps, dumps_text

FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
COLUMNS = (
    "time",
    "action",
    "actor_kind",
    "actor_id",
    "actor",
    "impersonator",
    "ip",
    "target_kind",
    "target_id",
    "target_name",
    "workspace_id",
    "request_id",
    "before",
    "after",
    "id",
)
# Spreadsheets evaluate cells with these prefixes as formulas; names are user input.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return the entry as in the API and in JSON lines."""
    return {
        "id": entry.pk,
        "time": entry.at,
        "action": entry.action,
        "actor": {
            "kind": entry.actor_kind,
            "id": entry.actor_id,
            "name": entry.actor_label,
            "impersonated_by": entry.impersonator_label or None,
        },
        "target": {
            "kind": entry.target_kind,
            "id": entry.target_id or None,
            "name": entry.target_name or None,
        },
        "organization_id": entry.organization_id,
        "workspace_id": entry.workspace_id,
        "ip": entry.ip,
        "request_id": entry.request_id or None,
        "before": entry.before,
        "after": entry.after,
    }


def export_lines(search: Search, file_format: str) -> Iterator[bytes]:
    """Yield the file line by line, as CSV or `jsonl`."""
    if file_format == "jsonl":
        for entry in iterate_entries(search):
            yield dumps(entry_json(entry)) + b"\n"
        return
    yield _csv_line(COLUMNS)
    for entry in iterate_entries(search):
        yield _csv_line(_cells(entry))


def _cells(entry: Entry) -> list[str]:
    return [
        entry.at.isoformat(),
        entry.action,
        entry.actor_kind,
        str(entry.actor_id or ""),
        entry.actor_label,
        entry.impersonator_label,
        entry.ip or "",
        entry.target_kind,
        entry.target_id,
        entry.target_name,
        str(entry.workspace_id or ""),
        entry.request_id,
        "" if entry.before is None else dumps_text(entry.before),
        "" if entry.after is None else dumps_text(entry.after),
        str(entry.pk),
    ]


def _csv_line(cells: list[str] | tuple[str, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(f"'{c}" if c.startswith(_FORMULA) else c for c in cells)
    return text.getvalue().encode()
