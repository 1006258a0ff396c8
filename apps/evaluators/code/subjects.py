"""What a function sees: a run and its example as JSON."""

from __future__ import annotations

from typing import Any

from apps.core.json import dumps
from apps.datasets.api.rendering import EXAMPLE_FIELDS, example_json
from apps.datasets.models import ExampleRevision
from apps.evaluators.errors import BadEvaluator
from apps.trace_store import Payload, RunDetail
from apps.tracing.api.v1.rendering import run_json

PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR, Payload.EXTRA, Payload.EVENTS)
MAX_SUBJECT_BYTES = 16 * 1024 * 1024
RUN_FIELDS = (
    *("id", "name", "run_type", "start_time", "end_time", "status", "tags", "trace_id"),
    *("dotted_order", "parent_run_id", "session_id", "reference_example_id", "thread_id"),
    *("first_token_time", "prompt_tokens", "completion_tokens", "total_tokens", "prompt_cost"),
    *("completion_cost", "total_cost", *map(str, PAYLOADS)),
)
"""As the API has them; those that point to the platform are left out."""


def build_subject(run: RunDetail, example: ExampleRevision | None) -> bytes:
    """Return JSON with `run` and `example`, null without one. Raises `BadEvaluator`."""
    fields = run_json(run, PAYLOADS)
    return _dump({name: fields[name] for name in RUN_FIELDS} | _more_fields(run), example)


def _more_fields(run: RunDetail) -> dict[str, Any]:
    latency = run.row.latency
    return {
        "metadata": run.row.metadata,
        "latency": None if latency is None else latency.total_seconds(),
    }


def build_example_subject(example: ExampleRevision) -> bytes:
    """The example as if a run had returned its reference output. Raises `BadEvaluator`."""
    run: dict[str, Any] = dict.fromkeys((*RUN_FIELDS, "latency"))
    run |= {"inputs": example.inputs, "outputs": example.outputs, "metadata": {}, "tags": []}
    return _dump(run, example)


def _dump(run: dict[str, Any], example: ExampleRevision | None) -> bytes:
    shown = None if example is None else example_json(example, "", _EXAMPLE_FIELDS)
    content = dumps({"run": run, "example": shown})
    if len(content) > MAX_SUBJECT_BYTES:
        raise BadEvaluator(f"The run and its example have more than {MAX_SUBJECT_BYTES:,} bytes.")
    return content


_EXAMPLE_FIELDS = frozenset(EXAMPLE_FIELDS) - {"name", "attachment_urls"}
