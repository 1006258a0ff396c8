"""JSON of threads and their turns in the v2 API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.trace_store import RunDetail
from apps.trace_store.aggregation import ThreadSummary
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.api.v2.rendering import as_float

TURN_NUMBER = "TURN_NUMBER"
MetricFields = Mapping[str, tuple[str, Callable[[RunMetrics], Any]]]


def _measure(measure: Measure) -> Callable[[RunMetrics], Any]:
    return lambda metrics: _json_value(metrics.total(measure))


def _details(kind: str) -> Callable[[RunMetrics], Any]:
    return lambda metrics: {"raw": _detail_amounts(kind, metrics.details.get(kind, {}))}


def _plain_details(kind: str) -> Callable[[RunMetrics], Any]:
    return lambda metrics: _detail_amounts(kind, metrics.details.get(kind, {}))


METRIC_FIELDS: MetricFields = {
    "LATENCY_P50": ("latency_p50_seconds", lambda metrics: metrics.quantile(Measure.LATENCY, 0.5)),
    "LATENCY_P99": ("latency_p99_seconds", lambda metrics: metrics.quantile(Measure.LATENCY, 0.99)),
    "PROMPT_TOKENS": ("prompt_tokens", _measure(Measure.PROMPT_TOKENS)),
    "PROMPT_COST": ("prompt_cost", _measure(Measure.PROMPT_COST)),
    "COMPLETION_TOKENS": ("completion_tokens", _measure(Measure.COMPLETION_TOKENS)),
    "COMPLETION_COST": ("completion_cost", _measure(Measure.COMPLETION_COST)),
    "TOTAL_TOKENS": ("total_tokens", _measure(Measure.TOTAL_TOKENS)),
    "TOTAL_COST": ("total_cost", _measure(Measure.TOTAL_COST)),
    "PROMPT_TOKEN_DETAILS": ("prompt_token_details", _details("prompt_token_details")),
    "COMPLETION_TOKEN_DETAILS": ("completion_token_details", _details("completion_token_details")),
    "PROMPT_COST_DETAILS": ("prompt_cost_details", _details("prompt_cost_details")),
    "COMPLETION_COST_DETAILS": ("completion_cost_details", _details("completion_cost_details")),
}
"""Metrics of one or several threads, by their response key."""
THREAD_FIELDS = ("TURNS", "FIRST_START_TIME", "LAST_START_TIME", "LAST_END_TIME", "FEEDBACK_STATS")
THREADS_METRICS: MetricFields = {
    **METRIC_FIELDS,
    **{
        name: (name.lower(), _plain_details(name.lower()))
        for name in METRIC_FIELDS
        if name.endswith("_DETAILS")
    },
    "TRACE_COUNT": ("trace_count", lambda metrics: metrics.runs),
    "ERROR_RATE": ("error_rate", lambda metrics: metrics.error_rate),
    "STREAMING_RATE": ("streaming_rate", lambda metrics: metrics.streaming_rate),
    "MEDIAN_TOKENS": ("median_tokens", lambda metrics: metrics.quantile(Measure.TOTAL_TOKENS, 0.5)),
    "FIRST_TOKEN_P50": (
        "first_token_p50_seconds",
        lambda metrics: metrics.quantile(Measure.FIRST_TOKEN, 0.5),
    ),
    "FIRST_TOKEN_P99": (
        "first_token_p99_seconds",
        lambda metrics: metrics.quantile(Measure.FIRST_TOKEN, 0.99),
    ),
}


def thread_json(row: ThreadSummary) -> dict[str, Any]:
    metrics = row.metrics
    return {
        "thread_id": row.thread_key,
        "trace_id": row.last_trace_id,
        "count": metrics.runs,
        "num_errored_turns": metrics.errors,
        "start_time": row.last_start,
        "min_start_time": row.first_start,
        "max_start_time": row.last_start,
        "first_trace_id": row.first_trace_id,
        "last_trace_id": row.last_trace_id,
        "first_inputs": row.first_inputs,
        "last_outputs": row.last_outputs,
        "last_error": row.last_error,
        "latency_p50": metrics.quantile(Measure.LATENCY, 0.5),
        "latency_p99": metrics.quantile(Measure.LATENCY, 0.99),
        "total_tokens": metrics.total(Measure.TOTAL_TOKENS),
        "total_cost": _json_value(metrics.total(Measure.TOTAL_COST)),
        "total_token_details": _all_details(metrics, "token_details"),
        "total_cost_details": _all_details(metrics, "cost_details"),
    }


def turn_json(
    run: RunDetail, rendered: dict[str, Any], selected: Sequence[str], numbers: dict[UUID, int]
) -> dict[str, Any]:
    turn = {name: value for name, value in rendered.items() if name != "id"}
    turn["trace_id"] = run.row.trace_id
    if "LATENCY" in selected:
        turn["latency"] = run.row.latency and run.row.latency.total_seconds()
    if TURN_NUMBER in selected:
        turn["turn_number"] = numbers.get(run.row.trace_id)
    return turn


def metrics_json(
    metrics: RunMetrics,
    selected: Sequence[str],
    fields: MetricFields,
) -> dict[str, Any]:
    values = [fields[name] for name in fields if name in selected]
    return {name: _json_value(value(metrics)) for name, value in values}


def _all_details(metrics: RunMetrics, kind: str) -> dict[str, Any]:
    """Return the sums of a kind of details over prompts and completions."""
    amounts: dict[str, Decimal] = {}
    for side in ("prompt", "completion"):
        for name, amount in metrics.details.get(f"{side}_{kind}", {}).items():
            amounts[name] = amounts.get(name, Decimal(0)) + amount
    return _detail_amounts(kind, amounts)


def _detail_amounts(kind: str, amounts: Mapping[str, Decimal]) -> dict[str, Any]:
    is_cost = kind.endswith("cost_details")
    return {name: float(amount) if is_cost else int(amount) for name, amount in amounts.items()}


def _json_value(value: Any) -> Any:
    return as_float(value) if isinstance(value, Decimal) else value
