"""Template tags of the first run."""

from __future__ import annotations

import re
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join

from apps.console import first_steps
from apps.console.first_run import PLACEHOLDER, PROJECT_PLACEHOLDER
from apps.console.sample_data import is_sample
from apps.organizations.permissions import Permission
from apps.tracing.models import Project

register = template.Library()

_SLOT = re.compile(f"({re.escape(PLACEHOLDER)}|{re.escape(PROJECT_PLACEHOLDER)})")


@register.inclusion_tag("console/first_steps.html", takes_context=True)
def steps_of(context: dict[str, Any], project: Project) -> dict[str, Any]:
    """Render the next steps of a new workspace, or that the project is the sample data."""
    request = context["request"]
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "project": project,
        "steps": first_steps.load_steps(request, request.caller, project),
        "is_sample": is_sample(project),
        "may_remove": request.caller.may(Permission.PROJECTS_DELETE),
    }


@register.inclusion_tag("console/snippet_block.html")
def snippet_block(
    text: str, caption: str, *, key: str, project: str, purpose: str, name: str
) -> dict[str, Any]:
    """Render a snippet in which a script fills in the key and the project's name."""
    slots = {
        PLACEHOLDER: format_html('<span data-slot="key">{}</span>', key),
        PROJECT_PLACEHOLDER: format_html('<span data-slot="project">{}</span>', project),
    }
    pieces = [(slots.get(piece, piece),) for piece in _SLOT.split(text)]
    content = format_html_join("", "{}", pieces)
    return {"content": content, "caption": caption, "purpose": purpose, "name": name}
