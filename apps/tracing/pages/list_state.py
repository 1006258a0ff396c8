"""The state of the run list in the query parameters: queries, period, order, and links of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from apps.trace_store import RunQuery, RunSort, SortField, filters
from apps.trace_store.errors import FilterError
from apps.trace_store.filters import formatting
from apps.trace_store.filters.nodes import Expression
from apps.tracing.models import Project
from apps.tracing.pages import periods, query_clauses
from apps.tracing.pages.columns import MAX_COOKIE_LENGTH, Column
from apps.tracing.pages.periods import Period
from apps.tracing.pages.query_clauses import QueryProblem

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

_PLAIN_WORDS = re.compile(r"[^()\[\]{}]+")
"""A filter of the API's language without a condition: words that are searched instead."""
QUERIES = {
    "query": "query_text",
    "root": "root_text",
    "any": "any_text",
    "filter": "filter",
    "trace": "trace",
    "tree": "tree",
}
"""Query parameters of the queries, and of the filters in the API's language, with their fields."""
_TITLES = {
    "query": "query",
    "root": "query of root runs",
    "any": "query of any run of the trace",
    "filter": "filter",
    "trace": "root run filter",
    "tree": "trace runs filter",
}


SCOPES = {
    "": ("", "status:error latency:>2s refund"),
    "root": ("Root of its trace", "tag:production"),
    "any": ("Any run of its trace", "type:tool status:error"),
}
"""What a query describes, by the value of the parameter `scope`: label and example."""


@dataclass(frozen=True)
class QueryRow:
    """A field of the query bar: its parameter, text, label and example."""

    name: str
    text: str
    label: str
    example: str


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
    query_text: str
    period: Period
    sort: str = NEWEST_FIRST
    view: str = ""
    """The id of the open saved view; `all` opens the list without the default view."""
    root_text: str = ""
    """A query that the root run of the trace must meet."""
    any_text: str = ""
    """A query that any run of the trace must meet."""
    filter: str = ""
    """A filter in the API's language: what has no form as a query, or is invalid."""
    trace: str = ""
    """As `filter`, for the root run."""
    tree: str = ""
    """As `filter`, for any run of the trace."""
    scope: str = ""
    """Which run the bar's own field describes: a key of `SCOPES`."""
    columns: str = ""
    """The columns of the saved view (`columns.serialize_columns`); empty for the user's own."""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> ListState:
        show, sort, scope = (params.get(name, "") for name in ("show", "sort", "scope"))
        query_text, where = _read_query(params, "query", "filter")
        root_text, trace = _read_query(params, "root", "trace")
        any_text, tree = _read_query(params, "any", "tree")
        if search := params.get("q", "").strip()[:500]:
            query_text = query_clauses.join_queries([query_text, _translate_search(search)])
        return cls(
            show=show if show in TABS else "",
            query_text=query_text,
            period=periods.read_period(params),
            sort=sort if sort in SORTS else NEWEST_FIRST,
            view=params.get("view", "")[:36],
            root_text=root_text,
            any_text=any_text,
            filter=where,
            trace=trace,
            tree=tree,
            scope=scope if scope in SCOPES else "",
            columns=params.get("columns", "")[:MAX_COOKIE_LENGTH],
        )

    def with_query(self, text: str) -> ListState:
        """Return a copy with another query."""
        return replace(self, query_text=text)

    @property
    def title(self) -> str:
        return TABS[self.show][0]

    @property
    def is_limited(self) -> bool:
        return any(self._queries.values())

    @property
    def has_other_queries(self) -> bool:
        return any(row.text for row in self.other_queries) or bool(self.trace or self.tree)

    @property
    def main_query(self) -> QueryRow:
        """Return the bar's own field."""
        return self._query_row(self.scope)

    @property
    def other_queries(self) -> list[QueryRow]:
        """Return the fields for the other scopes; the listed run of a trace is its root."""
        is_root = not self.show
        return [
            self._query_row(scope)
            for scope in SCOPES
            if scope != self.scope and not (scope == "root" and is_root and not self.root_text)
        ]

    @property
    def scope_choices(self) -> list[tuple[str, str, bool]]:
        """Return label, URL and whether it is selected for each scope, with the query moved."""
        main = self.main_query
        choices = []
        for scope in SCOPES:
            if scope == "root" and not self.show and self.scope != "root":
                continue
            row = self._query_row(scope)
            moved = {main.name: "", row.name: query_clauses.join_queries([row.text, main.text])}
            changes = {"scope": scope, "view": ""} | (moved if scope != self.scope else {})
            choices.append((row.label, self.build_url(**changes), scope == self.scope))
        return choices

    @property
    def threads_query(self) -> str:
        """Return the query string of the list of threads with the bar's query."""
        parameters = {"query": self.main_query.text} | self.period.parameters
        return urlencode({name: value for name, value in parameters.items() if value})

    def _query_row(self, scope: str) -> QueryRow:
        name = scope or "query"
        label, example = SCOPES[scope]
        if not scope:
            label = "This run" if self.show else "Root run"
        return QueryRow(name, self._queries[name], label, example)

    @property
    def problem(self) -> QueryProblem | None:
        """Return the first invalid query, if any."""
        for name, text in self._queries.items():
            if (error := _parse_error(name, text)) is not None:
                problem = query_clauses.locate_problem(error, text)
                return replace(problem, field=name, title=_TITLES[name])
        return None

    @property
    def fixed_url(self) -> str:
        """Return the URL with the suggestion for the invalid query."""
        problem = self.problem
        if problem is None or not problem.suggestion:
            return ""
        return self.build_url(**{problem.field: problem.suggestion})

    @property
    def _queries(self) -> dict[str, str]:
        return {name: getattr(self, attribute) for name, attribute in QUERIES.items()}

    @property
    def without_invalid_filters(self) -> ListState:
        """Return a copy in which the invalid queries are left out."""
        valid = {
            name: "" if _parse_error(name, text) else text for name, text in self._queries.items()
        }
        return replace(
            self,
            query_text=valid["query"],
            root_text=valid["root"],
            any_text=valid["any"],
            filter=valid["filter"],
            trace=valid["trace"],
            tree=valid["tree"],
        )

    @property
    def clauses(self) -> list[tuple[str, str, str]]:
        """Return scope, text and the URL that removes it for each clause of the queries."""
        results: list[tuple[str, str, str]] = []
        for name, label in _SCOPES.items():
            text = self._queries[name]
            results += [
                (
                    label,
                    clause.text,
                    self.build_url(**{name: query_clauses.remove_clause(text, clause.text)}),
                )
                for clause in query_clauses.split_query(text)
            ]
        for name, label in _FILTER_SCOPES.items():
            if text := self._queries[name]:
                results.append((label, text, self.build_url(**{name: ""})))
        return results

    @property
    def parameters(self) -> dict[str, str]:
        data = {
            "show": self.show,
            **self._queries,
            "sort": "" if self.sort == NEWEST_FIRST else self.sort,
            "view": self.view,
            "scope": self.scope,
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
        return self.build_url(drop=tuple(QUERIES), view="all")

    @property
    def all_time(self) -> str:
        return self.build_url(drop=("from", "to"), range="all")

    @property
    def suggestions_query(self) -> str:
        """Return the query string for values of the listed runs, whatever the filter."""
        return self.build_url(drop=(*QUERIES, "view", "sort", "columns"))

    @property
    def filter_form_fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the query bar's form."""
        filter_params = (*(name or "query" for name in SCOPES), "view")
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
    def where(self) -> Expression | None:
        """The filter of the listed runs. Raises `FilterError` if the query is invalid."""
        return _combine(self.query_text, self.filter)

    @property
    def where_root(self) -> Expression | None:
        return _combine(self.root_text, self.trace)

    @property
    def where_any(self) -> Expression | None:
        return _combine(self.any_text, self.tree)

    @property
    def sdk_filter(self) -> str:
        """Return the filter of the listed runs in the API's language; empty if it has none."""
        where = self.without_invalid_filters.where
        return "" if where is None else formatting.format_filter(where)

    def query(self, project: Project) -> RunQuery:
        """Build the store query; raises `FilterError` for an invalid query."""
        return RunQuery(
            project_ids=[project.pk],
            started_from=self.period.start,
            started_until=self.period.end,
            oldest_first=self.oldest_first,
            where=self.where,
            where_root=self.where_root,
            where_any=self.where_any,
            **TABS[self.show][1],
        )


_SCOPES = {"query": "", "root": "root run", "any": "any run"}
_FILTER_SCOPES = {
    "filter": "API filter",
    "trace": "API filter, root run",
    "tree": "API filter, any run",
}


def _read_query(params: Mapping[str, str], name: str, filter_name: str) -> tuple[str, str]:
    """Return the query and the part of the API's filter that cannot be written as a query."""
    text = params.get(name, "").strip()[: MAX_FILTER_LENGTH + 1]
    where = params.get(filter_name, "").strip()[:MAX_FILTER_LENGTH]
    if not where:
        return text, ""
    if _PLAIN_WORDS.fullmatch(where):
        return query_clauses.join_queries([text, where]), ""
    try:
        translated, remaining = formatting.translate(filters.parse(where))
    except FilterError:
        return text, where
    rest = filters.all_of(remaining)
    joined = query_clauses.join_queries([text, translated])
    return joined, "" if rest is None else formatting.format_filter(rest)


def _translate_search(text: str) -> str:
    """Return the words of a search as a query; a text without words is reported as a fault."""
    if re.search(r"\w", text) is None:
        return formatting.quote_query(text)
    try:
        return formatting.format_query(filters.parse(filters.search_filter(text))) or ""
    except FilterError:
        return formatting.quote_query(text)


def _parse_error(name: str, text: str) -> FilterError | None:
    return query_clauses.parse_error(text) if name in _SCOPES else _filter_error(text)


def _filter_error(text: str) -> FilterError | None:
    try:
        filters.parse(text) if text else None
    except FilterError as error:
        return error
    return None


def _combine(text: str, where: str) -> Expression | None:
    return filters.all_of(
        [query_clauses.parse(text).expression, filters.parse(where) if where else None]
    )
