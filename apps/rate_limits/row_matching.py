"""Which row of the table a request counts on: the most specific that knows its kind of identity.

Specific is, in this order: a method with an exact path, an exact path, what lies below a path, an
ending, something contained, the defaults. The path is what remains when everything that clients may
put before it is cut off, so that no prefix, doubled slash, spelling or encoding leads past a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from apps.rate_limits.table import ROWS, IdentityKind, Row

_PREFIXES = re.compile(r"^(?:/+(?:api-host|api|platform|v\d+)(?=/|$))+")
_SLASHES = re.compile(r"/{2,}")
_UUID = "[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
_ALTERNATIVE = re.compile(
    r"(?:(?P<method>[A-Z]+)\b ?)?(?P<containing>containing )?(?P<path>[/*]\S*)?(?: \(.*\))?"
)
_ANY = "any"
_READING = {"HEAD": "GET"}
"""A view answers these as it answers the other, so they count as it."""

# Where pages, files and agents live. Everything else is the platform API, known to it or not.
_OUTSIDE = frozenset({"account", "admin", "agents", "host", "invitations", "o", "static"})
_OUTSIDE_EXACTLY = frozenset(
    {
        *("/", "/healthz", "/readyz", "/metrics", "/ok", "/info/health"),
        *("/sign-in", "/sign-up", "/sign-out", "/organizations", "/end-impersonation"),
    }
)
_SHARED_PAGE = re.compile(rf"/public/{_UUID}/r(?:/{_UUID})?")


def counted_path(path: str) -> str:
    """What rows are compared with: the decoded path without prefixes, in one spelling."""
    plain = _SLASHES.sub("/", f"/{path.strip().lower()}")
    plain = _PREFIXES.sub("", plain)
    return plain.rstrip("/ \n\t") or "/"


def is_counted(path: str) -> bool:
    """Whether the table knows requests to this canonical path; pages and agents are outside it."""
    if path in _OUTSIDE_EXACTLY or path[1:].partition("/")[0] in _OUTSIDE:
        return False
    return _SHARED_PAGE.fullmatch(path) is None


@dataclass(slots=True)
class _Rules:
    """The table's rows by how they are found; each entry holds the rows of one match."""

    methods: dict[str, list[Row]] = field(default_factory=dict)
    """Of a method on any path."""
    exact: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """By method, or `any`, and path."""
    patterns: list[tuple[str, re.Pattern[str], list[Row]]] = field(default_factory=list)
    """By method and a path with variables."""
    below: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    endings: list[tuple[str, list[Row]]] = field(default_factory=list)
    contained: list[tuple[str, str, list[Row]]] = field(default_factory=list)
    defaults: dict[IdentityKind, Row] = field(default_factory=dict)

    def candidates(self, method: str, path: str) -> Iterator[list[Row]]:
        """The rows that match, from the most to the least specific."""
        if (rows := self.methods.get(method)) is not None:
            yield rows
        if (rows := self.exact.get((method, path))) is not None:
            yield rows
        for wanted, pattern, rows in self.patterns:
            if wanted == method and pattern.fullmatch(path):
                yield rows
        if (rows := self.exact.get((_ANY, path))) is not None:
            yield rows
        first = path[: path.find("/", 1)] if path.count("/") > 1 else ""
        second = path[: path.find("/", len(first) + 1)] if path.count("/") > 2 else ""
        for above in (second, first):
            for wanted in (method, _ANY):
                if above and (rows := self.below.get((wanted, above))) is not None:
                    yield rows
        for ending, rows in self.endings:
            if path.endswith(ending):
                yield rows
        for wanted, part, rows in self.contained:
            if wanted == method and part in path:
                yield rows


def _read(rows: tuple[Row, ...]) -> _Rules:
    rules = _Rules()
    for row in rows:
        alternatives = [_ALTERNATIVE.fullmatch(part.strip()) for part in row.match.split(";")]
        if alternatives == [None]:  # words and no path: what matches everything
            rules.defaults[row.identity] = row
            continue
        for alternative in alternatives:
            if alternative is None:
                raise ValueError(f"{row.match!r} is not understood")
            _add(rules, row, alternative["method"], alternative["path"], alternative["containing"])
    return rules


def _add(
    rules: _Rules, row: Row, method: str | None, path: str | None, containing: str | None
) -> None:
    if path is None:
        rules.methods.setdefault(str(method), []).append(row)
    elif path.startswith("*"):
        rules.endings.append((path[1:], [row]))
        rules.exact.setdefault((_ANY, counted_path(path[1:])), []).append(row)
    elif containing:
        rules.contained.append((str(method), path, [row]))
    elif "{uuid}" in path:
        pattern = re.compile(re.escape(counted_path(path)).replace(r"\{uuid\}", _UUID))
        rules.patterns.append((str(method), pattern, [row]))
    else:
        where = (method or _ANY, counted_path(path))
        rules.exact.setdefault(where, []).append(row)
        if row.below:
            rules.below.setdefault(where, []).append(row)


_RULES = _read(ROWS)


def row_for(method: str, path: str, identity: IdentityKind) -> Row:
    """The row that a request with this identity counts on; `path` is a `counted_path`.

    A row by IP is for everybody. Without a better one it is the identity's default.
    """
    for rows in _RULES.candidates(_READING.get(method, method), path):
        for row in rows:
            if row.identity in (identity, IdentityKind.IP):
                return row
    return _RULES.defaults[identity]


def address_row(method: str, path: str) -> Row | None:
    """The row by address that is the most specific for the request, whoever asks; None if not."""
    rows = next(_RULES.candidates(_READING.get(method, method), path), None)
    return rows[0] if rows is not None and rows[0].identity is IdentityKind.IP else None


CATCH_ALL = _RULES.defaults[IdentityKind.IP]
