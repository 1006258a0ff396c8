"""The run list of a project: its state in the query parameters, and its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from apps.core.json import dumps_text
from apps.feedback.services import score_stats
from apps.trace_store import RunQuery, RunRow, RunSort, SortField, filters, run_store
from apps.tracing.models import Project
from apps.tracing.pages import filter_clauses, periods
from apps.tracing.pages.columns import MAX_COOKIE_LENGTH, Column
from apps.tracing.pages.filter_clauses import FilterProblem
from apps.tracing.pages.periods import Period

RUNS_PER_PAGE = 50
MAX_FILTER_LENGTH = 8_000

TABS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("Traces", {"is_root": True}),
    "all": ("Runs", {}),
    "llm": ("LLM calls", {"run_type": "llm"}),
}
"""Title and query arguments of each tab, by the parameter `show`."""


NEWEST_FIRST = "-start"
SORTS = frozenset(f"{sign}{key}" for sign in ("", "-") for key in ("start", *SortField))
"""Values of the parameter `sort`; without it, the newest run comes first."""
_TEXT_COLUMNS = frozenset({"name"})
"""Columns whose first order is ascending."""

SEARCH_WITHOUT_WORD = "a search takes at least one letter or digit"
_PLAIN_WORDS = re.compile(r"[^()\[\]{}]+")
"""A filter without a condition: words that are searched instead."""
FILTERS = {
    "filter": "filter",
    "trace": "root run filter",
    "tree": "trace runs filter",
    "q": "search",
}
"""Labels of the filters by query parameter."""


@dataclass(frozen=True)
class ColumnHeader:
    """The header of a column, with the URL that sorts by it and its current order, if any."""

    column: Column
    url: str = ""
    direction: str = ""


@dataclass(frozen=True)
class ListState:
    """The state of the list, read from the query parameters; links are built from it."""

    show: str
    filter: str
    search: str
    period: Period
    sort: str = NEWEST_FIRST
    view: str = ""
    """The id of the open saved view; `all` opens the list without the default view."""
    trace: str = ""
    """A filter of root runs."""
    tree: str = ""
    """A filter that any run of the trace must meet."""
    columns: str = ""
    """The columns of the saved view (`columns.serialize_columns`); empty for the user's own."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> ListState:
        show = params.get("show", "")
        where = params.get("filter", "").strip()[:MAX_FILTER_LENGTH]
        search = params.get("q", "").strip()
        if _PLAIN_WORDS.fullmatch(where):
            where, search = "", f"{where} {search}".strip()
        sort = params.get("sort", "")
        return cls(
            show=show if show in TABS else "",
            filter=where,
            search=search[:500],
            period=periods.read_period(params),
            sort=sort if sort in SORTS else NEWEST_FIRST,
            view=params.get("view", "")[:36],
            trace=params.get("trace", "").strip()[:MAX_FILTER_LENGTH],
            tree=params.get("tree", "").strip()[:MAX_FILTER_LENGTH],
            columns=params.get("columns", "")[:MAX_COOKIE_LENGTH],
        )

    def with_filter(self, text: str) -> ListState:
        """Return a copy with another filter."""
        return replace(self, filter=text)

    @property
    def title(self) -> str:
        return TABS[self.show][0]

    @property
    def is_limited(self) -> bool:
        return bool(self.filter or self.search or self.trace or self.tree)

    @property
    def problem(self) -> FilterProblem | None:
        """Return the first invalid filter, if any."""
        for name, text in self._filters.items():
            if (error := filter_clauses.parse_error(text)) is None:
                continue
            if name == "q":
                return FilterProblem(SEARCH_WITHOUT_WORD, "", None, name, FILTERS[name])
            return replace(
                filter_clauses.locate_problem(error, text), field=name, title=FILTERS[name]
            )
        return None

    @property
    def _filters(self) -> dict[str, str]:
        search = filters.search_filter(self.search) if self.search else ""
        return {"filter": self.filter, "trace": self.trace, "tree": self.tree, "q": search}

    @property
    def without_invalid_filters(self) -> ListState:
        """Return a copy in which the invalid filters are left out."""
        invalid = {name for name, text in self._filters.items() if filter_clauses.parse_error(text)}
        return replace(
            self,
            filter="" if "filter" in invalid else self.filter,
            trace="" if "trace" in invalid else self.trace,
            tree="" if "tree" in invalid else self.tree,
            search="" if "q" in invalid else self.search,
        )

    @property
    def clauses(self) -> list[tuple[str, str]]:
        """Return each clause of the filter with the URL that removes it."""
        return [
            (clause, self.build_url(filter=filter_clauses.remove_clause(self.filter, clause)))
            for clause in filter_clauses.split_clauses(self.filter)
        ]

    @property
    def parameters(self) -> dict[str, str]:
        data = {
            "show": self.show,
            "filter": self.filter,
            "trace": self.trace,
            "tree": self.tree,
            "q": self.search,
            "sort": "" if self.sort == NEWEST_FIRST else self.sort,
            "view": self.view,
            "columns": self.columns,
        }
        return {name: value for name, value in data.items() if value} | self.period.parameters

    def build_url(self, *, drop: Sequence[str] = (), **changes: str) -> str:
        """Return the query string with changed parameters."""
        data = self.parameters | changes
        parameters = {name: value for name, value in data.items() if value and name not in drop}
        return f"?{urlencode(parameters)}"

    @property
    def current_url(self) -> str:
        return self.build_url()

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return [
            (key, title, self.build_url(show=key, view="", sort=""))
            for key, (title, _) in TABS.items()
        ]

    @property
    def presets(self) -> list[tuple[str, str, str]]:
        return [
            (
                key,
                label,
                self.build_url(
                    drop=("from", "to"), range="" if key == periods.DEFAULT_PRESET else key
                ),
            )
            for key, (label, _) in periods.PRESETS.items()
        ]

    @property
    def oldest_first(self) -> bool:
        return self.sort == "start"

    @property
    def is_by_start(self) -> bool:
        return self.sort in {"start", NEWEST_FIRST}

    @property
    def run_sort(self) -> RunSort | None:
        """Return the order of the list unless it is by start."""
        if self.is_by_start:
            return None
        return RunSort(SortField(self.sort.removeprefix("-")), self.sort.startswith("-"))

    @property
    def sort_label(self) -> str:
        """Return the order in words."""
        if self.is_by_start:
            return "oldest first" if self.oldest_first else "newest first"
        direction = "descending" if self.sort.startswith("-") else "ascending"
        return f"by {self.sort.removeprefix('-')}, {direction}"

    def column_headers(self, columns: Sequence[Column]) -> list[ColumnHeader]:
        """Return the headers of the columns; a link sorts by the column or reverses the order."""
        return [self._column_header(column) for column in columns]

    def _column_header(self, column: Column) -> ColumnHeader:
        key = column.key
        if f"-{key}" not in SORTS:
            return ColumnHeader(column)
        descending = f"-{key}"
        if self.sort in {key, descending}:
            other = key if self.sort == descending else descending
            direction = "descending" if self.sort == descending else "ascending"
        else:
            other, direction = key if key in _TEXT_COLUMNS else descending, ""
        url = self.build_url(sort="" if other == NEWEST_FIRST else other)
        return ColumnHeader(column, url, direction)

    @property
    def without_limits(self) -> str:
        return self.build_url(filter="", trace="", tree="", q="", view="all")

    @property
    def without_trace(self) -> str:
        return self.build_url(trace="", view="")

    @property
    def without_tree(self) -> str:
        return self.build_url(tree="", view="")

    @property
    def without_search(self) -> str:
        return self.build_url(q="", view="")

    @property
    def all_time(self) -> str:
        return self.build_url(drop=("from", "to"), range="all")

    @property
    def suggestions_query(self) -> str:
        """Return the query string for values of the listed runs, whatever the filter."""
        return self.build_url(drop=(*FILTERS, "view", "sort", "columns"))

    @property
    def filter_form_fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the filter form."""
        filter_params = (*FILTERS, "view")
        return [
            (name, value) for name, value in self.parameters.items() if name not in filter_params
        ]

    @property
    def period_form_fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the time range form."""
        filter_params = ("range", "from", "to")
        return [
            (name, value) for name, value in self.parameters.items() if name not in filter_params
        ]

    @property
    def text(self) -> str:
        """Return the filter and the search text as one filter."""
        clauses = filter_clauses.split_clauses(self.filter)
        if self.search:
            clauses.append(filters.search_filter(self.search))
        return filter_clauses.join_clauses(clauses)

    def query(self, project: Project) -> RunQuery:
        """Build the store query; raises `FilterError` for an invalid filter."""
        where = filters.parse(self.filter) if self.filter else None
        if self.search:
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

    @property
    def empty_columns(self) -> set[str]:
        """Return the keys of the columns without a value in any row, which get less space."""
        columns = [column for column, _ in self.rows[0].cells] if self.rows else []
        return {
            column.key
            for column in columns
            if column.key in _HAS_VALUE and not any(map(_HAS_VALUE[column.key], self.rows))
        }


_HAS_VALUE: dict[str, Callable[[ListedRun], object]] = {
    "error": lambda listed: listed.row.error_preview,
    "first_token": lambda listed: listed.row.first_token_time,
    "tokens": lambda listed: listed.row.usage.total_tokens,
    "cost": lambda listed: listed.row.usage.total_cost,
    "tags": lambda listed: listed.row.tags,
    "feedback": lambda listed: listed.feedback,
    "model": lambda listed: listed.row.model,
    "thread": lambda listed: listed.row.thread_key,
}


def load_run_list(
    project: Project, state: ListState, columns: Sequence[Column], *, cursor: str = ""
) -> RunList:
    """Load a page of runs; an invalid filter is not applied and is returned as `problem`."""
    problem = state.problem
    query = replace(state.without_invalid_filters.query(project), sort=state.run_sort)
    page = run_store.query(project.workspace_id, query, limit=RUNS_PER_PAGE, cursor=cursor or None)
    rows = [detail.row for detail in page.runs]
    scores: Mapping[Any, score_stats.FeedbackStats] = {}
    if any(column.kind == "feedback" for column in columns):
        scores = score_stats.by_run(project.workspace_id, [row.id for row in rows])
    return RunList(
        [_build_row(row, columns, scores.get(row.id, {})) for row in rows],
        page.next_cursor,
        problem,
    )


def _build_row(
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
