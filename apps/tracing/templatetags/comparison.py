"""Template tags of the comparison of two traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.tracing.pages.trace_alignment import Alignment, Delta, Step
from apps.web_ui import formatting

register = template.Library()

MAX_INDENT = 12
"""Deeper steps are indented like this one."""
_FORMATTERS: dict[str, Callable[[Any], str]] = {
    "duration": formatting.format_duration,
    "count": lambda value: formatting.format_count(int(value)),
    "money": formatting.format_money,
}


@dataclass(frozen=True)
class ComparedRow:
    """A step with its indentation, or the number of equal steps that are hidden."""

    step: Step | None
    skipped: int = 0

    @property
    def indent(self) -> int:
        return 0 if self.step is None else min(self.step.depth, MAX_INDENT)


@register.simple_tag
def compare_rows(alignment: Alignment, only: bool) -> list[ComparedRow]:  # noqa: FBT001
    """Return the rows of the list; with `only`, without equal subtrees."""
    if not only:
        return [ComparedRow(step) for step in alignment.steps]
    return [
        ComparedRow(None, item) if isinstance(item, int) else ComparedRow(item)
        for item in alignment.only_differences()
    ]


@register.simple_tag
def compare_figure(delta: Delta, kind: str, label: str) -> SafeString:
    """Render a figure of both traces and the difference, muted unless it is over 10 %."""
    if delta.is_missing:
        return SafeString('<span class="compare-figure"></span>')
    formatter = _FORMATTERS[kind]
    texts = [
        formatting.EMPTY if value is None else formatter(value)
        for value in (delta.first, delta.second)
    ]
    difference = ""
    if delta.first is not None and delta.second is not None and delta.first != delta.second:
        change = delta.second - delta.first
        sign = "+" if change > 0 else "\N{MINUS SIGN}"
        difference = f"{sign}{formatter(abs(change))}"
    return format_html(
        '<span class="compare-figure" title="{}"><span>{} \N{RIGHTWARDS ARROW} {}</span>'
        '<span data-verdict="{}">{}</span></span>',
        label,
        *texts,
        delta.verdict,
        difference,
    )
