"""The dashboard that every project has, as data: charts of the wire, ready to be copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

Chart = dict[str, Any]

ROOTS = "eq(is_root, true)"
MODEL_CALLS = 'eq(run_type, "llm")'
TOOLS = 'eq(run_type, "tool")'
BELOW_ROOT = "eq(execution_order, 2)"
_TOP = 5
_BY_NAME = {"attribute": "name", "max_groups": _TOP}


def _series(name: str, metric: str, where: str | None = None, **more: Any) -> dict[str, Any]:
    filters = {"filter": where} if where else {}
    return {"name": name, "metric": metric, "filters": filters, **more}


def _latencies(where: str) -> list[dict[str, Any]]:
    return [
        {
            "name": f"p{p}",
            "metric_definition": {
                "type": "percentile",
                "field": "latency_seconds",
                "params": {"p": p},
                "filter": where,
            },
        }
        for p in (50, 95, 99)
    ]


def _per_trace(name: str, field: str) -> dict[str, Any]:
    return {
        "name": name,
        "metric_definition": {"type": "avg", "field": field, "filter": ROOTS},
    }


def _statuses(where: str) -> list[dict[str, Any]]:
    return [
        _series("Success", "run_count", f'and({where}, eq(status, "success"))'),
        _series("Error", "run_count", f'and({where}, eq(status, "error"))'),
        _series("Pending", "run_count", f'and({where}, eq(status, "pending"))'),
    ]


def _chart(title: str, series: Iterable[Mapping[str, Any]], kind: str = "line") -> Chart:
    return {"title": title, "chart_type": kind, "series": [dict(one) for one in series]}


SUB_SECTIONS: tuple[tuple[str, tuple[Chart, ...]], ...] = (
    (
        "Traces",
        (
            _chart("Trace count", _statuses(ROOTS), "bar"),
            _chart("Trace latency", _latencies(ROOTS)),
            _chart("Trace error rate", [_series("Error rate", "error_rate", ROOTS)]),
        ),
    ),
    (
        "LLM Calls",
        (
            _chart("LLM call count", _statuses(MODEL_CALLS), "bar"),
            _chart("LLM latency", _latencies(MODEL_CALLS)),
            _chart(
                "Time to first token",
                [
                    _series("p50", "first_token_p50", MODEL_CALLS),
                    _series("p99", "first_token_p99", MODEL_CALLS),
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
                    _series("Input", "prompt_cost", ROOTS),
                    _series("Output", "completion_cost", ROOTS),
                ],
                "bar",
            ),
            _chart("Cost per trace", [_per_trace("Cost", "total_cost")]),
            _chart(
                "Total tokens",
                [
                    _series("Input", "prompt_tokens", ROOTS),
                    _series("Output", "completion_tokens", ROOTS),
                ],
                "bar",
            ),
            _chart(
                "Tokens per trace",
                [
                    _per_trace("Input", "prompt_tokens"),
                    _per_trace("Output", "completion_tokens"),
                ],
            ),
        ),
    ),
    (
        "Tools",
        (
            _chart("Tool count", [_series("Runs", "run_count", TOOLS, group_by=_BY_NAME)]),
            _chart("Tool latency", [_series("p50", "latency_p50", TOOLS, group_by=_BY_NAME)]),
            _chart("Tool error rate", [_series("Errors", "error_rate", TOOLS, group_by=_BY_NAME)]),
        ),
    ),
    (
        "Run Types",
        (
            _chart("Run count", [_series("Runs", "run_count", BELOW_ROOT, group_by=_BY_NAME)]),
            _chart("Run latency", [_series("p50", "latency_p50", BELOW_ROOT, group_by=_BY_NAME)]),
            _chart(
                "Run error rate", [_series("Errors", "error_rate", BELOW_ROOT, group_by=_BY_NAME)]
            ),
        ),
    ),
)
FEEDBACK = "Feedback Scores"


def sub_sections(
    project_id: UUID, feedback_keys: Mapping[str, bool]
) -> list[tuple[UUID, str, list[Chart]]]:
    """Id, title and charts of each, for the project. Of feedback keys, whether they have scores."""
    found = []
    for title, charts in (*SUB_SECTIONS, (FEEDBACK, _of_feedback(feedback_keys))):
        section_id = uuid5(project_id, title)
        made = [_placed(chart, project_id, section_id, at) for at, chart in enumerate(charts)]
        found.append((section_id, title, made))
    return found


def _of_feedback(keys: Mapping[str, bool]) -> tuple[Chart, ...]:
    return tuple(
        _chart(
            key,
            [
                _series(
                    key, "feedback_score_avg" if is_scored else "feedback_values", feedback_key=key
                )
            ],
        )
        for key, is_scored in list(keys.items())[:_TOP]
    )


def _placed(chart: Chart, project_id: UUID, section_id: UUID, at: int) -> Chart:
    """The chart with ids of its own, the same at every call, over the project's runs."""
    chart_id = uuid5(section_id, chart["title"])
    return {
        **chart,
        "id": chart_id,
        "description": None,
        "index": at,
        "section_id": section_id,
        "metadata": None,
        "common_filters": {"session": [str(project_id)]},
        "series": [{**one, "id": str(uuid5(chart_id, one["name"]))} for one in chart["series"]],
    }
