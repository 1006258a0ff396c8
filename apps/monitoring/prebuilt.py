"""The prebuilt dashboard of a project, as charts in the JSON format of the API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from apps.web_ui.badges import BADGES, RUN_STATUSES

ChartJSON = dict[str, Any]

ROOTS = "eq(is_root, true)"
MODEL_CALLS = 'eq(run_type, "llm")'
TOOLS = 'eq(run_type, "tool")'
BELOW_ROOT = "eq(execution_order, 2)"
_MAX_GROUPS = 5
MAX_FEEDBACK_KEYS = 20
_BY_NAME = {"attribute": "name", "max_groups": _MAX_GROUPS}


def _named_series(
    name: str, metric: str, run_filter: str | None = None, **fields: Any
) -> dict[str, Any]:
    filters = {"filter": run_filter} if run_filter else {}
    return {"name": name, "metric": metric, "filters": filters, **fields}


def _latency_series(run_filter: str) -> list[dict[str, Any]]:
    return [
        {
            "name": f"p{p}",
            "metric_definition": {
                "type": "percentile",
                "field": "latency_seconds",
                "params": {"p": p},
                "filter": run_filter,
            },
        }
        for p in (50, 95, 99)
    ]


def _average_per_trace(name: str, field: str) -> dict[str, Any]:
    return {
        "name": name,
        "metric_definition": {"type": "avg", "field": field, "filter": ROOTS},
    }


def _status_series(run_filter: str) -> list[dict[str, Any]]:
    return [
        _named_series(
            BADGES[status].label, "run_count", f'and({run_filter}, eq(status, "{status}"))'
        )
        for status in RUN_STATUSES
    ]


def _build_chart(title: str, series: Iterable[Mapping[str, Any]], kind: str = "line") -> ChartJSON:
    return {"title": title, "chart_type": kind, "series": [dict(spec) for spec in series]}


SUB_SECTIONS: tuple[tuple[str, tuple[ChartJSON, ...]], ...] = (
    (
        "Traces",
        (
            _build_chart("Trace count", _status_series(ROOTS), "bar"),
            _build_chart("Trace latency", _latency_series(ROOTS)),
            _build_chart("Trace error rate", [_named_series("Error rate", "error_rate", ROOTS)]),
        ),
    ),
    (
        "LLM Calls",
        (
            _build_chart("LLM call count", _status_series(MODEL_CALLS), "bar"),
            _build_chart("LLM latency", _latency_series(MODEL_CALLS)),
            _build_chart(
                "Time to first token",
                [
                    _named_series("p50", "first_token_p50", MODEL_CALLS),
                    _named_series("p99", "first_token_p99", MODEL_CALLS),
                ],
            ),
        ),
    ),
    (
        "Cost & Tokens",
        (
            _build_chart(
                "Total cost",
                [
                    _named_series("Input", "prompt_cost", ROOTS),
                    _named_series("Output", "completion_cost", ROOTS),
                ],
                "bar",
            ),
            _build_chart("Cost per trace", [_average_per_trace("Cost", "total_cost")]),
            _build_chart(
                "Total tokens",
                [
                    _named_series("Input", "prompt_tokens", ROOTS),
                    _named_series("Output", "completion_tokens", ROOTS),
                ],
                "bar",
            ),
            _build_chart(
                "Tokens per trace",
                [
                    _average_per_trace("Input", "prompt_tokens"),
                    _average_per_trace("Output", "completion_tokens"),
                ],
            ),
        ),
    ),
    (
        "Tools",
        (
            _build_chart(
                "Tool count", [_named_series("Runs", "run_count", TOOLS, group_by=_BY_NAME)]
            ),
            _build_chart(
                "Tool latency", [_named_series("p50", "latency_p50", TOOLS, group_by=_BY_NAME)]
            ),
            _build_chart(
                "Tool error rate", [_named_series("Errors", "error_rate", TOOLS, group_by=_BY_NAME)]
            ),
        ),
    ),
    (
        "Run Types",
        (
            _build_chart(
                "Run count", [_named_series("Runs", "run_count", BELOW_ROOT, group_by=_BY_NAME)]
            ),
            _build_chart(
                "Run latency", [_named_series("p50", "latency_p50", BELOW_ROOT, group_by=_BY_NAME)]
            ),
            _build_chart(
                "Run error rate",
                [_named_series("Errors", "error_rate", BELOW_ROOT, group_by=_BY_NAME)],
            ),
        ),
    ),
)
FEEDBACK_TITLE = "Feedback Scores"
_RUNS_BY_TITLE = {"Trace count": ROOTS, "LLM call count": MODEL_CALLS}
"""The runs of the charts whose lines are the statuses."""


@dataclass(frozen=True)
class SubSection:
    id: UUID
    title: str
    charts: Sequence[ChartJSON]
    note: str = ""
    """The data that the charts omit."""


def build_sub_sections(
    project_id: UUID,
    feedback_keys: Mapping[str, bool],
    group_by: Mapping[str, Any] | None = None,
) -> list[SubSection]:
    """Return the sub-sections, grouped by `group_by` if it is set.

    `feedback_keys` maps each key to whether its feedback has scores, most frequent first.
    """
    sections = []
    for title, base_charts in (
        *SUB_SECTIONS,
        (FEEDBACK_TITLE, _build_feedback_charts(feedback_keys)),
    ):
        section_id = uuid5(project_id, title)
        charts = [part for chart in base_charts for part in _group_chart(chart, group_by)]
        charts_with_ids = [
            _add_ids(chart, project_id, section_id, index) for index, chart in enumerate(charts)
        ]
        note = _build_section_note(title, len(feedback_keys), is_grouped=group_by is not None)
        sections.append(SubSection(section_id, title, charts_with_ids, note))
    return sections


def _group_chart(chart: ChartJSON, group_by: Mapping[str, Any] | None) -> Iterator[ChartJSON]:
    """Yield the chart or, with `group_by`, one for each series, whose lines are the groups.

    Charts by name stay as they are, and feedback cannot be grouped. The lines of statuses add up
    to all runs, so that one grouped line replaces them.
    """
    if group_by is None:
        yield chart
        return
    all_series = chart["series"]
    if chart["title"] in _RUNS_BY_TITLE:
        all_series = [_named_series("Runs", "run_count", _RUNS_BY_TITLE[chart["title"]])]
    if any("group_by" in series or "feedback_key" in series for series in all_series):
        yield chart
        return
    for series in all_series:
        title = chart["title"]
        if len(all_series) > 1:
            title = f"{title}, {series['name']}"
        yield {**chart, "title": title, "series": [{**series, "group_by": dict(group_by)}]}


def _build_section_note(title: str, key_count: int, *, is_grouped: bool) -> str:
    if title == FEEDBACK_TITLE:
        notes = []
        if key_count > MAX_FEEDBACK_KEYS:
            notes.append(f"The {MAX_FEEDBACK_KEYS} most frequent of {key_count} keys.")
        if is_grouped:
            notes.append("Feedback is not grouped.")
        return " ".join(notes)
    is_by_name = title in {"Tools", "Run Types"}
    return "Always grouped by name." if is_grouped and is_by_name else ""


def _build_feedback_charts(keys: Mapping[str, bool]) -> tuple[ChartJSON, ...]:
    return tuple(
        _build_chart(
            key,
            [
                _named_series(
                    key, "feedback_score_avg" if is_scored else "feedback_values", feedback_key=key
                )
            ],
        )
        for key, is_scored in list(keys.items())[:MAX_FEEDBACK_KEYS]
    )


def _add_ids(chart: ChartJSON, project_id: UUID, section_id: UUID, index: int) -> ChartJSON:
    """Return the chart of the project's runs, with ids that do not change between calls."""
    chart_id = uuid5(section_id, chart["title"])
    return {
        **chart,
        "id": chart_id,
        "description": None,
        "index": index,
        "section_id": section_id,
        "metadata": None,
        "common_filters": {"session": [str(project_id)]},
        "series": [
            {**series, "id": str(uuid5(chart_id, series["name"]))} for series in chart["series"]
        ],
    }
