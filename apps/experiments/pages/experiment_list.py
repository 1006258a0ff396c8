"""Data of the list of a dataset's experiments, in a fixed number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import QueryDict

from apps.core.json import loads, storable_value
from apps.datasets.models import Dataset
from apps.feedback.services import example_scores
from apps.feedback.services.example_scores import BINS, ScoreRange
from apps.tracing.models import Project
from apps.tracing.querysets import ProjectQuerySet
from apps.tracing.services import statistics
from apps.tracing.services.facets import is_technical
from apps.tracing.services.projects import experiment_numbers, experiment_progress

PAGE_SIZE = 25
MAX_SORTED = 200
"""The number of experiments, the newest, that an order by a statistic covers."""
MAX_KEYS = 8
"""The number of feedback keys that have a column."""
MAX_OPTIONS = 100
HUES = 6
ACTIVE_MINUTES = 15
"""An experiment without an end is running if its last run is not older."""
SELECTED_STATS = (
    "trace_count",
    "error_rate",
    "latency_p50",
    "total_tokens",
    "total_cost",
    "last_run_start_time",
    "feedback_stats",
)
_BAR_HEIGHT = 14


def experiments_of(dataset: Dataset) -> ProjectQuerySet:
    """Return a query of the experiments on the dataset, newest first."""
    projects = Project.objects.for_workspace(dataset.workspace_id).present()
    return projects.filter(reference_dataset_id=dataset.pk).newest_first()


def hue_of(number: int) -> str:
    """Return the colour of the experiment with this ordinal among those of its dataset."""
    return str((number - 1) % HUES + 1)


@dataclass(frozen=True)
class ExperimentListState:
    """The search, the order and the page, from query parameters."""

    text: str = ""
    metadata: str = ""
    sort: str = "-created"
    """The name of a column, with a minus for descending."""
    offset: int = 0

    @classmethod
    def read(cls, params: QueryDict) -> ExperimentListState:
        offset = params.get("from", "")
        return cls(
            params.get("q", "").replace("\0", "").strip()[:200],
            params.get("metadata", "").replace("\0", "").strip()[:500],
            params.get("sort", "")[:1100] or "-created",
            int(offset) if offset.isdecimal() and len(offset) < 7 else 0,
        )

    @property
    def column(self) -> str:
        return self.sort.removeprefix("-")

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")

    @property
    def is_limited(self) -> bool:
        return bool(self.text or self.metadata)

    @property
    def metadata_condition(self) -> Q:
        """Match `key` or `key=value`, separated by commas; a value is a text or JSON."""
        condition = Q()
        for part in self.metadata.split(","):
            name, is_pair, text = (item.strip() for item in part.partition("="))
            if not name:
                continue
            if not is_pair:
                condition &= Q(extra__metadata__has_key=name)
                continue
            matches = Q(extra__metadata__contains={name: text})
            with suppress(ValueError):  # the value is a text
                matches |= Q(extra__metadata__contains={name: storable_value(loads(text))})
            condition &= matches
        return condition


@dataclass(frozen=True)
class ExperimentColumn:
    """A column that can be sorted; `sort` is the order that a click on its head selects."""

    label: str
    sort: str
    direction: str = ""
    """The current order, as in `aria-sort`."""
    css: str = "num"
    title: str = ""


@dataclass(frozen=True)
class ScoreCell:
    """The mean of a key, and the bars of its distribution as `x`, `y` and `height`."""

    text: str
    about: str = ""
    bars: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True)
class ExperimentRow:
    project: Project
    number: int
    stats: Mapping[str, Any]
    scores: Sequence[ScoreCell]
    progress: Mapping[str, Any] | None
    is_baseline: bool = False

    @property
    def hue(self) -> str:
        return hue_of(self.number)

    @property
    def repetitions(self) -> int | None:
        return repetitions_of(self.project)

    @property
    def expected_runs(self) -> int | None:
        return self.progress["expected_run_count"] if self.progress else None

    @property
    def status(self) -> str:
        """Return the name of a badge."""
        if self.project.end_time is not None:
            return "Completed"
        if self.progress and self.progress["run_progress"] >= 1:
            return "Completed"
        last = self.stats.get("last_run_start_time") or self.project.start_time
        is_active = datetime.now(UTC) - last < timedelta(minutes=ACTIVE_MINUTES)
        return "Running" if is_active else "unfinished"

    @property
    def metadata(self) -> Iterable[tuple[str, str]]:
        """Return the metadata that a person chose: short values, without those of the client."""
        value = self.project.extra.get("metadata")
        pairs = value.items() if isinstance(value, dict) else ()
        return [
            (name, str(item))
            for name, item in pairs
            if isinstance(item, str | int | float)
            and name not in _CLIENT_METADATA
            and not is_technical(name)
            and len(str(item)) <= 60
        ][:4]


_CLIENT_METADATA = frozenset(
    {"dataset_version", "dataset_splits", "num_repetitions", "revision_id", "example_version"}
)


def repetitions_of(project: Project) -> int | None:
    """Return how often each example was to be run, if the client reported it."""
    metadata = project.extra.get("metadata")
    reported = metadata.get("num_repetitions") if isinstance(metadata, dict) else None
    value = (project.plan or {}).get("num_repetitions") or reported
    return value if isinstance(value, int) else None


@dataclass(frozen=True)
class ExperimentList:
    rows: Sequence[ExperimentRow]
    columns: Sequence[ExperimentColumn]
    has_next: bool
    is_cut: bool
    """Whether older experiments are missing, because the order covers only `MAX_SORTED`."""
    hidden_keys: int


def load_list(dataset: Dataset, state: ExperimentListState) -> ExperimentList:
    """Load a page of the experiments with their statistics."""
    projects = experiments_of(dataset)
    if state.text:
        projects = projects.filter(name__icontains=state.text)
    if state.metadata:
        projects = projects.filter(state.metadata_condition)
    end = state.offset + PAGE_SIZE
    is_cut = False
    if state.column in _FIELD_ORDERS:
        sign = "-" if state.descending else ""
        field = _FIELD_ORDERS[state.column]
        candidates = list(projects.order_by(f"{sign}{field}", f"{sign}pk")[state.offset : end + 1])
        page, has_next = candidates[:PAGE_SIZE], len(candidates) > PAGE_SIZE
        stats = load_stats(dataset, page)
    else:
        candidates = list(projects[: MAX_SORTED + 1])
        is_cut, candidates = len(candidates) > MAX_SORTED, candidates[:MAX_SORTED]
        stats = load_stats(dataset, candidates)
        ordered = _sort(candidates, stats, state)
        page, has_next = ordered[state.offset : end], len(ordered) > end
    keys = keys_of(stats[project.pk] for project in page)
    shown = keys[:MAX_KEYS]
    return ExperimentList(
        _build_rows(dataset, page, stats, shown),
        [_build_column(*column, state) for column in (*_COLUMNS, *map(_score_column, shown))],
        has_next,
        is_cut,
        len(keys) - len(shown),
    )


def load_stats(dataset: Dataset, projects: Sequence[Project]) -> Mapping[UUID, Mapping[str, Any]]:
    """Return statistics by experiment, as the API names them."""
    ids = [project.pk for project in projects]
    stats = statistics.project_stats(dataset.workspace_id, ids, select=SELECTED_STATS)
    return {item: without_empty_sums(values) for item, values in stats.items()}


def without_empty_sums(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics with None for sums of tokens and cost that no run has reported."""
    tokens, cost = stats["total_tokens"], stats["total_cost"]
    is_priced = cost is not None and float(cost) > 0
    return {**stats, "total_tokens": tokens or None, "total_cost": cost if is_priced else None}


def keys_of(stats: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the feedback keys: those of the most experiments first."""
    counts = Counter(key for item in stats for key in item["feedback_stats"])
    return sorted(counts, key=lambda key: (-counts[key], key))


_FIELD_ORDERS = {"created": "start_time", "name": "name"}
_SCORE_PREFIX = "score."
_Value = Callable[[Mapping[str, Any]], Any]
_STATS_ORDERS: dict[str, _Value] = {
    "runs": lambda stats: stats["trace_count"],
    "errors": lambda stats: stats["error_rate"],
    "latency": lambda stats: stats["latency_p50"],
    "tokens": lambda stats: stats["total_tokens"],
    "cost": lambda stats: stats["total_cost"] and float(stats["total_cost"]),
}
_COLUMNS = (
    ("name", "Name", "cell-name", ""),
    ("created", "Created", "when", ""),
    ("", "Repetitions", "num", "Runs for each example"),
    ("runs", "Runs", "num", "Traces, of the expected number while it runs"),
    ("errors", "Errors", "num", "Share of runs that failed"),
    ("latency", "Latency p50", "num", "Median latency of runs"),
    ("tokens", "Tokens", "num", ""),
    ("cost", "Cost", "num", ""),
)


def _score_column(key: str) -> tuple[str, str, str, str]:
    return f"{_SCORE_PREFIX}{key}", key, "cell-score", "Mean and distribution of the scores"


def _build_column(
    name: str, label: str, css: str, title: str, state: ExperimentListState
) -> ExperimentColumn:
    if not name:
        return ExperimentColumn(label, "", "", css, title)
    if state.column != name:
        return ExperimentColumn(label, name if name == "name" else f"-{name}", "", css, title)
    other = name if state.descending else f"-{name}"
    return ExperimentColumn(
        label, other, "descending" if state.descending else "ascending", css, title
    )


def _sort(
    projects: Sequence[Project], stats: Mapping[UUID, Mapping[str, Any]], state: ExperimentListState
) -> list[Project]:
    """Sort by a statistic; experiments without the value come last, newest first."""
    if state.column.startswith(_SCORE_PREFIX):
        key = state.column.removeprefix(_SCORE_PREFIX)
        read: _Value = lambda item: (item["feedback_stats"].get(key) or {}).get("avg")  # noqa: E731
    else:
        read = _STATS_ORDERS.get(state.column, lambda _: None)
    values = {project.pk: read(stats[project.pk]) for project in projects}
    known = [project for project in projects if values[project.pk] is not None]
    known.sort(key=lambda project: values[project.pk], reverse=state.descending)
    return [*known, *(project for project in projects if values[project.pk] is None)]


def _build_rows(
    dataset: Dataset,
    projects: Sequence[Project],
    stats: Mapping[UUID, Mapping[str, Any]],
    keys: Sequence[str],
) -> list[ExperimentRow]:
    numbers = experiment_numbers(dataset.workspace_id, projects)
    ranges = _ranges_of((stats[project.pk]["feedback_stats"] for project in projects), keys)
    bins = example_scores.count_by_bin(
        dataset.workspace_id, [project.pk for project in projects], ranges
    )
    rows = []
    for project in projects:
        item = stats[project.pk]
        feedback, counts = item["feedback_stats"], bins.get(project.pk, {})
        cells = [_score_cell(feedback.get(key), counts.get(key), ranges.get(key)) for key in keys]
        progress = experiment_progress(project, item["trace_count"], feedback)
        is_baseline = project.pk == dataset.baseline_experiment_id
        rows.append(ExperimentRow(project, numbers[project.pk], item, cells, progress, is_baseline))
    return rows


def _ranges_of(
    feedback: Iterable[Mapping[str, Mapping[str, Any]]], keys: Sequence[str]
) -> dict[str, ScoreRange]:
    """Return the range of each key with scores: 0 to 1 if all are within it."""
    ranges: dict[str, ScoreRange] = {}
    all_feedback = list(feedback)
    for key in keys:
        scored = [item[key] for item in all_feedback if item.get(key, {}).get("avg") is not None]
        if not scored:
            continue
        low = min(0.0, *(float(item["min"]) for item in scored))
        high = max(1.0, *(float(item["max"]) for item in scored))
        ranges[key] = ScoreRange(low, high)
    return ranges


def _score_cell(
    stats: Mapping[str, Any] | None, bins: Sequence[int] | None, limits: ScoreRange | None
) -> ScoreCell:
    if not stats:
        return ScoreCell("")
    if stats["avg"] is None:
        values = stats["values"]
        if not values:
            return ScoreCell("", f"{stats['n']} without a score")
        largest = max(values, key=values.__getitem__)
        return ScoreCell(str(largest), ", ".join(f"{name}: {n}" for name, n in values.items()))
    text = format_score(stats["avg"])
    about = (
        f"mean {text} of {stats['n']}, from {format_score(stats['min'])}"
        f" to {format_score(stats['max'])}"
    )
    if not bins or limits is None:
        return ScoreCell(text, about)
    about += f"; bars from {format_score(limits.low)} to {format_score(limits.high)}"
    return ScoreCell(text, about, _bars(bins))


def _bars(bins: Sequence[int]) -> list[tuple[int, int, int]]:
    largest = max(bins)
    heights = [-(-count * _BAR_HEIGHT // largest) for count in bins]
    return [
        (number * 4, _BAR_HEIGHT - height, height)
        for number, height in zip(range(BINS), heights, strict=True)
        if height
    ]


def format_score(value: float) -> str:
    """Format a score with three significant digits, without trailing zeros."""
    if value and abs(value) < 0.0005:
        return f"{value:.1e}"
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".").replace("-", "\N{MINUS SIGN}") or "0"
