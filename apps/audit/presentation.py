"""Audit entries as shown on pages, in the API, and exported as CSV or JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apps.audit.models import Entry
from apps.audit.search import Search, iterate_entries
from apps.core.json import dumps, dumps_text


def action_label(action: str) -> str:
    """Return `Key created` for `key.created`."""
    return action.replace(".", " ").replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class EntryView:
    """An entry with its action label and (name, before, after) of each changed field."""

    entry: Entry
    action: str
    differences: list[tuple[str, str, str]]

    @property
    def fields(self) -> str:
        return ", ".join(name for name, _, _ in self.differences)


def present(entry: Entry) -> EntryView:
    before, after = entry.before or {}, entry.after or {}
    names = dict.fromkeys([*before, *after])
    differences = [
        (name.replace("_", " "), _format_value(before.get(name)), _format_value(after.get(name)))
        for name in names
    ]
    return EntryView(entry, action_label(entry.action), differences)


def _format_value(value: Any) -> str:
    match value:
        case None | "" | [] | {}:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(_format_value, value))
        case dict():
            return ", ".join(f"{name}: {_format_value(member)}" for name, member in value.items())
    return str(value)


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
        yield _csv_line(_csv_cells(entry))


def _csv_cells(entry: Entry) -> list[str]:
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
    buffer = io.StringIO()
    csv.writer(buffer).writerow(f"'{c}" if c.startswith(_FORMULA) else c for c in cells)
    return buffer.getvalue().encode()
