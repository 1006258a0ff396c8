"""The differences of two JSON documents, by path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_CHANGES = 1000
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs. `kind` is `added`, `removed` or `changed`."""

    path: str
    """JSON Pointer (RFC 6901)."""
    kind: str
    before: Any = None
    after: Any = None


def compare(before: Any, after: Any) -> list[Change]:
    """Return the differences in document order, at most `MAX_CHANGES`.

    Lists are compared by position: messages of a prompt are few, and their positions matter.
    """
    changes: list[Change] = []
    pending: list[tuple[str, Any, Any]] = [("", before, after)]
    while pending and len(changes) < MAX_CHANGES:
        path, old, new = pending.pop()
        if old is _MISSING:
            changes.append(Change(path, "added", after=new))
        elif new is _MISSING:
            changes.append(Change(path, "removed", before=old))
        elif isinstance(old, dict) and isinstance(new, dict):
            names = dict.fromkeys([*old, *new])
            pairs = [
                (f"{path}/{_escape(name)}", old.get(name, _MISSING), new.get(name, _MISSING))
                for name in names
            ]
            pending += reversed(pairs)
        elif isinstance(old, list) and isinstance(new, list):
            length = max(len(old), len(new))
            pairs = [
                (
                    f"{path}/{index}",
                    old[index] if index < len(old) else _MISSING,
                    new[index] if index < len(new) else _MISSING,
                )
                for index in range(length)
            ]
            pending += reversed(pairs)
        elif type(old) is not type(new) or old != new:
            changes.append(Change(path, "changed", old, new))
    return changes


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
