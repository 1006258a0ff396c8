"""Audit entries as shown on pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apps.audit.models import Entry


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
        (name.replace("_", " "), _text(before.get(name)), _text(after.get(name))) for name in names
    ]
    return EntryView(entry, action_label(entry.action), differences)


def _text(value: Any) -> str:
    match value:
        case None | "" | [] | {}:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(_text, value))
        case dict():
            return ", ".join(f"{name}: {_text(part)}" for name, part in value.items())
    return str(value)
