"""Data of the run page: payloads, usage, events, feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.core import errors
from apps.core.json import Fragment, dumps_text
from apps.trace_store import Payload, RunDetail, RunRow, Usage, run_store
from apps.trace_store.token_estimates import TokenEstimate, estimate_tokens
from apps.tracing.hooks import DeploymentLink, PromptLink, find_deployment, find_prompt
from apps.tracing.models import Project
from apps.tracing.offered_tools import parse_tools
from apps.tracing.pages.error_reports import ErrorReport, build_error
from apps.tracing.pages.payload_views import PayloadView, build_payload_view
from apps.tracing.pages.run_feedback import RunFeedback, load_feedback

MAX_EVENTS = 500
_PARAMETERS = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "stop", "seed")


@dataclass(frozen=True)
class UsageLine:
    """A row of the usage breakdown: kind, tokens, cost."""

    name: str
    tokens: int | None
    cost: Decimal | None
    is_part: bool = False


@dataclass(frozen=True)
class EventView:
    name: str
    time: str
    offset: timedelta | None
    rest: str


@dataclass(frozen=True)
class RunPageData:
    """All data of the run page."""

    row: RunRow
    inputs: PayloadView
    outputs: PayloadView
    error: str | None
    metadata: list[tuple[str, str]]
    runtime: list[tuple[str, str]]
    parameters: list[tuple[str, str]]
    events: list[EventView]
    event_count: int
    feedback: list[RunFeedback]
    estimated_tokens: TokenEstimate | None
    """Of a model call that reports no tokens."""
    prompt: PromptLink | None = None
    """The prompt commit that the run used; not on public pages."""
    deployment: DeploymentLink | None = None
    """The deployment that executed the run; not on public pages."""

    @property
    def first_token(self) -> timedelta | None:
        token = self.row.first_token_time
        return token - self.row.start_time if token else None

    @property
    def error_report(self) -> ErrorReport | None:
        return build_error(self.error) if self.error else None

    @property
    def payloads(self) -> tuple[PayloadView, PayloadView]:
        return self.inputs, self.outputs

    @property
    def usage(self) -> list[UsageLine]:
        return build_usage_lines(self.row.usage)

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.metadata)

    @property
    def revision(self) -> str:
        return self.facts.get("revision_id", "")


_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR, Payload.EXTRA, Payload.EVENTS)


def load_run(project: Project, run_id: UUID) -> RunPageData:
    """Load a run with its payloads; raises 404 if it is not in the project."""
    detail = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=_PAYLOADS)
    if detail is None:
        raise errors.NotFound
    view = build_view(detail, load_feedback(project, run_id))
    metadata = detail.row.metadata or {}
    return replace(
        view,
        prompt=find_prompt(project.workspace_id, metadata),
        deployment=find_deployment(project.workspace_id, metadata),
    )


def build_view(detail: RunDetail, feedback: Sequence[RunFeedback] = ()) -> RunPageData:
    extra = detail.value(Payload.EXTRA)
    extra = extra if isinstance(extra, dict) else {}
    events = detail.value(Payload.EVENTS)
    events = events if isinstance(events, list) else []
    metadata = _sorted_pairs(detail.row.metadata)
    return RunPageData(
        row=detail.row,
        inputs=build_payload_view(
            detail, Payload.INPUTS, parse_tools(extra.get("invocation_params"))
        ),
        outputs=build_payload_view(detail, Payload.OUTPUTS),
        error=_error_text(detail),
        metadata=metadata,
        runtime=_sorted_pairs(extra.get("runtime")),
        parameters=_model_parameters(extra.get("invocation_params"), dict(metadata)),
        events=[_build_event(e, detail.row.start_time) for e in events[:MAX_EVENTS]],
        event_count=len(events),
        feedback=list(feedback),
        estimated_tokens=estimate_tokens(detail),
    )


def load_payload(project: Project, run_id: UUID, payload: Payload) -> Fragment:
    """Return a payload as recorded JSON; raises 404 if absent."""
    detail = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=(payload,))
    body = detail.json(payload) if detail else None
    if body is None:
        raise errors.NotFound
    return body


def build_usage_lines(usage: Usage) -> list[UsageLine]:
    """Return the rows for prompt, completion and their details that were recorded."""
    lines = []
    details = usage.details or {}
    for name, tokens, cost, key in (
        ("Prompt", usage.prompt_tokens, usage.prompt_cost, "prompt"),
        ("Completion", usage.completion_tokens, usage.completion_cost, "completion"),
    ):
        if tokens is None and cost is None:
            continue
        lines.append(UsageLine(name, tokens, cost))
        token_details = _parse_details(details.get(f"{key}_token_details"))
        cost_details = _parse_details(details.get(f"{key}_cost_details"))
        for part in sorted(token_details.keys() | cost_details.keys()):
            count = token_details.get(part)
            tokens_of_part = None if count is None else int(count)
            lines.append(
                UsageLine(
                    part.replace("_", " "), tokens_of_part, cost_details.get(part), is_part=True
                )
            )
    if lines:
        lines.append(UsageLine("Total", usage.total_tokens, usage.total_cost))
    return lines


def _parse_details(details: Mapping[str, Any] | None) -> dict[str, Decimal]:
    result = {}
    for name, value in (details or {}).items():
        if isinstance(value, (int, float, str, Decimal)) and not isinstance(value, bool):
            try:
                number = Decimal(str(value))
            except ArithmeticError:
                continue
            if number.is_finite() and number:
                result[str(name)] = number
    return result


def _build_event(event: Any, start: datetime) -> EventView:
    if not isinstance(event, dict):
        return EventView("event", "", None, dumps_text(event)[:500])
    attributes = {key: value for key, value in event.items() if key not in ("name", "time")}
    time = str(event.get("time") or "")
    try:
        recorded_at: datetime | None = datetime.fromisoformat(time)
    except ValueError:
        recorded_at = None
    offset = None
    if recorded_at is not None:
        offset = recorded_at.replace(tzinfo=recorded_at.tzinfo or start.tzinfo) - start
    text = dumps_text(attributes)[:500] if attributes else ""
    return EventView(str(event.get("name") or "event"), time, offset, text)


def _model_parameters(invocation: Any, metadata: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the model parameters from the invocation, or else from the metadata."""
    values = invocation if isinstance(invocation, dict) else {}
    result = {}
    for name in _PARAMETERS:
        value = values.get(name, metadata.get(f"ls_{name}"))
        if value is not None:
            result[name.replace("_", " ")] = value if isinstance(value, str) else dumps_text(value)
    return list(result.items())


def _error_text(detail: RunDetail) -> str | None:
    error = detail.value(Payload.ERROR)
    if error is None:
        return detail.row.error_preview
    return error if isinstance(error, str) else dumps_text(error)


def _sorted_pairs(values: Any) -> list[tuple[str, str]]:
    """Return names and values as text, sorted by name."""
    if not isinstance(values, dict):
        return []
    pairs = ((str(k), v if isinstance(v, str) else dumps_text(v)) for k, v in values.items())
    return sorted(pairs)
