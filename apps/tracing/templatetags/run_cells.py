"""Renders the cells of the run list.

A page has 50 rows of up to 24 columns. Rendering them by a template, with one condition per kind of
column, took three quarters of the page's time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from django import template
from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from apps.trace_store import RunRow, Status
from apps.tracing.pages.columns import Column
from apps.tracing.pages.interrupts import describe_wait
from apps.tracing.pages.run_list import ListedRun
from apps.web_ui import formatting
from apps.web_ui.templatetags.web_ui import run_type, timestamp

register = template.Library()

_SMALLEST_COST = Decimal("0.0001")
"""The column has no space for smaller amounts, which are shown on hover."""
_NOTHING = SafeString("")
_EMPTY = format_html('<span class="muted">{}</span>', formatting.EMPTY)
_BLANK = frozenset({_NOTHING, _EMPTY, formatting.EMPTY})
_RUNNING = SafeString('<span class="muted">running</span>')
_NO_END = SafeString('<span class="muted">no end</span>')


@dataclass(frozen=True, slots=True)
class _Cell:
    listed: ListedRun
    column: Column
    text: str

    @property
    def run(self) -> RunRow:
        return self.listed.row


@register.simple_tag
def run_cells(listed: ListedRun) -> SafeString:
    """Render the `td` of each visible column."""
    cells = (_Cell(listed, column, text) for column, text in listed.cells)
    return mark_safe("".join(map(_render_cell, cells)))  # noqa: S308  (each cell is escaped)


def _render_cell(cell: _Cell) -> SafeString:
    column = cell.column
    content = _CONTENTS.get(column.kind, _text)(cell)
    blank = "is-blank" if content in _BLANK else ""
    classes = " ".join(filter(None, ("cell-clip", column.css, _tone(cell), blank)))
    if not column.narrow:
        return format_html('<td class="{}">{}</td>', classes, content)
    # An empty cell has no line of its own on a narrow screen.
    is_line = column.narrow == "line" and content
    narrow = "line" if is_line else "hide"
    return format_html('<td class="{}" data-narrow="{}">{}</td>', classes, narrow, content)


def _tone(cell: _Cell) -> str:
    match cell.column.kind:
        case "error":
            return "is-error" if cell.run.has_failed else ""
        case "input" | "output":
            return "secondary"
    return ""


def _name(cell: _Cell) -> SafeString:
    run = cell.run
    return format_html(
        '<span class="cell-run">{}<a class="row-link truncate" href="{}">{}</a></span>',
        run_type(run.run_type),
        reverse("trace-detail", args=[run.workspace_id, run.project_id, run.id]),
        run.shown_name,
    )


def _output(cell: _Cell) -> SafeString:
    run = cell.run
    if run.has_failed:
        return format_html('<span class="is-error">{}</span>', run.error_preview)
    if run.status is Status.INTERRUPTED:
        return conditional_escape(describe_wait(run.error_preview or ""))
    if run.error_preview:
        return conditional_escape(run.error_preview)
    return conditional_escape(run.outputs_preview or "")


def _latency(cell: _Cell) -> SafeString:
    latency = cell.run.latency
    if latency is None:
        return _NO_END if cell.run.has_no_end else _RUNNING
    return conditional_escape(formatting.format_duration(latency))


def _first_token(cell: _Cell) -> SafeString:
    run = cell.run
    if run.first_token_time is None or run.start_time is None:
        return SafeString(formatting.EMPTY)
    return conditional_escape(formatting.format_duration(run.first_token_time - run.start_time))


def _tokens(cell: _Cell) -> SafeString:
    usage = cell.run.usage
    if not usage.total_tokens:
        return _EMPTY
    return format_html(
        '<span title="{} in, {} out">{}</span>',
        formatting.format_count(usage.prompt_tokens),
        formatting.format_count(usage.completion_tokens),
        formatting.format_compact(usage.total_tokens),
    )


def _cost(cell: _Cell) -> SafeString:
    cost = cell.run.usage.total_cost
    text = formatting.format_money(cost)
    if cost is None or not 0 < cost < _SMALLEST_COST:
        return conditional_escape(text)
    return format_html('<span title="{}">&lt;${}</span>', text, _SMALLEST_COST)


def _tags(cell: _Cell) -> SafeString:
    if not cell.run.tags:
        return _NOTHING
    chips = format_html_join("", '<span class="chip">{}</span>', ((tag,) for tag in cell.run.tags))
    return format_html('<span class="chips chips-line">{}</span>', chips)


def _feedback(cell: _Cell) -> SafeString:
    if cell.column.inner:
        return _text(cell)
    if not cell.listed.feedback:
        return _NOTHING
    chips = format_html_join(
        "", '<span class="chip chip-pair"><span>{}</span>{}</span>', cell.listed.feedback
    )
    return format_html('<span class="chips chips-line">{}</span>', chips)


def _thread(cell: _Cell) -> SafeString:
    run = cell.run
    if not run.thread_key:
        return _NOTHING
    return format_html(
        '<a class="over-row-link" href="{}?{}">{}</a>',
        reverse("thread-detail", args=[run.workspace_id, run.project_id]),
        urlencode({"thread": run.thread_key}),
        run.thread_key,
    )


def _text(cell: _Cell) -> SafeString:
    return conditional_escape(cell.text)


_CONTENTS: dict[str, Callable[[_Cell], SafeString]] = {
    "name": _name,
    "input": lambda cell: conditional_escape(cell.run.inputs_preview or ""),
    "output": _output,
    "error": lambda cell: conditional_escape(cell.run.error_preview or ""),
    "start": lambda cell: timestamp(cell.run.start_time),
    "latency": _latency,
    "first_token": _first_token,
    "tokens": _tokens,
    "cost": _cost,
    "tags": _tags,
    "feedback": _feedback,
    "model": lambda cell: conditional_escape(cell.run.model or ""),
    "thread": _thread,
    "run_type": lambda cell: conditional_escape(cell.run.run_type),
}
