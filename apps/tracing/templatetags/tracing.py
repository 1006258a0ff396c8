"""Addresses that the tracing templates need."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from apps.trace_store import Attachment
from apps.tracing.pages import filter_clauses

register = template.Library()


@register.simple_tag
def filter_link(name: str, value: str) -> str:
    """The query string of the list that shows traces with this metadata."""
    key, said = filter_clauses.quoted(name), filter_clauses.quoted(value)
    text = f"and(eq(metadata_key, {key}), eq(metadata_value, {said}))"
    return f"?{urlencode({'filter': text, 'range': 'all'})}"


@register.simple_tag
def thread_link(key: str) -> str:
    """The query string of the list that shows a thread's traces."""
    text = f"eq(thread_id, {filter_clauses.quoted(key)})"
    return f"?{urlencode({'filter': text, 'range': 'all'})}"


@register.simple_tag(takes_context=True)
def attachment_address(context: dict[str, Any], file: Attachment, number: int) -> str:
    """Where a file of the run is: behind the sign-in, or for a shared trace behind its link."""
    row = context["run"].row
    if token := context.get("token"):
        return reverse("public-attachment", args=[token, row.id, file.name])
    project = context["project"]
    return reverse("trace-attachment", args=[project.workspace_id, project.pk, row.id, number])
