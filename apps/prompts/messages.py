"""The messages of a prompt as pages show and edit them.

A prompt is editable as messages if it is a chat or text template of plain texts. Everything else
(images, few-shot examples, partial variables) is edited as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple

from apps.core.json import dumps_text
from apps.prompts import manifest

F_STRING, MUSTACHE = "f-string", "mustache"
FORMATS = (F_STRING, MUSTACHE)
PLACEHOLDER = "placeholder"
_ROLE_BY_CLASS = {
    "SystemMessagePromptTemplate": "system",
    "HumanMessagePromptTemplate": "human",
    "AIMessagePromptTemplate": "ai",
    "SystemMessage": "system",
    "HumanMessage": "human",
    "AIMessage": "ai",
}
_CLASS_BY_ROLE = {
    "system": "SystemMessagePromptTemplate",
    "human": "HumanMessagePromptTemplate",
    "ai": "AIMessagePromptTemplate",
}
_TAG = re.compile(r"\{\{\{([^{}]*)\}\}\}|\{\{([^{}]*)\}\}")
"""Only braces end a tag, so that a search is linear; more patterns for spaces would not be."""
_KINDS = "#^&/!>"
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message, or the placeholder of a list of messages, whose text is then its variable."""

    role: str
    """`system`, `human`, `ai`, `placeholder`, or `text` for a template without roles."""
    text: str
    is_plain: bool = True
    """Whether the text is all that the message has, so that it can be edited."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """What a page shows of a manifest."""

    messages: Sequence[PromptMessage]
    variables: Sequence[str]
    template_format: str
    model: str | None
    is_editable: bool
    schema: str = ""
    """The JSON schema of a structured prompt."""

    @property
    def as_text(self) -> str:
        """All messages as one text, for a diff."""
        return "\n\n".join(f"[{message.role}]\n{message.text}" for message in self.messages)


def present(content: dict[str, Any]) -> PromptView:
    """Return the messages of a valid manifest; unknown parts are shown as JSON."""
    prompt = manifest.prompt_of(content)
    kwargs = _kwargs(prompt)
    name = manifest.class_name(prompt)
    if name == "PromptTemplate":
        messages = [PromptMessage("text", _text(kwargs.get("template")))]
    elif isinstance(kwargs.get("messages"), list):
        messages = [_present_message(node) for node in kwargs["messages"]]
    else:
        messages = [PromptMessage("text", dumps_text(kwargs), is_plain=False)]
    schema = kwargs.get("schema_")
    is_editable = (
        name in {"PromptTemplate", "ChatPromptTemplate", "StructuredPrompt"}
        and all(message.is_plain for message in messages)
        and not kwargs.get("partial_variables")
    )
    return PromptView(
        messages=messages,
        variables=manifest.input_variables(content),
        template_format=_template_format(kwargs),
        model=manifest.model_class(content),
        is_editable=is_editable,
        schema=dumps_text(schema) if schema else "",
    )


def _present_message(node: Any) -> PromptMessage:
    kwargs, name = _kwargs(node), manifest.class_name(node)
    if name == "MessagesPlaceholder":
        is_plain = not set(kwargs) - {"variable_name"}
        return PromptMessage(PLACEHOLDER, _text(kwargs.get("variable_name")), is_plain=is_plain)
    role = _ROLE_BY_CLASS.get(name)
    if role is None:
        return PromptMessage("text", dumps_text(node), is_plain=False)
    if "content" in kwargs:
        return PromptMessage(role, _text(kwargs["content"]), is_plain=False)
    template = _kwargs(kwargs.get("prompt"))
    is_plain = (
        manifest.class_name(kwargs.get("prompt")) == "PromptTemplate"
        and isinstance(template.get("template"), str)
        and not set(kwargs) - {"prompt"}
    )
    text = template.get("template") if is_plain else kwargs.get("prompt")
    return PromptMessage(role, _text(text), is_plain=is_plain)


def _template_format(kwargs: Mapping[str, Any]) -> str:
    """The format of the first template; templates without one are f-strings."""
    nodes = [kwargs]
    if isinstance(kwargs.get("messages"), list):
        nodes = [_kwargs(_kwargs(node).get("prompt")) for node in kwargs["messages"]]
    formats = [node["template_format"] for node in nodes if node.get("template_format")]
    return MUSTACHE if MUSTACHE in formats else F_STRING


def _kwargs(node: Any) -> Mapping[str, Any]:
    kwargs = node.get("kwargs") if isinstance(node, dict) else None
    return kwargs if isinstance(kwargs, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps_text(value)


class MustacheTag(NamedTuple):
    """A tag with its place in the template; `kind` is its mark, such as `#`, or empty."""

    start: int
    end: int
    kind: str
    name: str


def iterate_tags(text: str) -> Iterator[MustacheTag]:
    """Yield the tags of a Mustache template, in linear time."""
    for match in _TAG.finditer(text):
        is_raw = match[1] is not None
        content = (match[1] if is_raw else match[2]).strip()
        kind = content[:1] if content[:1] in _KINDS and not is_raw else ""
        yield MustacheTag(match.start(), match.end(), kind, content.removeprefix(kind).strip())


def find_variables(text: str, template_format: str) -> list[str]:
    """The variables of a template, in order. Raises `ValueError` for a malformed one."""
    if template_format == MUSTACHE:
        tags = list(iterate_tags(text))
        is_name = all(tag.kind == "!" or len(tag.name.split()) < 2 for tag in tags)
        if text.count("{{") != len(tags) or not is_name:
            raise ValueError("A `{{` without its `}}`.")
        names = [_NAME.match(tag.name) for tag in tags if tag.kind not in {"/", "!", ">"}]
        return list(dict.fromkeys(name[0] for name in names if name is not None))
    fields = []
    for _, name, specification, _ in Formatter().parse(text):
        if name is None:
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or "{" in (specification or ""):
            raise ValueError("Braces must contain the name of a variable; write `{{` for a brace.")
        fields.append(name)
    return list(dict.fromkeys(fields))


def new_manifest() -> dict[str, Any]:
    """An empty chat prompt."""
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "prompts", "chat", "ChatPromptTemplate"],
        "kwargs": {"input_variables": [], "messages": []},
    }


def replace_messages(
    content: dict[str, Any], messages: Sequence[PromptMessage], template_format: str
) -> dict[str, Any]:
    """Return a copy of an editable manifest with other messages; the bound model stays.

    Raises `ValueError` for a malformed template.
    """
    changed = deepcopy(content)
    prompt = manifest.prompt_of(changed)
    kwargs = prompt["kwargs"]
    variables: list[str] = []
    for message in messages:
        if message.role == PLACEHOLDER:
            variables.append(message.text)
        else:
            variables += find_variables(message.text, template_format)
    kwargs["input_variables"] = sorted(set(variables))
    if manifest.class_name(prompt) == "PromptTemplate":
        kwargs["template"] = messages[0].text
        kwargs["template_format"] = template_format
    else:
        kwargs["messages"] = [_build_message(message, template_format) for message in messages]
    return changed


def _build_message(message: PromptMessage, template_format: str) -> dict[str, Any]:
    if message.role == PLACEHOLDER:
        return _constructor("chat", "MessagesPlaceholder", {"variable_name": message.text})
    template = {
        "input_variables": find_variables(message.text, template_format),
        "template": message.text,
        "template_format": template_format,
    }
    prompt = _constructor("prompt", "PromptTemplate", template)
    return _constructor("chat", _CLASS_BY_ROLE[message.role], {"prompt": prompt})


def _constructor(module: str, name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "prompts", module, name],
        "kwargs": kwargs,
    }
