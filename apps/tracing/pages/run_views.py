"""One run in full: what went in and out, what it used, what was said about it."""

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
"""Larger payloads are fetched and parsed by the viewer, off the main thread."""
RENDERED_BYTES = 2_000_000
MOST_FEEDBACK = 200
MOST_EVENTS = 500
_PARAMETERS = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "stop", "seed")


@dataclass(frozen=True)
class PayloadView:
    """Inputs or outputs, and the best way to show them."""

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
        """As lines, for eyes that compare."""
        value = json.loads(self.body) if self.body and self.size <= INLINE_BYTES else None
        if value is None:
            return self.beginning
        return json.dumps(value, indent=2, ensure_ascii=False)

    @property
    def beginning(self) -> str:
        """Enough of it for those who have no script."""
        return bytes(self.body or b"")[:16_000].decode("utf-8", "ignore")


@dataclass(frozen=True)
class UsageLine:
    """A row of the breakdown: what was used, how much, what it cost."""

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
    """One run in full."""

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
        return usage_lines(self.row.usage)

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.metadata)

    @property
    def revision(self) -> str:
        return self.facts.get("revision_id", "")


_READ = (Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR, Payload.EXTRA, Payload.EVENTS)


def run(project: Project, run_id: UUID) -> RunView:
    """One run with its payloads; 404 when it is not in the project."""
    detail = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=_READ)
    if detail is None:
        raise errors.NotFound
    return view_of(detail, feedback_of(project, run_id))


def feedback_of(project: Project, run_id: UUID) -> list[Feedback]:
    """What was said about the run, newest first."""
    said = Feedback.objects.for_workspace(project.workspace_id).filter(run_id=run_id)
    return list(said.order_by("-created_at", "-id")[:MOST_FEEDBACK])


def view_of(detail: RunDetail, feedback: Sequence[Feedback] = ()) -> RunView:
    extra = detail.value(Payload.EXTRA)
    extra = extra if isinstance(extra, dict) else {}
    events = detail.value(Payload.EVENTS)
    events = events if isinstance(events, list) else []
    metadata = _facts(detail.row.metadata)
    return RunView(
        row=detail.row,
        inputs=payload_view(detail, Payload.INPUTS),
        outputs=payload_view(detail, Payload.OUTPUTS),
        error=_error(detail),
        metadata=metadata,
        runtime=_facts(extra.get("runtime")),
        parameters=_parameters(extra.get("invocation_params"), dict(metadata)),
        events=[_event(e, detail.row.start_time) for e in events[:MOST_EVENTS]],
        event_count=len(events),
        feedback=list(feedback),
    )


def payload(project: Project, run_id: UUID, which: Payload) -> Fragment:
    """One payload as the JSON that was sent; 404 when there is none."""
    detail = run_store.get(project.workspace_id, run_id, project_id=project.pk, payloads=(which,))
    found = detail.json(which) if detail else None
    if found is None:
        raise errors.NotFound
    return found


def payload_view(detail: RunDetail, which: Payload) -> PayloadView:
    body = detail.json(which)
    value = detail.value(which) if body is not None and len(body) <= RENDERED_BYTES else None
    found = messages.find(value)
    documents = [] if found else messages.documents(value)
    text = None if found or documents else messages.text_of(value)
    return PayloadView(which.value, body, found, text, documents)


def usage_lines(usage: Usage) -> list[UsageLine]:
    """Prompt, completion and their parts, as far as anything is known of them."""
    lines = []
    details = usage.details or {}
    for name, tokens, cost, key in (
        ("Prompt", usage.prompt_tokens, usage.prompt_cost, "prompt"),
        ("Completion", usage.completion_tokens, usage.completion_cost, "completion"),
    ):
        if tokens is None and cost is None:
            continue
        lines.append(UsageLine(name, tokens, cost))
        of_tokens = _numbers(details.get(f"{key}_token_details"))
        of_cost = _numbers(details.get(f"{key}_cost_details"))
        for part in sorted(of_tokens.keys() | of_cost.keys()):
            count = of_tokens.get(part)
            whole = None if count is None else int(count)
            lines.append(UsageLine(part.replace("_", " "), whole, of_cost.get(part), is_part=True))
    if lines:
        lines.append(UsageLine("Total", usage.total_tokens, usage.total_cost))
    return lines


def _numbers(details: Mapping[str, Any] | None) -> dict[str, Decimal]:
    found = {}
    for name, value in (details or {}).items():
        if isinstance(value, (int, float, str, Decimal)) and not isinstance(value, bool):
            try:
                number = Decimal(str(value))
            except ArithmeticError:
                continue
            if number.is_finite() and number:
                found[str(name)] = number
    return found


def _event(event: Any, start: datetime) -> EventView:
    if not isinstance(event, dict):
        return EventView("event", "", None, dumps_text(event)[:500])
    rest = {key: value for key, value in event.items() if key not in ("name", "time")}
    time = str(event.get("time") or "")
    try:
        at: datetime | None = datetime.fromisoformat(time)
    except ValueError:
        at = None
    offset = at.replace(tzinfo=at.tzinfo or start.tzinfo) - start if at else None
    text = dumps_text(rest)[:500] if rest else ""
    return EventView(str(event.get("name") or "event"), time, offset, text)


def _parameters(invocation: Any, metadata: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a model was called with, from where clients put it."""
    given = invocation if isinstance(invocation, dict) else {}
    found = {}
    for name in _PARAMETERS:
        value = given.get(name, metadata.get(f"ls_{name}"))
        if value is not None:
            found[name.replace("_", " ")] = value if isinstance(value, str) else dumps_text(value)
    tools = given.get("tools")
    if isinstance(tools, list) and tools:
        found["tools"] = str(len(tools))
    return list(found.items())


def _error(detail: RunDetail) -> str | None:
    error = detail.value(Payload.ERROR)
    if error is None:
        return detail.row.error_preview
    return error if isinstance(error, str) else dumps_text(error)


def _facts(values: Any) -> list[tuple[str, str]]:
    """Names and values as text, in the order of their names."""
    if not isinstance(values, dict):
        return []
    pairs = ((str(k), v if isinstance(v, str) else dumps_text(v)) for k, v in values.items())
    return sorted(pairs)
