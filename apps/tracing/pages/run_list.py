"""What the list of a project's runs shows: the state that its address says, and the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from apps.core.json import dumps_text
from apps.feedback.services import score_stats
from apps.trace_store import RunQuery, RunRow, filters, run_store
from apps.trace_store.errors import FilterError
from apps.tracing.models import Project
from apps.tracing.pages import filter_clauses, periods
from apps.tracing.pages.columns import LONGEST_COLUMNS, Column
from apps.tracing.pages.periods import Period

RUNS_A_PAGE = 50
LONGEST_FILTER = 8_000

SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("Traces", {"is_root": True}),
    "all": ("Runs", {}),
    "llm": ("LLM calls", {"run_type": "llm"}),
}
"""The tabs of the list by the parameter `show`: each is a limit of its own."""


FILTERS = {"filter": "filter", "trace": "root run filter", "tree": "trace runs filter"}
"""What the filters are called, by their parameters."""


@dataclass(frozen=True)
class Problem:
    """A filter that was not understood, and where."""

    text: str
    line: str
    column: int | None
    field: str = "filter"
    title: str = "filter"

    @property
    def caret(self) -> str:
        return "" if self.column is None else " " * max(0, self.column - 1) + "^"


@dataclass(frozen=True)
class ListState:
    """All that the address says, so that each link on the page can say it with one change."""

    show: str
    filter: str
    words: str
    period: Period
    oldest_first: bool = False
    view: str = ""
    """The saved view that is open; `all` for none although the project has a default one."""
    trace: str = ""
    """A filter of the traces' roots."""
    tree: str = ""
    """A filter that any run of the trace meets."""
    columns: str = ""
    """The columns that a view brought, as `columns.as_text` writes them; else they are a person's
    own."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> ListState:
        show = given.get("show", "")
        return cls(
            show=show if show in SHOWN else "",
            filter=given.get("filter", "").strip()[:LONGEST_FILTER],
            words=given.get("q", "").strip()[:500],
            period=periods.read(given),
            oldest_first=given.get("sort") == "start",
            view=given.get("view", "")[:36],
            trace=given.get("trace", "").strip()[:LONGEST_FILTER],
            tree=given.get("tree", "").strip()[:LONGEST_FILTER],
            columns=given.get("columns", "")[:LONGEST_COLUMNS],
        )

    def saying(self, text: str) -> ListState:
        """The same with another filter."""
        return replace(self, filter=text)

    @property
    def title(self) -> str:
        return SHOWN[self.show][0]

    @property
    def is_limited(self) -> bool:
        return bool(self.filter or self.words or self.trace or self.tree)

    @property
    def problem(self) -> Problem | None:
        """The first of the filters that cannot be read."""
        texts = {"filter": self.filter, "trace": self.trace, "tree": self.tree}
        for name, text in texts.items():
            try:
                filters.parse(text) if text else None
            except FilterError as error:
                return replace(problem_of(error, text), field=name, title=FILTERS[name])
        return None

    @property
    def clauses(self) -> list[tuple[str, str]]:
        """Each clause of the filter, and the address without it."""
        return [
            (clause, self.address(filter=filter_clauses.without(self.filter, clause)))
            for clause in filter_clauses.split(self.filter)
        ]

    @property
    def parameters(self) -> dict[str, str]:
        said = {
            "show": self.show,
            "filter": self.filter,
            "trace": self.trace,
            "tree": self.tree,
            "q": self.words,
            "sort": "start" if self.oldest_first else "",
            "view": self.view,
            "columns": self.columns,
        }
        return {name: value for name, value in said.items() if value} | self.period.parameters

    def address(self, *, drop: Sequence[str] = (), **changes: str) -> str:
        """The query string with some parameters said differently."""
        said = self.parameters | changes
        kept = {name: value for name, value in said.items() if value and name not in drop}
        return f"?{urlencode(kept)}"

    @property
    def here(self) -> str:
        return self.address()

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return [
            (key, title, self.address(show=key, view="", sort=""))
            for key, (title, _) in SHOWN.items()
        ]

    @property
    def presets(self) -> list[tuple[str, str, str]]:
        return [
            (
                key,
                label,
                self.address(drop=("from", "to"), range="" if key == periods.USUAL else key),
            )
            for key, (label, _) in periods.PRESETS.items()
        ]

    @property
    def other_order(self) -> str:
        return self.address(sort="" if self.oldest_first else "start")

    @property
    def without_limits(self) -> str:
        return self.address(filter="", trace="", tree="", q="", view="all")

    @property
    def without_trace(self) -> str:
        return self.address(trace="", view="")

    @property
    def without_tree(self) -> str:
        return self.address(tree="", view="")

    @property
    def without_words(self) -> str:
        return self.address(q="", view="")

    @property
    def all_time(self) -> str:
        return self.address(drop=("from", "to"), range="all")

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """What the filter's form says besides its own fields."""
        own = ("filter", "trace", "tree", "q", "view")
        return [(name, value) for name, value in self.parameters.items() if name not in own]

    @property
    def unperiodic(self) -> list[tuple[str, str]]:
        """What the time range's form says besides its own fields."""
        own = ("range", "from", "to")
        return [(name, value) for name, value in self.parameters.items() if name not in own]

    @property
    def text(self) -> str:
        """The filter and the words as one filter."""
        found = filter_clauses.split(self.filter)
        if self.words:
            found.append(f"search({filters.quote(self.words)})")
        return filter_clauses.join(found)

    def query(self, project: Project) -> RunQuery:
        """Which runs; `FilterError` when the filter is not understood."""
        where = filters.parse(self.filter) if self.filter else None
        if self.words:
            where = filters.parse(self.text)
        return RunQuery(
            project_ids=[project.pk],
            started_from=self.period.start,
            started_until=self.period.end,
            oldest_first=self.oldest_first,
            where=where,
            where_root=filters.parse(self.trace) if self.trace else None,
            where_any=filters.parse(self.tree) if self.tree else None,
            **SHOWN[self.show][1],
        )


@dataclass(frozen=True)
class ListedRun:
    row: RunRow
    cells: list[tuple[Column, str]]
    feedback: list[tuple[str, str]]


@dataclass(frozen=True)
class RunList:
    rows: list[ListedRun] = field(default_factory=list)
    next_cursor: str | None = None
    problem: Problem | None = None


def run_list(
    project: Project, state: ListState, columns: Sequence[Column], *, cursor: str = ""
) -> RunList:
    """A page of runs; a filter that cannot be read is a problem to show, not an error."""
    if problem := state.problem:
        return RunList(problem=problem)
    query = state.query(project)
    page = run_store.query(project.workspace_id, query, limit=RUNS_A_PAGE, cursor=cursor or None)
    rows = [detail.row for detail in page.runs]
    said: Mapping[Any, score_stats.FeedbackStats] = {}
    if any(column.kind == "feedback" for column in columns):
        said = score_stats.by_run(project.workspace_id, [row.id for row in rows])
    return RunList([_listed(row, columns, said.get(row.id, {})) for row in rows], page.next_cursor)


def problem_of(error: FilterError, text: str) -> Problem:
    where = error.errors[0] if error.errors else {}
    lines = text.splitlines() or [""]
    number = min(max(1, where.get("line", 1)), len(lines))
    return Problem(where.get("message", error.detail), lines[number - 1], where.get("column"))


def _listed(
    row: RunRow, columns: Sequence[Column], feedback: score_stats.FeedbackStats
) -> ListedRun:
    said = chips(feedback)
    metadata = row.metadata if any(column.kind == "metadata" for column in columns) else {}
    cells = [(column, _text(column, metadata, said)) for column in columns]
    return ListedRun(row, cells, said)


def _text(column: Column, metadata: Mapping[str, Any], said: list[tuple[str, str]]) -> str:
    if column.kind == "metadata":
        value = metadata.get(column.inner)
        return "" if value is None else value if isinstance(value, str) else dumps_text(value)
    if column.kind == "feedback" and column.inner:
        return dict(said).get(column.inner, "")
    return ""


def chips(feedback: score_stats.FeedbackStats) -> list[tuple[str, str]]:
    """Key and short value of each feedback: its mean, else its most frequent value."""
    return [(key, _short(stats)) for key, stats in sorted(feedback.items())]


def _short(stats: Mapping[str, Any]) -> str:
    if stats.get("n") and stats.get("avg") is not None:
        return f"{stats['avg']:.2f}".rstrip("0").rstrip(".")
    values = stats.get("values") or {}
    return str(max(values, key=values.__getitem__)) if values else ""
