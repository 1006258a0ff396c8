"""Data of the run page: payloads, usage, events, feedback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.core import errors
from apps.core.json import Fragment, dumps_text
from apps.feedback.models import Feedback
from apps.trace_store import Payload, RunDetail, RunRow, Usage, run_store
from apps.tracing import messages
from apps.tracing.messages import Document, Message
from apps.tracing.models import Project

INLINE_BYTES = 100_000
"""Larger payloads are fetched and parsed by a web worker."""
RENDERED_BYTES = 2_000_000
MAX_FEEDBACK = 200
MAX_EVENTS = 500
_PARAMETERS = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "stop", "seed")


@dataclass(frozen=True)
class PayloadView:
    """A payload and its best presentation."""

    name: str
    body: Fragment | None
    messages: list[Message]
    text: str | None
    documents: list[Document] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.body or b"")

    @property
    def is_empty(self) -> bool:
        return self.body is None or self.body in (b"null", b"{}")

    @property
    def is_rendered(self) -> bool:
        return bool(self.messages or self.documents) or self.text is not None

    @property
    def is_inline(self) -> bool:
        return self.size <= INLINE_BYTES

    @property
    def pretty(self) -> str:
        """Return indented JSON for comparison."""
        value = json.loads(self.body) if self.body and self.size <= INLINE_BYTES else None
        if value is None:
            return self.beginning
        return json.dumps(value, indent=2, ensure_ascii=False)

    @property
    def beginning(self) -> str:
        """Return the beginning, for browsers without JavaScript."""
        return bytes(self.body or b"")[:16_000].decode("utf-8", "ignore")


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
class RunView:
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
    feedback: list[Feedback]

    @property
    def first_token(self) -> timedelta | None:
        token = self.row.first_token_time
        return token - self.row.start_time if token else None

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


def load_run(project: Project, run_id: UUID) -> RunView:
    """Load a run with its payloads; raises 404 if it is not in the project."""
    detail = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=_PAYLOADS)
    if detail is None:
        raise errors.NotFound
    return build_view(detail, load_feedback(project, run_id))


def load_feedback(project: Project, run_id: UUID) -> list[Feedback]:
    """Return the run's feedback, newest first."""
    data = Feedback.objects.for_workspace(project.workspace_id).filter(run_id=run_id)
    return list(data.order_by("-created_at", "-id")[:MAX_FEEDBACK])


def build_view(detail: RunDetail, feedback: Sequence[Feedback] = ()) -> RunView:
    extra = detail.value(Payload.EXTRA)
    extra = extra if isinstance(extra, dict) else {}
    events = detail.value(Payload.EVENTS)
    events = events if isinstance(events, list) else []
    metadata = _key_values(detail.row.metadata)
    return RunView(
        row=detail.row,
        inputs=build_payload_view(detail, Payload.INPUTS),
        outputs=build_payload_view(detail, Payload.OUTPUTS),
        error=_error(detail),
        metadata=metadata,
        runtime=_key_values(extra.get("runtime")),
        parameters=_parameters(extra.get("invocation_params"), dict(metadata)),
        events=[_build_event(e, detail.row.start_time) for e in events[:MAX_EVENTS]],
        event_count=len(events),
        feedback=list(feedback),
    )


def load_payload(project: Project, run_id: UUID, which: Payload) -> Fragment:
    """Return a payload as recorded JSON; raises 404 if absent."""
    detail = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=(which,))
    result = detail.json(which) if detail else None
    if result is None:
        raise errors.NotFound
    return result


def build_payload_view(detail: RunDetail, which: Payload) -> PayloadView:
    body = detail.json(which)
    value = detail.value(which) if body is not None and len(body) <= RENDERED_BYTES else None
    result = messages.parse_messages(value)
    documents = [] if result else messages.parse_documents(value)
    text = None if result or documents else messages.single_text(value)
    return PayloadView(which.value, body, result, text, documents)


def build_usage_lines(usage: Usage) -> list[UsageLine]:
    """Return the rows of prompt, completion and their details, as far as recorded."""
    lines = []
    details = usage.details or {}
    for name, tokens, cost, key in (
        ("Prompt", usage.prompt_tokens, usage.prompt_cost, "prompt"),
        ("Completion", usage.completion_tokens, usage.completion_cost, "completion"),
    ):
        if tokens is None and cost is None:
            continue
        lines.append(UsageLine(name, tokens, cost))
        of_tokens = _parse_details(details.get(f"{key}_token_details"))
        of_cost = _parse_details(details.get(f"{key}_cost_details"))
        for part in sorted(of_tokens.keys() | of_cost.keys()):
            count = of_tokens.get(part)
            whole = None if count is None else int(count)
            lines.append(UsageLine(part.replace("_", " "), whole, of_cost.get(part), is_part=True))
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
    rest = {key: value for key, value in event.items() if key not in ("name", "time")}
    time = str(event.get("time") or "")
    try:
        index: datetime | None = datetime.fromisoformat(time)
    except ValueError:
        index = None
    offset = index.replace(tzinfo=index.tzinfo or start.tzinfo) - start if index else None
    text = dumps_text(rest)[:500] if rest else ""
    return EventView(str(event.get("name") or "event"), time, offset, text)


def _parameters(invocation: Any, metadata: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the invocation parameters of a model, from the places where clients record them."""
    values = invocation if isinstance(invocation, dict) else {}
    result = {}
    for name in _PARAMETERS:
        value = values.get(name, metadata.get(f"ls_{name}"))
        if value is not None:
            result[name.replace("_", " ")] = value if isinstance(value, str) else dumps_text(value)
    tools = values.get("tools")
    if isinstance(tools, list) and tools:
        result["tools"] = str(len(tools))
    return list(result.items())


def _error(detail: RunDetail) -> str | None:
    error = detail.value(Payload.ERROR)
    if error is None:
        return detail.row.error_preview
    return error if isinstance(error, str) else dumps_text(error)


def _key_values(values: Any) -> list[tuple[str, str]]:
    """Return names and values as text, sorted by name."""
    if not isinstance(values, dict):
        return []
    pairs = ((str(k), v if isinstance(v, str) else dumps_text(v)) for k, v in values.items())
    return sorted(pairs)
