"""The log as a file: CSV for spreadsheets, JSON lines for everything else."""

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
# A spreadsheet takes what begins so for a formula, and names are chosen by anybody.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_json(entry: Entry) -> dict[str, Any]:
    """An entry as the API and the files show it."""
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


def lines(search: Search, kind: str) -> Iterator[bytes]:
    """The file, piece by piece."""
    if kind == "jsonl":
        for entry in iterate_entries(search):
            yield dumps(as_json(entry)) + b"\n"
        return
    yield _line(COLUMNS)
    for entry in iterate_entries(search):
        yield _line(_cells(entry))


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


def _line(cells: list[str] | tuple[str, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(f"'{c}" if c.startswith(_FORMULA) else c for c in cells)
    return text.getvalue().encode()
