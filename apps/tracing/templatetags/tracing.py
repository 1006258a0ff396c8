"""Template tags that return URLs of tracing pages."""

from __future__ import annotations

import json
import shlex
from typing import Any
from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.urls import reverse

from apps.organizations.permissions import Permission
from apps.trace_store import Attachment
from apps.trace_store.filters import quote
from apps.tracing.hooks import DeploymentLink, find_deployment_of_project
from apps.tracing.messages import MessagePart, parse_address
from apps.tracing.models import Project

register = template.Library()


@register.simple_tag
def filter_link(name: str, value: str, *, is_root: bool) -> str:
    """Return the query string of the run list filtered by a metadata value.

    The list shows root runs, or all runs if the value is that of a child run.
    """
    quoted_name, quoted_value = quote(name), quote(value)
    text = f"and(eq(metadata_key, {quoted_name}), eq(metadata_value, {quoted_value}))"
    query = {"filter": text, "range": "all"}
    return f"?{urlencode(query if is_root else query | {'show': 'all'})}"


@register.filter
def as_medium(text: str) -> MessagePart | None:
    """Return the medium of a text that is a `data:` address, else None."""
    return parse_address(text)


@register.filter
def curl_query(where: str, project_id: object) -> str:
    """Return a request to the API for the runs of a project that match the filter."""
    body = json.dumps({"session": [str(project_id)], "filter": where}, ensure_ascii=False)
    url = f"{settings.BASE_URL}/api/v1/runs/query"
    return (
        f'curl -s {shlex.quote(url)} -H "x-api-key: $LANGSMITH_API_KEY"'
        f" -H 'content-type: application/json' -d {shlex.quote(body)}"
    )


@register.simple_tag
def thread_link(key: str) -> str:
    """Return the query string of the run list filtered by a thread."""
    text = f"eq(thread_id, {quote(key)})"
    return f"?{urlencode({'filter': text, 'range': 'all'})}"


@register.simple_tag(takes_context=True)
def project_deployment(context: dict[str, Any], project: Project) -> DeploymentLink | None:
    """Return the deployment that traces to the project, if the reader may see it."""
    if not context["request"].caller.may(Permission.DEPLOYMENTS_READ):
        return None
    return find_deployment_of_project(project.workspace_id, project.name)


@register.simple_tag(takes_context=True)
def attachment_url(context: dict[str, Any], file: Attachment, number: int) -> str:
    """Return the URL of an attachment; on a shared trace it contains the share token."""
    row = context["run"].row
    if token := context.get("token"):
        return reverse("public-attachment", args=[token, row.id, file.name])
    project = context["project"]
    return reverse("trace-attachment", args=[project.workspace_id, project.pk, row.id, number])
