"""The components that templates are put together from.

Each is shown once in the CSS file of its component, with the markup that it makes.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django import template
from django.forms import BoundField
from django.http import QueryDict
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.core.json import dumps_text
from apps.web_ui import formatting
from apps.web_ui.badges import BADGES, ROLES, RUN_TYPES, UNKNOWN

register = template.Library()

register.filter("duration", formatting.duration)
register.filter("count", formatting.count)
register.filter("compact", formatting.compact)
register.filter("size", formatting.size)
register.filter("money", formatting.money)
register.filter("percent", formatting.percent)


_SNIPPET = """\
export LANGSMITH_TRACING=true
export LANGSMITH_ENDPOINT={base_url}/api/v1
export LANGSMITH_API_KEY=<your key>
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
    """JSON text as `json_script` writes a value: these characters occur in its strings only."""
    text = bytes(json).decode().translate(_UNSAFE)
    return format_html(
        '<script id="{}" type="application/json">{}</script>', element_id, SafeString(text)
    )


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """A drawing from the sprite; decorative, so words or a label stand beside it."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"/></svg>',
        classes,
        static("vendor/icons.svg"),
        name,
    )


@register.simple_tag
def status_badge(status: str, *, plain: bool = False) -> SafeString:
    """A status as icon and word, `plain` in a table."""
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
def status_icon(status: str) -> SafeString:
    """A status as its icon, the word for those who cannot see it."""
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
    """What kind of step a run is."""
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
    """The name of a run type's drawing."""
    return RUN_TYPES.get(kind, "circle")


@register.simple_tag
def trace_snippet(project_name: str, base_url: str) -> str:
    """The least that makes a trace, ready to be pasted into a shell."""
    return _SNIPPET.format(base_url=base_url, project=project_name.replace('"', ""))


@register.simple_tag
def deploy_snippet(organization: str) -> str:
    """A first deployment from the command line."""
    return (
        f"python manage.py deploy --organization {shlex.quote(str(organization))} \\\n"
        "  --name my-agent --git https://git.example/team/agent.git --wait"
    )


@register.simple_tag
def message_role(name: str) -> SafeString:
    """Who speaks in a message."""
    drawing, word = ROLES[name]
    return format_html('<span class="message-role">{}{}</span>', icon(drawing), word)


@register.simple_tag
def timestamp(value: datetime | None) -> SafeString:
    """How long ago, the exact time on hover; `<relative-time>` keeps it true."""
    if value is None:
        return format_html('<span class="muted">{}</span>', formatting.EMPTY)
    value = value.astimezone(UTC)
    return format_html(
        '<relative-time><time datetime="{}" title="{}">{}</time></relative-time>',
        value.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        value.strftime("%Y-%m-%d %H:%M:%S UTC"),
        formatting.ago(value),
    )


@register.simple_tag
def elapsed(value: datetime) -> SafeString:
    """The time since then, counting on."""
    begin = value.astimezone(UTC)
    return format_html(
        '<relative-time elapsed><time datetime="{}">{}</time></relative-time>',
        begin.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        formatting.duration(max(1.0, (datetime.now(UTC) - begin).total_seconds())),
    )


@register.filter
def exact_time(value: datetime | None) -> str:
    """`2026-01-02 03:04:05.006` in UTC."""
    if value is None:
        return formatting.EMPTY
    return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


@register.filter
def time_of_day(value: datetime) -> str:
    """`03:04:05.006` in UTC."""
    return value.astimezone(UTC).time().isoformat(timespec="milliseconds")


@register.filter
def since(end: datetime | None, start: datetime | None) -> timedelta | None:
    """The time from `start` to `end`."""
    return end - start if end and start else None


@register.filter
def short_id(value: object) -> str:
    """The beginning of an id or a hash, enough to tell it from others on a page."""
    text = str(value)
    return text[-8:] if isinstance(value, UUID) else text[:8]


@register.inclusion_tag("components/copyable.html")
def copyable(value: object, label: str, href: str = "") -> dict[str, Any]:
    """A value with a button that copies it, and where it leads when it is an address."""
    return {"value": value, "text": value, "label": label, "href": href}


@register.inclusion_tag("components/copyable.html")
def copyable_id(value: object, label: str = "id") -> dict[str, Any]:
    """An id: its telling part is shown, all of it is copied."""
    return {"value": value, "text": short_id(value), "label": label, "is_id": True}


@register.inclusion_tag("components/code_block.html")
def code_block(text: str, caption: str = "", classes: str = "") -> dict[str, Any]:
    """Text to read or take away, as typed."""
    return {"text": text, "caption": caption, "classes": classes}


@register.inclusion_tag("components/field.html")
def field(bound: BoundField, **attributes: Any) -> dict[str, Any]:
    """A form field with its label, help and errors; extra attributes go to the input."""
    described = [f"{bound.id_for_label}-{part}" for part in _described(bound)]
    attributes = {name.replace("_", "-"): value for name, value in attributes.items()}
    attributes["class"] = f"input {attributes.pop('classes', '')}".strip()
    if described:
        attributes["aria-describedby"] = " ".join(described)
    if bound.errors:
        attributes["aria-invalid"] = "true"
    return {"field": bound, "widget": bound.as_widget(attrs=attributes)}


@register.inclusion_tag("components/checkbox_field.html")
def checkbox(bound: BoundField) -> dict[str, Any]:
    """A box to tick, its label beside it."""
    described = [f"{bound.id_for_label}-{part}" for part in _described(bound)]
    attributes: dict[str, str | bool] = {}
    if described:
        attributes["aria-describedby"] = " ".join(described)
    return {"field": bound, "widget": bound.as_widget(attrs=attributes)}


@register.filter
def inline_code(text: object) -> SafeString:
    """Plain text in which what stands between two backticks is code."""
    pieces = str(text).split("`")
    if len(pieces) % 2 == 0:
        return format_html("{}", text)
    return format_html_join(
        "",
        '{}<code class="inline">{}</code>',
        zip(pieces[:-1:2], pieces[1::2], strict=True),
    ) + format_html("{}", pieces[-1])


def _described(bound: BoundField) -> list[str]:
    return [part for part, there in (("help", bound.help_text), ("error", bound.errors)) if there]


@register.simple_tag(takes_context=True)
def with_query(context: dict[str, Any], **changes: Any) -> str:
    """This page's query string with some parameters changed; empty ones are left out."""
    query: QueryDict = context["request"].GET.copy()
    for name, value in changes.items():
        if value in (None, ""):
            query.pop(name, None)
        else:
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.filter
def media_kind(mime_type: str) -> str:
    """What a browser can do with a file: `image`, `audio`, `video`, `pdf` or `file`."""
    kind, _, form = mime_type.partition("/")
    if kind == "image":
        return kind if form in {"png", "jpeg", "gif", "webp"} else "file"
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
    """A score without needless zeros."""
    return formatting.EMPTY if value is None else f"{value:.6g}"


@register.filter
def as_text(value: object) -> str:
    """A string as it is, other values as JSON."""
    return value if isinstance(value, str) else dumps_text(value)


@register.filter
def as_json(value: object) -> str:
    """A string as it is, other values as JSON in lines."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


@register.filter
def per_million(value: Decimal) -> str:
    """A price of one token as dollars for a million."""
    return formatting.money(value * 1_000_000)


@register.filter
def retention_days(seconds: int | None) -> str:
    return "unlimited" if not seconds else f"{seconds // 86_400} days"
