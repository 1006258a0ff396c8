"""Template tags and filters of the shared components.

The CSS file of each component shows an example of its use.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from django import template
from django.forms import BoundField
from django.http import QueryDict
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.json import dumps_text
from apps.web_ui import formatting
from apps.web_ui.badges import BADGES, ROLES, RUN_TYPES, UNKNOWN
from apps.web_ui.time_zone import zone_label

register = template.Library()

register.filter("duration", formatting.format_duration)
register.filter("count", formatting.format_count)
register.filter("compact", formatting.format_compact)
register.filter("size", formatting.format_size)
register.filter("money", formatting.format_money)
register.filter("percent", formatting.format_percent)
register.filter("day", formatting.format_day)
register.filter("date_time", formatting.format_date_time)
register.filter("exact_time", formatting.format_exact_time)


_SNIPPET = """\
export LANGSMITH_TRACING=true
export LANGSMITH_ENDPOINT={base_url}/api/v1
export LANGSMITH_API_KEY={key}
export LANGSMITH_PROJECT="{project}"

python - <<'EOF'
from langsmith import traceable

@traceable
def greet(name: str) -> str:
    return f"Hello, {{name}}"

greet("Slipway")
EOF"""

_UNSAFE = {ord("<"): "\\u003C", ord(">"): "\\u003E", ord("&"): "\\u0026"}


@register.simple_tag
def json_fragment(json: bytes, element_id: str) -> SafeString:
    """Render JSON text as `json_script` renders a value; `<`, `>` and `&` are escaped."""
    text = bytes(json).decode().translate(_UNSAFE)
    return format_html(
        '<script id="{}" type="application/json">{}</script>', element_id, SafeString(text)
    )


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """Render an icon of the sprite. Screen readers skip icons: add a label or text."""
    return _render_icon(name, classes)


@lru_cache(maxsize=1_000)
def _render_icon(name: str, classes: str) -> SafeString:
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"/></svg>',
        classes,
        static("vendor/icons.svg"),
        name,
    )


@register.simple_tag
def status_badge(status: str, *, plain: bool = False) -> SafeString:
    """Render a status as icon and label; `plain` has no frame, for table cells."""
    badge = BADGES.get(str(status), UNKNOWN)
    spin = "icon-spin" if badge.icon == "loader-circle" else ""
    return format_html(
        '<span class="badge {} {}">{}{}</span>',
        "badge-plain" if plain else "",
        f"tone-{badge.tone}" if badge.tone else "",
        icon(badge.icon, spin),
        badge.label,
    )


@register.simple_tag
@lru_cache(maxsize=100)
def status_icon(status: str) -> SafeString:
    """Render a status as an icon with a label for screen readers."""
    badge = BADGES.get(str(status), UNKNOWN)
    spin = "icon-spin" if badge.icon == "loader-circle" else ""
    return format_html(
        '<span class="badge badge-plain {}" title="{}">{}'
        '<span class="visually-hidden">{}</span></span>',
        f"tone-{badge.tone}" if badge.tone else "",
        badge.label,
        icon(badge.icon, spin),
        badge.label,
    )


@register.simple_tag
def run_type(kind: str) -> SafeString:
    """Render the type of a run as an icon with a label for screen readers."""
    return format_html(
        '<span class="run-type" data-type="{}" title="{}">{}'
        '<span class="visually-hidden">{}</span></span>',
        kind,
        kind,
        icon(RUN_TYPES.get(kind, "circle")),
        kind,
    )


@register.filter
def run_type_icon(kind: str) -> str:
    """Return the icon name of a run type."""
    return RUN_TYPES.get(kind, "circle")


@register.simple_tag
def trace_snippet(project_name: str, base_url: str, key: str = "<your key>") -> str:
    """Return a shell script that sends one trace."""
    return _SNIPPET.format(base_url=base_url, project=project_name.replace('"', ""), key=key)


@register.simple_tag
def deploy_snippet(organization: str) -> str:
    """Return the shell command that creates a deployment."""
    return (
        f"python manage.py deploy --organization {shlex.quote(str(organization))} \\\n"
        "  --name my-agent --git https://git.example/team/agent.git --wait"
    )


@register.simple_tag
def message_role(name: str) -> SafeString:
    """Render the role of a message's author."""
    icon_name, label = ROLES[name]
    return format_html('<span class="message-role">{}{}</span>', icon(icon_name), label)


@register.simple_tag
def timestamp(value: datetime | None) -> SafeString:
    """Render the age, with the exact time on hover; `<relative-time>` updates it."""
    if value is None:
        return format_html('<span class="muted">{}</span>', formatting.EMPTY)
    value = value.astimezone(UTC)
    return format_html(
        '<relative-time><time datetime="{}" title="{}">{}</time></relative-time>',
        value.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        f"{formatting.format_date_time(value)}:{value:%S} {zone_label()}",
        formatting.format_age(value),
    )


@register.simple_tag
def elapsed(value: datetime) -> SafeString:
    """Render the duration since a time; `<relative-time>` updates it."""
    begin = value.astimezone(UTC)
    return format_html(
        '<relative-time elapsed><time datetime="{}">{}</time></relative-time>',
        begin.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        formatting.format_duration(max(1.0, (datetime.now(UTC) - begin).total_seconds())),
    )


@register.filter
def time_of_day(value: datetime) -> str:
    """Format as `03:04:05.006`."""
    return timezone.localtime(value).time().isoformat(timespec="milliseconds")


@register.filter
def with_zone(text: str) -> str:
    """Add the time zone's abbreviation to a formatted time."""
    return f"{text} {zone_label()}"


@register.filter
def since(end: datetime | None, start: datetime | None) -> timedelta | None:
    """Return the duration from `start` to `end`."""
    return end - start if end and start else None


@register.filter
def short_id(value: object) -> str:
    """Abbreviate: the last eight characters of a UUID, the first eight of a hash."""
    text = str(value)
    return text[-8:] if isinstance(value, UUID) else text[:8]


@register.inclusion_tag("components/copyable.html")
def copyable(value: object, label: str, href: str = "") -> dict[str, Any]:
    """Render a value with a copy button; `href` makes it a link."""
    return {"value": value, "text": value, "label": label, "href": href}


@register.inclusion_tag("components/copyable.html")
def copyable_id(value: object, label: str = "id") -> dict[str, Any]:
    """Render an abbreviated id with a button that copies the whole id."""
    return {"value": value, "text": short_id(value), "label": label, "is_id": True}


@register.inclusion_tag("components/code_block.html")
def code_block(text: str, caption: str = "", classes: str = "") -> dict[str, Any]:
    """Render preformatted text with a copy button."""
    return {"text": text, "caption": caption, "classes": classes}


@register.inclusion_tag("components/field.html")
def field(bound: BoundField, **attributes: Any) -> dict[str, Any]:
    """Render a form field with label, help and errors; attributes go to the input."""
    description_ids = [f"{bound.id_for_label}-{part}" for part in _description_parts(bound)]
    attributes = {name.replace("_", "-"): value for name, value in attributes.items()}
    attributes["class"] = f"input {attributes.pop('classes', '')}".strip()
    if description_ids:
        attributes["aria-describedby"] = " ".join(description_ids)
    if bound.errors:
        attributes["aria-invalid"] = "true"
    return {"field": bound, "widget": bound.as_widget(attrs=attributes)}


@register.inclusion_tag("components/checkbox_field.html")
def checkbox(bound: BoundField) -> dict[str, Any]:
    """Render a checkbox with its label, help and errors."""
    description_ids = [f"{bound.id_for_label}-{part}" for part in _description_parts(bound)]
    attributes: dict[str, str | bool] = {}
    if description_ids:
        attributes["aria-describedby"] = " ".join(description_ids)
    return {"field": bound, "widget": bound.as_widget(attrs=attributes)}


@register.filter
def inline_code(text: object) -> SafeString:
    """Render text between backticks as code and escape all text."""
    pieces = str(text).split("`")
    if len(pieces) % 2 == 0:
        return format_html("{}", text)
    return format_html_join(
        "",
        '{}<code class="inline">{}</code>',
        zip(pieces[:-1:2], pieces[1::2], strict=True),
    ) + format_html("{}", pieces[-1])


def _description_parts(bound: BoundField) -> list[str]:
    parts = {"help": bound.help_text, "error": bound.errors}
    return [name for name, content in parts.items() if content]


@register.simple_tag(takes_context=True)
def with_query(context: dict[str, Any], **changes: Any) -> str:
    """Return the query string of the page with changed parameters; empty values are removed."""
    query: QueryDict = context["request"].GET.copy()
    for name, value in changes.items():
        if value in (None, ""):
            query.pop(name, None)
        else:
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.filter
def media_kind(mime_type: str) -> str:
    """Return how a page shows a file: as `image`, `audio`, `video`, `pdf` or `file`."""
    kind, _, subtype = mime_type.partition("/")
    if kind == "image":
        return kind if subtype in {"png", "jpeg", "gif", "webp"} else "file"
    if kind in {"audio", "video"}:
        return kind
    return "pdf" if mime_type == "application/pdf" else "file"


@register.filter
def media_icon(kind: str) -> str:
    return {
        "image": "image",
        "audio": "file-audio",
        "video": "file-video",
        "pdf": "file-text",
    }.get(kind, "paperclip")


@register.filter
def plain_number(value: float | None) -> str:
    """Format a number without trailing zeros."""
    return formatting.EMPTY if value is None else f"{value:.6g}"


@register.filter
def as_text(value: object) -> str:
    """Return a string unchanged, other values as JSON."""
    return value if isinstance(value, str) else dumps_text(value)


@register.filter
def as_json(value: object) -> str:
    """Return a string unchanged, other values as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


@register.filter
def per_million(value: Decimal) -> str:
    """Format a price per token as dollars per million tokens."""
    return formatting.format_money(value * 1_000_000)


@register.filter
def retention_days(seconds: int | None) -> str:
    return "unlimited" if not seconds else f"{seconds // 86_400} days"
