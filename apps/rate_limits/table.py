"""The rate-limit table of the platform API, as data.

`match` is verbatim from part 8 of the interface specification, and `row_matching` parses it
(tests/rate_limits/test_table.py compares both).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class IdentityKind(StrEnum):
    """Kinds of identity that are counted separately."""

    IP = "IP"
    KEY = "x-api-key"
    USER = "x-user-id + IP"

    @property
    def label(self) -> str:
        """The display name."""
        return {"IP": "IP", "x-api-key": "Key"}.get(self, "User and IP")


class Limit(NamedTuple):
    """Requests per interval of seconds."""

    requests: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Row:
    """A table row; each request counts on exactly one."""

    match: str
    identity: IdentityKind
    us: Limit
    eu: Limit
    category: str
    below: bool = False
    """Whether the row also matches paths below its path, such as `/sessions/<id>`."""

    @property
    def name(self) -> str:
        """The permanent name, used in keys of counters."""
        return f"{self.match} by {self.identity}"

    def limit(self, region: str) -> Limit:
        return self.eu if region == "eu" else self.us


def _row(
    match: str,
    identity: IdentityKind,
    us: tuple[int, int],
    category: str,
    *,
    eu: tuple[int, int] | None = None,
    below: bool = False,
) -> Row:
    return Row(match, identity, Limit(*us), Limit(*(eu or us)), category, below)


_IP, _KEY, _USER = IdentityKind.IP, IdentityKind.KEY, IdentityKind.USER

ROWS: tuple[Row, ...] = (
    _row("OPTIONS; /info; */v1/metadata/submit", _IP, (2000, 10), "High throughput"),
    _row("/auth", _KEY, (2000, 10), "High throughput", below=True),
    _row("/auth", _USER, (2000, 10), "High throughput", below=True),
    _row("/v1/beacon", _IP, (2000, 10), "High throughput", below=True),
    _row("/repos", _KEY, (100, 60), "Repository", below=True),
    _row("/repos", _USER, (100, 60), "Repository", below=True),
    _row("POST /runs/batch", _KEY, (2000, 10), "High throughput"),
    _row("POST /otel/v1/traces", _KEY, (2000, 10), "Run ingest"),
    _row("POST containing /charts", _KEY, (750, 600), "Charts"),
    _row("POST containing /charts", _USER, (750, 600), "Charts"),
    _row("POST /runs/multipart", _KEY, (6000, 10), "Multipart ingest"),
    _row("POST /runs/query", _KEY, (15, 10), "Run query (API)"),
    _row("POST /runs/query", _USER, (300, 10), "Run query (User)"),
    _row("/generate", _KEY, (30, 3600), "Generation", below=True),
    _row("/generate", _USER, (30, 3600), "Generation", below=True),
    _row("/commits", _KEY, (10000, 60), "Commits", eu=(2000, 60), below=True),
    _row("/commits", _USER, (10000, 60), "Commits", eu=(2000, 60), below=True),
    _row("DELETE /sessions; */trigger", _KEY, (10, 60), "Deletion", below=True),
    _row("DELETE /sessions; */trigger", _USER, (30, 60), "Deletion", below=True),
    _row("POST /runs (single run ingest)", _KEY, (2000, 10), "Run ingest"),
    _row("PATCH containing /runs", _KEY, (2000, 10), "Run ingest"),
    _row("POST /feedback", _KEY, (2000, 10), "High throughput"),
    _row("GET /runs/{uuid}; GET /api/v1/runs/{uuid}", _KEY, (30, 60), "Run lookup"),
    _row("GET containing /examples", _KEY, (5000, 60), "Examples"),
    _row("Any request with x-api-key", _KEY, (1000, 10), "Default (API key)"),
    _row("Any request with x-user-id", _USER, (1000, 10), "Default (User)"),
    _row("/public/download", _IP, (5000, 60), "Public download", below=True),
    _row("/runs/stats", _KEY, (1, 10), "Stats", eu=(20, 10)),
    _row("All other IPs (catch-all)", _IP, (100, 60), "Public (catch-all)"),
)

CATEGORIES: tuple[str, ...] = tuple(dict.fromkeys(row.category for row in ROWS))
