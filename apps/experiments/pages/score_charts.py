"""Charts of a dataset's experiments in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from apps.datasets.models import Dataset
from apps.experiments.pages.experiment_list import experiments_of, keys_of, load_stats
from apps.tracing.models import Project
from apps.tracing.services.projects import experiment_numbers
from apps.web_ui.charts import Line, LineChart, line_style

MAX_EXPERIMENTS = 50
MAX_CHARTED_KEYS = 9


@dataclass(frozen=True)
class ScoreCharts:
    charts: Sequence[LineChart]
    count: int
    """The number of experiments that the charts show."""
    is_cut: bool
    """Whether the dataset has older experiments."""
    hidden_keys: int


def load_charts(dataset: Dataset) -> ScoreCharts:
    """Chart the mean of each feedback key, latency, error rate and cost by experiment."""
    newest = list(experiments_of(dataset)[: MAX_EXPERIMENTS + 1])
    is_cut = len(newest) > MAX_EXPERIMENTS
    projects = newest[:MAX_EXPERIMENTS][::-1]
    stats = load_stats(dataset, projects)
    keys = [key for key in keys_of(stats.values()) if _has_scores(stats, key)]
    charts = list(_build_charts(dataset, projects, stats, keys[:MAX_CHARTED_KEYS]))
    return ScoreCharts(charts, len(projects), is_cut, max(0, len(keys) - MAX_CHARTED_KEYS))


def _has_scores(stats: Mapping[UUID, Mapping[str, Any]], key: str) -> bool:
    return any(_mean(item, key) is not None for item in stats.values())


def _mean(stats: Mapping[str, Any], key: str) -> float | None:
    mean = (stats["feedback_stats"].get(key) or {}).get("avg")
    return None if mean is None else float(mean)


def _build_charts(
    dataset: Dataset,
    projects: Sequence[Project],
    stats: Mapping[UUID, Mapping[str, Any]],
    keys: Sequence[str],
) -> Iterator[LineChart]:
    numbers = experiment_numbers(dataset.workspace_id, projects)
    labels = [f"#{numbers[project.pk]} {project.name}" for project in projects]
    compare = reverse("dataset-experiments-compare", args=[dataset.workspace_id, dataset.pk])
    links = [f"{compare}?{urlencode({'e': str(project.pk)})}" for project in projects]
    rows = [stats[project.pk] for project in projects]
    lines: list[tuple[str, str, list[float | None]]] = [
        (key, "score", [_mean(item, key) for item in rows]) for key in keys
    ]
    lines += [
        ("Latency p50", "s", [item["latency_p50"] for item in rows]),
        ("Error rate", "share", [item["error_rate"] for item in rows]),
        ("Cost", "usd", [_cost(item) for item in rows]),
    ]
    for index, (title, unit, values) in enumerate(lines):
        if all(value is None for value in values):
            continue
        hue, _ = line_style(index)
        yield LineChart(
            id=f"experiment-chart-{index}",
            title=title,
            unit=unit,
            kind="line",
            edges=(),
            lines=[Line(title, hue, values)],
            labels=labels,
            links=links,
        )


def _cost(stats: Mapping[str, Any]) -> float | None:
    return None if stats["total_cost"] is None else float(stats["total_cost"])
