"""Template tags of the prompt pages."""

from __future__ import annotations

import re

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.prompts.messages import MUSTACHE, PLACEHOLDER
from apps.web_ui.templatetags.web_ui import icon, message_role

register = template.Library()

_PUSH_SNIPPET = """\
from langchain_core.prompts import ChatPromptTemplate
from langsmith import Client

client = Client(api_url="{api_url}", api_key="<your key>")
prompt = ChatPromptTemplate.from_messages(
    [("system", "Answer in {{language}}."), ("human", "{{question}}")]
)
client.push_prompt("my-prompt", object=prompt)"""
_VARIABLES = {
    MUSTACHE: re.compile(r"(\{\{\{?[^{}]*\}?\}\})"),
    "f-string": re.compile(r"(?<!\{)(\{[A-Za-z_]\w*\})(?!\})"),
}
_OTHER_ROLES = {PLACEHOLDER: ("list", "Placeholder"), "text": ("file-text", "Text")}


@register.simple_tag
def push_snippet(api_url: str) -> str:
    """Return a Python program that pushes a prompt."""
    return _PUSH_SNIPPET.format(api_url=api_url)


@register.simple_tag
def prompt_role(role: str) -> SafeString:
    """Render the role of a message, or what takes its place."""
    if role not in _OTHER_ROLES:
        return message_role(role)
    icon_name, label = _OTHER_ROLES[role]
    return format_html('<span class="message-role">{}{}</span>', icon(icon_name), label)


@register.simple_tag
def template_text(text: str, template_format: str) -> SafeString:
    """Render a template with its variables marked; all text is escaped."""
    pieces = _VARIABLES[template_format].split(text)
    marked = format_html_join(
        "",
        '{}<span class="prompt-variable">{}</span>',
        zip(pieces[:-1:2], pieces[1::2], strict=True),
    )
    return marked + format_html("{}", pieces[-1])
