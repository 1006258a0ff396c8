"""Template tags of the first run."""

from __future__ import annotations

import re
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join

from apps.console.first_run import PLACEHOLDER, PROJECT_PLACEHOLDER

register = template.Library()

_SLOT = re.compile(f"({re.escape(PLACEHOLDER)}|{re.escape(PROJECT_PLACEHOLDER)})")


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
