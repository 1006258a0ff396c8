"""Selection of the table row for a request: the most specific for its kind of identity.

From most to least specific: method with exact path, exact path, path prefix, suffix, substring,
default. Paths are normalized first, so that no prefix, double slash, case or encoding bypasses a
row.
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
_METHOD_ALIASES = {"HEAD": "GET"}
"""Methods that count as another one."""

# Pages, files and agents. All other paths count as platform API, existing or not.
_OUTSIDE = frozenset(
    {
        *("account", "admin", "agents", "docs", "host", "invitations", "o", "static"),
        *("context", "prompts"),  # links that the public clients print
    }
)
_OUTSIDE_EXACTLY = frozenset(
    {
        *("/", "/healthz", "/readyz", "/metrics", "/ok", "/info/health"),
        *("/sign-in", "/sign-up", "/sign-out", "/organizations", "/end-impersonation"),
        *("/start", "/llms.txt", "/skill.md"),
    }
)
# Routes of the API below a first segment of pages.
_COUNTED_EXACTLY = frozenset({"/prompts/invoke_prompt", "/prompts/canvas"})
# Requests of pages that the API offers, too: above all model calls.
_COUNTED_OF_PAGES = re.compile(rf"/o/({_UUID})/(?:playground/.+|evaluators/try)")
_SHARED_PAGE = re.compile(rf"/public/{_UUID}/[rd](?:/(?:{_UUID}|transcript|experiments))?")


def counted_path(path: str) -> str:
    """Return the normalized path without API prefixes, which rows are matched against."""
    normalized = _SLASHES.sub("/", f"/{path.strip().lower()}")
    normalized = _PREFIXES.sub("", normalized)
    return normalized.rstrip("/ \n\t") or "/"


def is_counted(path: str) -> bool:
    """Whether requests to the canonical path are limited; pages and agents are not."""
    if path in _COUNTED_EXACTLY or _COUNTED_OF_PAGES.fullmatch(path):
        return True
    if path in _OUTSIDE_EXACTLY or path[1:].partition("/")[0] in _OUTSIDE:
        return False
    return _SHARED_PAGE.fullmatch(path) is None


def find_workspace(path: str) -> str:
    """Return the workspace's id in the canonical path of a counted route of pages, or ""."""
    match = _COUNTED_OF_PAGES.fullmatch(path)
    return "" if match is None else match[1]


@dataclass(slots=True)
class _Rules:
    """The table's rows, indexed by kind of match."""

    methods: dict[str, list[Row]] = field(default_factory=dict)
    """By method, for any path."""
    exact: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """By method, or `any`, and path."""
    patterns: list[tuple[str, re.Pattern[str], list[Row]]] = field(default_factory=list)
    """By method and a path with variables."""
    below: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    suffixes: list[tuple[str, list[Row]]] = field(default_factory=list)
    contained: list[tuple[str, str, list[Row]]] = field(default_factory=list)
    defaults: dict[IdentityKind, Row] = field(default_factory=dict)

    def candidates(self, method: str, path: str) -> Iterator[list[Row]]:
        """Yield the matching rows, from the most to the least specific."""
        if (rows := self.methods.get(method)) is not None:
            yield rows
        if (rows := self.exact.get((method, path))) is not None:
            yield rows
        for pattern_method, pattern, rows in self.patterns:
            if pattern_method == method and pattern.fullmatch(path):
                yield rows
        if (rows := self.exact.get((_ANY, path))) is not None:
            yield rows
        one_segment = path[: path.find("/", 1)] if path.count("/") > 1 else ""
        two_segments = path[: path.find("/", len(one_segment) + 1)] if path.count("/") > 2 else ""
        for prefix in (two_segments, one_segment):
            for prefix_method in (method, _ANY):
                if prefix and (rows := self.below.get((prefix_method, prefix))) is not None:
                    yield rows
        for suffix, rows in self.suffixes:
            if path.endswith(suffix):
                yield rows
        for fragment_method, fragment, rows in self.contained:
            if fragment_method == method and fragment in path:
                yield rows


def _build_rules(rows: tuple[Row, ...]) -> _Rules:
    rules = _Rules()
    for row in rows:
        alternatives = [_ALTERNATIVE.fullmatch(part.strip()) for part in row.match.split(";")]
        if alternatives == [None]:  # a description without a path: a default row
            rules.defaults[row.identity] = row
            continue
        for alternative in alternatives:
            if alternative is None:
                raise ValueError(f"The match {row.match!r} cannot be parsed.")
            _add_rule(
                rules, row, alternative["method"], alternative["path"], alternative["containing"]
            )
    return rules


def _add_rule(
    rules: _Rules, row: Row, method: str | None, path: str | None, containing: str | None
) -> None:
    if path is None:
        rules.methods.setdefault(str(method), []).append(row)
    elif path.startswith("*"):
        rules.suffixes.append((path[1:], [row]))
        rules.exact.setdefault((_ANY, counted_path(path[1:])), []).append(row)
    elif containing:
        rules.contained.append((str(method), path, [row]))
    elif "{uuid}" in path:
        pattern = re.compile(re.escape(counted_path(path)).replace(r"\{uuid\}", _UUID))
        rules.patterns.append((str(method), pattern, [row]))
    else:
        key = (method or _ANY, counted_path(path))
        rules.exact.setdefault(key, []).append(row)
        if row.below:
            rules.below.setdefault(key, []).append(row)


_RULES = _build_rules(ROWS)


def row_for(method: str, path: str, identity: IdentityKind) -> Row:
    """Return the row of a request with this identity; `path` is a `counted_path`.

    Rows by IP apply to every identity. Without a match it is the identity's default row.
    """
    for rows in _RULES.candidates(_METHOD_ALIASES.get(method, method), path):
        for row in rows:
            if row.identity in (identity, IdentityKind.IP):
                return row
    return _RULES.defaults[identity]


def address_row(method: str, path: str) -> Row | None:
    """Return the most specific row if it is by address, for any identity; else None."""
    rows = next(_RULES.candidates(_METHOD_ALIASES.get(method, method), path), None)
    return rows[0] if rows is not None and rows[0].identity is IdentityKind.IP else None


CATCH_ALL = _RULES.defaults[IdentityKind.IP]
