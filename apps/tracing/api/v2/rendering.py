"""JSON of runs in the v2 API: the id and the selected fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings

from apps.trace_store import Payload, RunDetail, RunRow
from apps.tracing.api import related_fields
from apps.tracing.api.downloads import signed_url
from apps.tracing.api.related_fields import RelatedFields
from apps.tracing.api.v1.rendering import app_path

Field = Callable[[RunDetail, RelatedFields], Any]

PAYLOADS = {
    "INPUTS": Payload.INPUTS,
    "OUTPUTS": Payload.OUTPUTS,
    "EXTRA": Payload.EXTRA,
    "EVENTS": Payload.EVENTS,
    "ERROR": Payload.ERROR,
    "MANIFEST": Payload.SERIALIZED,
}


def as_float(amount: Decimal | None) -> float | None:
    """Convert an amount to a JSON number, as this API version does."""
    return None if amount is None else float(amount)


def _details(name: str) -> Field:
    def read(run: RunDetail, related: RelatedFields) -> Any:
        raw = (run.row.usage.details or {}).get(name)
        if raw is None:
            return None
        is_cost = name.endswith("cost_details")
        return {"raw": {key: float(value) if is_cost else value for key, value in raw.items()}}

    return read


def _share_url(row: RunRow, related: RelatedFields) -> str | None:
    token = related.share_token(row)
    return None if token is None else f"{settings.BASE_URL}/public/{token}/r"


FIELDS: dict[str, Field] = {
    "ID": lambda run, _: run.row.id,
    "NAME": lambda run, _: run.row.name,
    "RUN_TYPE": lambda run, _: run.row.run_type.upper(),
    "STATUS": lambda run, _: run.row.status.upper(),
    "START_TIME": lambda run, _: run.row.start_time,
    "END_TIME": lambda run, _: run.row.end_time,
    "LATENCY_SECONDS": lambda run, _: run.row.latency and run.row.latency.total_seconds(),
    "FIRST_TOKEN_TIME": lambda run, _: run.row.first_token_time,
    "ERROR": lambda run, _: run.embedded(Payload.ERROR),
    "ERROR_PREVIEW": lambda run, _: run.row.error_preview,
    "EXTRA": lambda run, _: run.embedded(Payload.EXTRA),
    "METADATA": lambda run, _: run.row.metadata_json,
    "EVENTS": lambda run, _: run.embedded(Payload.EVENTS),
    "INPUTS": lambda run, _: run.embedded(Payload.INPUTS),
    "INPUTS_PREVIEW": lambda run, _: run.row.inputs_preview,
    "OUTPUTS": lambda run, _: run.embedded(Payload.OUTPUTS),
    "OUTPUTS_PREVIEW": lambda run, _: run.row.outputs_preview,
    "MANIFEST": lambda run, _: run.embedded(Payload.SERIALIZED),
    "PARENT_RUN_IDS": lambda run, _: run.row.parent_run_ids,
    "PROJECT_ID": lambda run, _: run.row.project_id,
    "TRACE_ID": lambda run, _: run.row.trace_id,
    "THREAD_ID": lambda run, _: run.row.thread_key,
    "DOTTED_ORDER": lambda run, _: run.row.dotted_order,
    "IS_ROOT": lambda run, _: run.row.is_root,
    "REFERENCE_EXAMPLE_ID": lambda run, _: run.row.reference_example_id,
    "REFERENCE_DATASET_ID": lambda run, related: (
        related.datasets.get(run.row.project_id) if run.row.reference_example_id else None
    ),
    "TOTAL_TOKENS": lambda run, _: run.row.usage.total_tokens or 0,
    "PROMPT_TOKENS": lambda run, _: run.row.usage.prompt_tokens or 0,
    "COMPLETION_TOKENS": lambda run, _: run.row.usage.completion_tokens or 0,
    "TOTAL_COST": lambda run, _: as_float(run.row.usage.total_cost),
    "PROMPT_COST": lambda run, _: as_float(run.row.usage.prompt_cost),
    "COMPLETION_COST": lambda run, _: as_float(run.row.usage.completion_cost),
    "PROMPT_TOKEN_DETAILS": _details("prompt_token_details"),
    "COMPLETION_TOKEN_DETAILS": _details("completion_token_details"),
    "PROMPT_COST_DETAILS": _details("prompt_cost_details"),
    "COMPLETION_COST_DETAILS": _details("completion_cost_details"),
    "PRICE_MODEL_ID": lambda run, _: run.row.price_model_id,
    "TAGS": lambda run, _: list(run.row.tags),
    "APP_PATH": lambda run, _: app_path(run.row),
    "ATTACHMENTS": lambda run, _: {file.name: signed_url(file) for file in run.row.attachments},
    "IS_IN_DATASET": lambda run, _: run.row.reference_example_id is not None,
    "SHARE_URL": lambda run, related: _share_url(run.row, related),
    "FEEDBACK_STATS": lambda run, related: related.feedback.get(run.row.id, {}),
}
UNKNOWN_FIELDS = ("THREAD_EVALUATION_TIME", "LAST_QUEUED_AT", "LS_USER_ID")
"""Fields that clients may select but that runs do not have."""
SELECTABLE = (*FIELDS, *UNKNOWN_FIELDS)
_RELATED_FIELDS = {"SHARE_URL", "FEEDBACK_STATS", "REFERENCE_DATASET_ID"}


def payloads_for(selected: Collection[str]) -> set[Payload]:
    """Return the payloads that these fields need."""
    return {PAYLOADS[name] for name in selected if name in PAYLOADS}


def runs_json(
    workspace_id: UUID, runs: Sequence[RunDetail], selected: Collection[str]
) -> list[dict[str, Any]]:
    """Return the id and the selected fields of each run."""
    names = ["ID", *(name for name in FIELDS if name in selected and name != "ID")]
    rows = [run.row for run in runs]
    related = (
        related_fields.load_related_fields(workspace_id, rows)
        if _RELATED_FIELDS & set(selected)
        else RelatedFields()
    )
    return [{name.lower(): FIELDS[name](run, related) for name in names} for run in runs]
