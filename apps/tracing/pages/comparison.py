"""Comparison of two runs: figures with their differences, and input and output with text diffs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from apps.feedback.services import score_stats
from apps.feedback.services.configs import keys_with_lower_better
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import run_store
from apps.tracing.messages import Message, MessagePart
from apps.tracing.models import Project
from apps.tracing.pages.payload_views import PayloadView
from apps.tracing.pages.run_feedback import feedback_chips
from apps.tracing.pages.run_views import RunPageData, load_run
from apps.tracing.pages.trace_alignment import Alignment, Step, align_traces, count_kinds
from apps.web_ui.formatting import (
    EMPTY,
    format_count,
    format_duration,
    format_money,
    format_percent,
)
from apps.web_ui.text_diff import TextDiff, compare_texts

Number = float | int | Decimal
Formatter = Callable[[float], str]


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of both runs; `delta` is the second minus the first, empty if one is missing."""

    name: str
    first: str
    second: str
    delta: str = ""
    verdict: str = ""
    """`better` or `worse`; empty if equal or if neither direction is better."""


@dataclass(frozen=True)
class ComparedPayload:
    title: str
    first: PayloadView
    second: PayloadView
    diff: TextDiff

    @property
    def sides(self) -> tuple[PayloadView, PayloadView]:
        return self.first, self.second


@dataclass(frozen=True)
class RunComparison:
    first: RunPageData
    second: RunPageData
    figures: Sequence[ComparedFigure]
    payloads: Sequence[ComparedPayload]


def align_runs(first: RunPageData, second: RunPageData) -> Alignment | None:
    """Align the traces of two roots; None for other runs and for traces of one run each."""
    if not (first.row.is_root and second.row.is_root):
        return None
    rows = [
        run_store.fetch_trace(row.workspace_id, row.trace_id, project_id=row.project_id)
        for row in (first.row, second.row)
    ]
    if not all(rows) or max(map(len, rows)) < 2:
        return None
    return align_traces(first.row.workspace_id, *rows)


def compare_step(project: Project, second_project: Project, step: Step) -> list[ComparedPayload]:
    """Return input and output of a step, with their differences if both traces have it."""
    sides = [
        None if row is None else load_run(owner, row.id)
        for row, owner in ((step.first, project), (step.second, second_project))
    ]
    payloads = []
    for title, name in (("Input", "inputs"), ("Output", "outputs")):
        views = [
            PayloadView(name, None, [], None) if side is None else getattr(side, name)
            for side in sides
        ]
        diff = compare_texts(payload_text(views[0]), payload_text(views[1]))
        payloads.append(ComparedPayload(title, views[0], views[1], diff))
    return payloads


def compare_metadata(first: RunPageData, second: RunPageData) -> TextDiff:
    """Return the lines of the metadata that differ."""
    texts = [
        "\n".join(f"{key}: {value}" for key, value in sorted(run.metadata))
        for run in (first, second)
    ]
    return compare_texts(*texts)


def compare_runs(project: Project, first: RunPageData, second: RunPageData) -> RunComparison:
    figures = [
        *_compare_metrics(first, second),
        *_compare_counts(first, second),
        *_compare_scores(project, first, second),
    ]
    payloads = [
        ComparedPayload(title, a, b, compare_texts(payload_text(a), payload_text(b)))
        for title, a, b in (
            ("Input", first.inputs, second.inputs),
            ("Output", first.outputs, second.outputs),
        )
    ]
    return RunComparison(first, second, figures, payloads)


def _compare_metrics(first: RunPageData, second: RunPageData) -> Iterator[ComparedFigure]:
    a, b = first.row, second.row
    yield compare_figures("Latency", _seconds(a.latency), _seconds(b.latency), format_duration)
    first_tokens = _seconds(first.first_token), _seconds(second.first_token)
    if first_tokens != (None, None):
        yield compare_figures("First token", first_tokens[0], first_tokens[1], format_duration)
    for name, count_a, count_b in (
        ("Input tokens", a.usage.prompt_tokens, b.usage.prompt_tokens),
        ("Output tokens", a.usage.completion_tokens, b.usage.completion_tokens),
        ("Tokens", a.usage.total_tokens, b.usage.total_tokens),
    ):
        yield compare_figures(name, count_a, count_b, _format_tokens)
    yield compare_figures("Cost", a.usage.total_cost, b.usage.total_cost, format_money)


def _compare_counts(first: RunPageData, second: RunPageData) -> Iterator[ComparedFigure]:
    """Compare the calls and errors of two traces of several runs."""
    if not (first.row.is_root and second.row.is_root):
        return
    traces = [
        run_store.fetch_trace(row.workspace_id, row.trace_id, project_id=row.project_id)
        for row in (first.row, second.row)
    ]
    if max(map(len, traces)) < 2:
        return
    a, b = map(count_kinds, traces)
    for name, count in a.items():
        if count or b[name]:
            yield compare_figures(name, count, b[name], _format_tokens)


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def _format_tokens(value: float) -> str:
    return format_count(int(value))


def _format_score(value: float) -> str:
    return f"{value:.6g}"


def _compare_scores(
    project: Project, first: RunPageData, second: RunPageData
) -> Iterator[ComparedFigure]:
    stats = score_stats.by_run(project.workspace_id, [first.row.id, second.row.id])
    a, b = stats.get(first.row.id, {}), stats.get(second.row.id, {})
    keys = sorted(a.keys() | b.keys())
    lower_is_better = keys_with_lower_better(project.workspace_id, keys)
    chips_a, chips_b = dict(feedback_chips(a)), dict(feedback_chips(b))
    for key in keys:
        score_a, score_b = _mean_score(a, key), _mean_score(b, key)
        if score_a is None and score_b is None:
            yield ComparedFigure(key, chips_a.get(key) or EMPTY, chips_b.get(key) or EMPTY)
        else:
            is_lower_better = key in lower_is_better
            yield compare_figures(
                key, score_a, score_b, _format_score, is_lower_better=is_lower_better
            )


def _mean_score(stats: FeedbackStats, key: str) -> float | None:
    entry = stats.get(key) or {}
    mean = entry.get("avg") if entry.get("n") else None
    return None if mean is None else float(mean)


def compare_figures(
    name: str,
    first: Number | None,
    second: Number | None,
    formatter: Formatter,
    *,
    is_lower_better: bool = True,
) -> ComparedFigure:
    """Compare two values of a figure; None if there is none."""
    text_a = EMPTY if first is None else formatter(float(first))
    text_b = EMPTY if second is None else formatter(float(second))
    if first is None or second is None:
        return ComparedFigure(name, text_a, text_b)
    delta = float(second) - float(first)
    # A difference below what the figures show, such as "<1 ms", is none.
    if delta == 0 or formatter(abs(delta)).startswith("<"):
        return ComparedFigure(name, text_a, text_b, "0")
    sign = "+" if delta > 0 else "\N{MINUS SIGN}"
    text = f"{sign}{formatter(abs(delta))}"
    if first:
        text += f" ({sign}{format_percent(abs(delta / float(first)))})"
    is_better = (delta < 0) == is_lower_better
    return ComparedFigure(name, text_a, text_b, text, "better" if is_better else "worse")


def payload_text(view: PayloadView) -> str:
    """Return the text to compare: messages with their roles, a text, or indented JSON."""
    if view.messages:
        return "\n\n".join(_message_text(message) for message in view.messages)
    if view.text is not None:
        return view.text
    return "" if view.is_empty else view.pretty


def _message_text(message: Message) -> str:
    lines = [f"{message.role}: {_parts_text(message.parts)}"]
    for call in message.tool_calls:
        lines.append(f"{call.name}({call.arguments})")
        if call.result:
            lines.append(_parts_text(call.result))
    return "\n".join(lines)


def _parts_text(parts: Sequence[MessagePart]) -> str:
    return "\n".join(part.label if part.is_medium else part.text for part in parts)
