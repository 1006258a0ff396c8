"""The prebuilt dashboard of a project, as charts in the JSON format of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

Chart = dict[str, Any]

ROOTS = "eq(is_root, true)"
MODEL_CALLS = 'eq(run_type, "llm")'
TOOLS = 'eq(run_type, "tool")'
BELOW_ROOT = "eq(execution_order, 2)"
_MAX_GROUPS = 5
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
        _named_series(name, "run_count", f'and({run_filter}, eq(status, "{name.lower()}"))')
        for name in ("Success", "Error", "Pending")
    ]


def _chart(title: str, series: Iterable[Mapping[str, Any]], kind: str = "line") -> Chart:
    return {"title": title, "chart_type": kind, "series": [dict(spec) for spec in series]}


SUB_SECTIONS: tuple[tuple[str, tuple[Chart, ...]], ...] = (
    (
        "Traces",
        (
            _chart("Trace count", _status_series(ROOTS), "bar"),
            _chart("Trace latency", _latency_series(ROOTS)),
            _chart("Trace error rate", [_named_series("Error rate", "error_rate", ROOTS)]),
        ),
    ),
    (
        "LLM Calls",
        (
            _chart("LLM call count", _status_series(MODEL_CALLS), "bar"),
            _chart("LLM latency", _latency_series(MODEL_CALLS)),
            _chart(
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
            _chart(
                "Total cost",
                [
                    _named_series("Input", "prompt_cost", ROOTS),
                    _named_series("Output", "completion_cost", ROOTS),
                ],
                "bar",
            ),
            _chart("Cost per trace", [_average_per_trace("Cost", "total_cost")]),
            _chart(
                "Total tokens",
                [
                    _named_series("Input", "prompt_tokens", ROOTS),
                    _named_series("Output", "completion_tokens", ROOTS),
                ],
                "bar",
            ),
            _chart(
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
            _chart("Tool count", [_named_series("Runs", "run_count", TOOLS, group_by=_BY_NAME)]),
            _chart("Tool latency", [_named_series("p50", "latency_p50", TOOLS, group_by=_BY_NAME)]),
            _chart(
                "Tool error rate", [_named_series("Errors", "error_rate", TOOLS, group_by=_BY_NAME)]
            ),
        ),
    ),
    (
        "Run Types",
        (
            _chart(
                "Run count", [_named_series("Runs", "run_count", BELOW_ROOT, group_by=_BY_NAME)]
            ),
            _chart(
                "Run latency", [_named_series("p50", "latency_p50", BELOW_ROOT, group_by=_BY_NAME)]
            ),
            _chart(
                "Run error rate",
                [_named_series("Errors", "error_rate", BELOW_ROOT, group_by=_BY_NAME)],
            ),
        ),
    ),
)
FEEDBACK_TITLE = "Feedback Scores"


def build_sub_sections(
    project_id: UUID, feedback_keys: Mapping[str, bool]
) -> list[tuple[UUID, str, list[Chart]]]:
    """Return id, title and charts of each sub-section.

    `feedback_keys` maps each key to whether its feedback has scores.
    """
    sections = []
    for title, charts in (*SUB_SECTIONS, (FEEDBACK_TITLE, _feedback_charts(feedback_keys))):
        section_id = uuid5(project_id, title)
        charts_with_ids = [
            _with_ids(chart, project_id, section_id, index) for index, chart in enumerate(charts)
        ]
        sections.append((section_id, title, charts_with_ids))
    return sections


def _feedback_charts(keys: Mapping[str, bool]) -> tuple[Chart, ...]:
    return tuple(
        _chart(
            key,
            [
                _named_series(
                    key, "feedback_score_avg" if is_scored else "feedback_values", feedback_key=key
                )
            ],
        )
        for key, is_scored in list(keys.items())[:_MAX_GROUPS]
    )


def _with_ids(chart: Chart, project_id: UUID, section_id: UUID, index: int) -> Chart:
    """Return the chart over the project's runs, with ids that are the same at each call."""
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
