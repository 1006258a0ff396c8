"""The run list of a project: its state in the query parameters, and its rows."""

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
from apps.tracing.pages.columns import MAX_COOKIE_LENGTH, Column
from apps.tracing.pages.periods import Period

RUNS_PER_PAGE = 50
MAX_FILTER_LENGTH = 8_000

TABS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("Traces", {"is_root": True}),
    "all": ("Runs", {}),
    "llm": ("LLM calls", {"run_type": "llm"}),
}
"""The tabs of the list by the parameter `show`, each with its restriction of the query."""


FILTERS = {"filter": "filter", "trace": "root run filter", "tree": "trace runs filter"}
"""Labels of the filters by query parameter."""


@dataclass(frozen=True)
class FilterProblem:
    """An invalid filter with the position of its error."""

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
    """The list's state in the query parameters, from which each link derives its URL."""

    show: str
    filter: str
    words: str
    period: Period
    oldest_first: bool = False
    view: str = ""
    """The open saved view; `all` for none despite a default view."""
    trace: str = ""
    """A filter of root runs."""
    tree: str = ""
    """A filter that any run of the trace must meet."""
    columns: str = ""
    """The columns of the saved view (`columns.serialize_columns`); empty for the user's own."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> ListState:
        show = params.get("show", "")
        return cls(
            show=show if show in TABS else "",
            filter=params.get("filter", "").strip()[:MAX_FILTER_LENGTH],
            words=params.get("q", "").strip()[:500],
            period=periods.read_period(params),
            oldest_first=params.get("sort") == "start",
            view=params.get("view", "")[:36],
            trace=params.get("trace", "").strip()[:MAX_FILTER_LENGTH],
            tree=params.get("tree", "").strip()[:MAX_FILTER_LENGTH],
            columns=params.get("columns", "")[:MAX_COOKIE_LENGTH],
        )

    def saying(self, text: str) -> ListState:
        """Return a copy with another filter."""
        return replace(self, filter=text)

    @property
    def title(self) -> str:
        return TABS[self.show][0]

    @property
    def is_limited(self) -> bool:
        return bool(self.filter or self.words or self.trace or self.tree)

    @property
    def problem(self) -> FilterProblem | None:
        """Return the first invalid filter, if any."""
        texts = {"filter": self.filter, "trace": self.trace, "tree": self.tree}
        for name, text in texts.items():
            try:
                filters.parse(text) if text else None
            except FilterError as error:
                return replace(filter_problem(error, text), field=name, title=FILTERS[name])
        return None

    @property
    def clauses(self) -> list[tuple[str, str]]:
        """Return each clause of the filter with the URL that removes it."""
        return [
            (clause, self.address(filter=filter_clauses.remove_clause(self.filter, clause)))
            for clause in filter_clauses.split_clauses(self.filter)
        ]

    @property
    def parameters(self) -> dict[str, str]:
        data = {
            "show": self.show,
            "filter": self.filter,
            "trace": self.trace,
            "tree": self.tree,
            "q": self.words,
            "sort": "start" if self.oldest_first else "",
            "view": self.view,
            "columns": self.columns,
        }
        return {name: value for name, value in data.items() if value} | self.period.parameters

    def address(self, *, drop: Sequence[str] = (), **changes: str) -> str:
        """Return the query string with changed parameters."""
        data = self.parameters | changes
        kept = {name: value for name, value in data.items() if value and name not in drop}
        return f"?{urlencode(kept)}"

    @property
    def here(self) -> str:
        return self.address()

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return [
            (key, title, self.address(show=key, view="", sort=""))
            for key, (title, _) in TABS.items()
        ]

    @property
    def presets(self) -> list[tuple[str, str, str]]:
        return [
            (
                key,
                label,
                self.address(
                    drop=("from", "to"), range="" if key == periods.DEFAULT_PRESET else key
                ),
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
        """Return the hidden fields of the filter form."""
        own = ("filter", "trace", "tree", "q", "view")
        return [(name, value) for name, value in self.parameters.items() if name not in own]

    @property
    def unperiodic(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the time range form."""
        own = ("range", "from", "to")
        return [(name, value) for name, value in self.parameters.items() if name not in own]

    @property
    def text(self) -> str:
        """Return the filter and the search text as one filter."""
        result = filter_clauses.split_clauses(self.filter)
        if self.words:
            result.append(f"search({filters.quote(self.words)})")
        return filter_clauses.join_clauses(result)

    def query(self, project: Project) -> RunQuery:
        """Build the store query; raises `FilterError` for an invalid filter."""
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
            **TABS[self.show][1],
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
    problem: FilterProblem | None = None


def load_run_list(
    project: Project, state: ListState, columns: Sequence[Column], *, cursor: str = ""
) -> RunList:
    """Load a page of runs; an invalid filter is returned as `problem`, not raised."""
    if problem := state.problem:
        return RunList(problem=problem)
    query = state.query(project)
    page = run_store.query(project.workspace_id, query, limit=RUNS_PER_PAGE, cursor=cursor or None)
    rows = [detail.row for detail in page.runs]
    data: Mapping[Any, score_stats.FeedbackStats] = {}
    if any(column.kind == "feedback" for column in columns):
        data = score_stats.by_run(project.workspace_id, [row.id for row in rows])
    return RunList(
        [_build_rows(row, columns, data.get(row.id, {})) for row in rows], page.next_cursor
    )


def filter_problem(error: FilterError, text: str) -> FilterProblem:
    where = error.errors[0] if error.errors else {}
    lines = text.splitlines() or [""]
    number = min(max(1, where.get("line", 1)), len(lines))
    return FilterProblem(where.get("message", error.detail), lines[number - 1], where.get("column"))


def _build_rows(
    row: RunRow, columns: Sequence[Column], feedback: score_stats.FeedbackStats
) -> ListedRun:
    chips = feedback_chips(feedback)
    metadata = row.metadata if any(column.kind == "metadata" for column in columns) else {}
    cells = [(column, _cell_text(column, metadata, chips)) for column in columns]
    return ListedRun(row, cells, chips)


def _cell_text(column: Column, metadata: Mapping[str, Any], chips: list[tuple[str, str]]) -> str:
    if column.kind == "metadata":
        value = metadata.get(column.inner)
        return "" if value is None else value if isinstance(value, str) else dumps_text(value)
    if column.kind == "feedback" and column.inner:
        return dict(chips).get(column.inner, "")
    return ""


def feedback_chips(feedback: score_stats.FeedbackStats) -> list[tuple[str, str]]:
    """Return key and short value of each feedback key: the mean, else the most frequent value."""
    return [(key, _short_score(stats)) for key, stats in sorted(feedback.items())]


def _short_score(stats: Mapping[str, Any]) -> str:
    if stats.get("n") and stats.get("avg") is not None:
        return f"{stats['avg']:.2f}".rstrip("0").rstrip(".")
    values = stats.get("values") or {}
    return str(max(values, key=values.__getitem__)) if values else ""
