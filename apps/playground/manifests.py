"""Converts settings to the manifests of prompt commits, and back.

A manifest is LangChain's serialisation: a prompt, or a sequence of a prompt and a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from apps.core.json import dumps_text
from apps.playground.setting import Setting, TemplateFormat
from apps.playground.templates import find_text_variables, list_variables
from apps.prompts import manifest
from apps.prompts.messages import F_STRING, MUSTACHE
from apps.providers.adapters.base import dict_of, list_of_dicts, text_of
from apps.providers.adapters.openai import build_tool
from apps.providers.catalogue import PROVIDERS
from apps.providers.chat import (
    Block,
    ChatMessage,
    ChatTool,
    ChatToolCall,
    FileBlock,
    ImageBlock,
    ModelSettings,
    Role,
    TextBlock,
)

_PROMPTS = ["langchain", "prompts"]
_MESSAGES = ["langchain", "schema", "messages"]
_SEQUENCE = ["langchain", "schema", "runnable", "RunnableSequence"]
_TEMPLATE_CLASSES: Mapping[str, str] = {
    "system": "SystemMessagePromptTemplate",
    "human": "HumanMessagePromptTemplate",
    "ai": "AIMessagePromptTemplate",
}
_MESSAGE_CLASSES: Mapping[str, str] = {
    "system": "SystemMessage",
    "human": "HumanMessage",
    "ai": "AIMessage",
    "tool": "ToolMessage",
}
_ROLES: dict[str, Role] = {
    "SystemMessagePromptTemplate": "system",
    "HumanMessagePromptTemplate": "human",
    "AIMessagePromptTemplate": "ai",
    "SystemMessage": "system",
    "HumanMessage": "human",
    "AIMessage": "ai",
    "ToolMessage": "tool",
}
_MODEL_CLASSES: Mapping[str, list[str]] = {
    "openai": ["langchain", "chat_models", "openai", "ChatOpenAI"],
    "openai_compatible": ["langchain", "chat_models", "openai", "ChatOpenAI"],
    "azure_openai": ["langchain", "chat_models", "azure_openai", "AzureChatOpenAI"],
    "anthropic": ["langchain", "chat_models", "anthropic", "ChatAnthropic"],
    "google": ["langchain_google_genai", "chat_models", "ChatGoogleGenerativeAI"],
}
_KEY_FIELDS: Mapping[str, str] = {
    "openai": "openai_api_key",
    "openai_compatible": "openai_api_key",
    "azure_openai": "openai_api_key",
    "anthropic": "anthropic_api_key",
    "google": "google_api_key",
}
_PROVIDERS_BY_CLASS = {
    "ChatOpenAI": "openai",
    "AzureChatOpenAI": "azure_openai",
    "ChatAnthropic": "anthropic",
    "ChatGoogleGenerativeAI": "google",
}
_PARAMETERS = (
    *("temperature", "top_p", "max_tokens", "seed", "frequency_penalty", "presence_penalty"),
    *("reasoning_effort", "thinking_budget"),
)
_BASE_URL_KEYS = ("base_url", "openai_api_base", "azure_endpoint")


def build_manifest(setting: Setting) -> dict[str, Any]:
    """Return the manifest of the setting's prompt with its model. Raises `BadSetting`."""
    kwargs: dict[str, Any] = {
        "input_variables": sorted(list_variables(setting)),
        "messages": [_build_message(item, setting.template_format) for item in setting.messages],
    }
    name = "ChatPromptTemplate"
    path = [*_PROMPTS, "chat"]
    if setting.response_schema is not None:
        kwargs["schema_"] = setting.response_schema
        name, path = "StructuredPrompt", ["langchain_core", "prompts", "structured"]
    prompt = _constructor([*path, name], kwargs)
    model = _constructor(["langchain", "schema", "runnable", "RunnableBinding"], _binding(setting))
    return _constructor([*_SEQUENCE], {"first": prompt, "middle": [], "last": model})


def _binding(setting: Setting) -> dict[str, Any]:
    model = setting.model
    kwargs: dict[str, Any] = {"model": model.model}
    for name in _PARAMETERS:
        if (value := getattr(model, name)) is not None:
            kwargs[name] = value
    if model.stop:
        kwargs["stop"] = model.stop
    if model.base_url:
        kwargs["azure_endpoint" if model.provider == "azure_openai" else "base_url"] = (
            model.base_url
        )
    if model.api_version:
        kwargs["openai_api_version"] = model.api_version
    if (provider := PROVIDERS.get(model.provider)) is not None:
        secret = {"lc": 1, "type": "secret", "id": [provider.key_name]}
        kwargs[_KEY_FIELDS[model.provider]] = secret
    bound: dict[str, Any] = {}
    if setting.tools:
        bound["tools"] = [build_tool(tool) for tool in setting.tools]
    if model.tool_choice:
        bound["tool_choice"] = model.tool_choice
    path = _MODEL_CLASSES.get(model.provider, _MODEL_CLASSES["openai"])
    return {"bound": _constructor(path, kwargs), "kwargs": bound}


def _build_message(message: ChatMessage, template_format: TemplateFormat) -> dict[str, Any]:
    if message.role == "placeholder":
        path = [*_PROMPTS, "chat", "MessagesPlaceholder"]
        return _constructor(path, {"variable_name": message.text.strip()})
    is_template = message.role in _TEMPLATE_CLASSES and not message.tool_calls
    if not is_template or template_format == "none":
        return _build_fixed_message(message)
    path = [*_PROMPTS, "chat", _TEMPLATE_CLASSES[message.role]]
    if isinstance(message.content, str):
        return _constructor(path, {"prompt": _build_template(message.content, template_format)})
    blocks = [_build_block_template(block, template_format) for block in message.content]
    return _constructor(path, {"prompt": blocks})


def _build_template(text: str, template_format: str) -> dict[str, Any]:
    template = {
        "input_variables": find_text_variables(text, template_format),
        "template": text,
        "template_format": template_format,
    }
    return _constructor([*_PROMPTS, "prompt", "PromptTemplate"], template)


def _build_block_template(block: Block, template_format: str) -> dict[str, Any]:
    match block:
        case TextBlock():
            return _build_template(block.text, template_format)
        case ImageBlock():
            url = block.url or f"data:{block.mime_type or 'image/png'};base64,{block.data or ''}"
            kwargs = {"input_variables": [], "template": {"url": url}}
            return _constructor([*_PROMPTS, "image", "ImagePromptTemplate"], kwargs)
        case FileBlock():
            template = {"type": "file", **_file_fields(block)}
            kwargs = {"template": template, "template_format": template_format}
            return _constructor(["langchain_core", "prompts", "dict", "DictPromptTemplate"], kwargs)


def _file_fields(block: FileBlock) -> dict[str, Any]:
    return {
        "base64": block.data,
        "mime_type": block.mime_type,
        **({"filename": block.filename} if block.filename else {}),
    }


def _build_fixed_message(message: ChatMessage) -> dict[str, Any]:
    kwargs: dict[str, Any] = {"content": _build_content(message.content)}
    if message.tool_calls:
        kwargs["tool_calls"] = [
            {"id": call.id, "name": call.name, "args": call.arguments, "type": "tool_call"}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        kwargs["tool_call_id"] = message.tool_call_id or ""
        if message.name:
            kwargs["name"] = message.name
    return _constructor([*_MESSAGES, _MESSAGE_CLASSES[message.role]], kwargs)


def _build_content(content: str | list[Block]) -> Any:
    if isinstance(content, str):
        return content
    result: list[dict[str, Any]] = []
    for block in content:
        match block:
            case TextBlock():
                result.append({"type": "text", "text": block.text})
            case ImageBlock(url=str() as url):
                result.append({"type": "image_url", "image_url": {"url": url}})
            case ImageBlock():
                url = f"data:{block.mime_type or 'image/png'};base64,{block.data or ''}"
                result.append({"type": "image_url", "image_url": {"url": url}})
            case FileBlock():
                result.append({"type": "file", **_file_fields(block)})
    return result


def _constructor(path: list[str], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


# Manifest to setting


def read_manifest(content: dict[str, Any]) -> tuple[Setting, list[str]]:
    """Return the setting of a commit, and notices about what it cannot show."""
    prompt = manifest.prompt_of(content)
    kwargs = _kwargs(prompt)
    notices: list[str] = []
    if manifest.class_name(prompt) == "PromptTemplate":
        template_format = _template_format(kwargs)
        messages = [ChatMessage("human", text_of(kwargs.get("template")))]
    else:
        nodes = kwargs.get("messages")
        template_format = _format_of_messages(nodes)
        messages = list(_read_messages(nodes, template_format, notices))
    if kwargs.get("partial_variables"):
        notices.append("The prompt has partial variables, which the playground does not fill in.")
    model, bound = _read_model(content)
    schema = kwargs.get("schema_")
    setting = Setting(
        messages,
        model,
        template_format=template_format,
        tools=_read_tools(bound.get("tools")),
        response_schema=schema if isinstance(schema, dict) else None,
    )
    return setting, notices


def _kwargs(node: Any) -> dict[str, Any]:
    return dict_of(dict_of(node).get("kwargs"))


def _template_format(kwargs: dict[str, Any]) -> TemplateFormat:
    return "mustache" if kwargs.get("template_format") == MUSTACHE else "f-string"


def _templates(nodes: Any) -> Iterator[dict[str, Any]]:
    for node in list_of_dicts(nodes):
        prompt = _kwargs(node).get("prompt")
        for template in prompt if isinstance(prompt, list) else [prompt]:
            if manifest.class_name(template) == "PromptTemplate":
                yield _kwargs(template)


def _format_of_messages(nodes: Any) -> TemplateFormat:
    formats = {_template_format(kwargs) for kwargs in _templates(nodes)}
    if not formats:
        return "none"
    return "mustache" if formats == {"mustache"} else "f-string"


def _read_messages(
    nodes: Any, template_format: TemplateFormat, notices: list[str]
) -> Iterator[ChatMessage]:
    for node in list_of_dicts(nodes):
        name, kwargs = manifest.class_name(node), _kwargs(node)
        role = _ROLES.get(name)
        if name == "MessagesPlaceholder":
            yield ChatMessage("placeholder", text_of(kwargs.get("variable_name")))
        elif role is None:
            notices.append(f"A message of the type {name or 'unknown'} is shown as JSON.")
            yield ChatMessage("human", _escape(dumps_text(node), template_format))
        elif "prompt" in kwargs:
            yield ChatMessage(role, _read_templates(kwargs["prompt"], notices))
        else:
            yield _read_fixed_message(role, kwargs, template_format)


def _read_templates(prompt: Any, notices: list[str]) -> str | list[Block]:
    if not isinstance(prompt, list):
        return text_of(_kwargs(prompt).get("template"))
    blocks: list[Block] = []
    for node in list_of_dicts(prompt):
        name, kwargs = manifest.class_name(node), _kwargs(node)
        if name == "PromptTemplate":
            blocks.append(TextBlock(text_of(kwargs.get("template"))))
        elif name == "ImagePromptTemplate":
            blocks.append(_read_image(text_of(dict_of(kwargs.get("template")).get("url"))))
        elif (block := _read_file(dict_of(kwargs.get("template")))) is not None:
            blocks.append(block)
        else:
            notices.append("A part of a message cannot be shown.")
    return blocks


def _read_image(url: str) -> ImageBlock:
    head, separator, data = url.partition(";base64,")
    if separator and head.startswith("data:"):
        return ImageBlock(data=data, mime_type=head.removeprefix("data:"))
    return ImageBlock(url=url)


def _read_file(fields: dict[str, Any]) -> FileBlock | None:
    data, mime_type = text_of(fields.get("base64")), text_of(fields.get("mime_type"))
    if fields.get("type") != "file" or not data:
        return None
    return FileBlock(data, mime_type, text_of(fields.get("filename")) or None)


def _read_fixed_message(
    role: Role, kwargs: dict[str, Any], template_format: TemplateFormat
) -> ChatMessage:
    content = kwargs.get("content")
    blocks: list[Block] = []
    for item in list_of_dicts(content):
        if item.get("type") == "image_url":
            blocks.append(_read_image(text_of(dict_of(item.get("image_url")).get("url"))))
        elif (file := _read_file(item)) is not None:
            blocks.append(file)
        else:
            blocks.append(TextBlock(_escape(text_of(item.get("text")), template_format)))
    calls = [
        ChatToolCall(text_of(call.get("id")), text_of(call.get("name")), dict_of(call.get("args")))
        for call in list_of_dicts(kwargs.get("tool_calls"))
    ]
    text = content if isinstance(content, str) else ""
    return ChatMessage(
        role,
        blocks or _escape(text, template_format),
        tool_calls=calls,
        tool_call_id=text_of(kwargs.get("tool_call_id")) or None,
        name=text_of(kwargs.get("name")) or None,
    )


def _escape(text: str, template_format: TemplateFormat) -> str:
    """Return a fixed text as a template; Mustache has no escape for its braces."""
    return text.replace("{", "{{").replace("}", "}}") if template_format == F_STRING else text


def _read_tools(values: Any) -> list[ChatTool]:
    tools = []
    for item in list_of_dicts(values):
        function = dict_of(item.get("function")) or item
        schema = function.get("parameters") or function.get("input_schema")
        if name := text_of(function.get("name")):
            tools.append(ChatTool(name, text_of(function.get("description")), dict_of(schema)))
    return tools


def _read_model(content: dict[str, Any]) -> tuple[ModelSettings, dict[str, Any]]:
    """The bound model, without one an empty name; and the keywords of its bindings."""
    node, bound = manifest.find_model(content)
    kwargs = _kwargs(node)
    name = manifest.class_name(node)
    base_url = next((url for key in _BASE_URL_KEYS if (url := text_of(kwargs.get(key)))), None)
    provider = _PROVIDERS_BY_CLASS.get(name, "openai")
    if provider == "openai" and base_url is not None:
        provider = "openai_compatible"
    fields: dict[str, Any] = {
        "provider": provider,
        "model": next(
            (
                text
                for key in ("model", "model_name", "azure_deployment", "deployment_name")
                if (text := text_of(kwargs.get(key)))
            ),
            "",
        ),
    }
    fields |= {name: kwargs[name] for name in _PARAMETERS if kwargs.get(name) is not None}
    stop = kwargs.get("stop") or kwargs.get("stop_sequences")
    fields["stop"] = stop if isinstance(stop, list) else None
    if provider in {"azure_openai", "openai_compatible"}:
        fields["base_url"] = base_url
        fields["api_version"] = text_of(kwargs.get("openai_api_version")) or None
    choice = bound.get("tool_choice")
    fields["tool_choice"] = choice if isinstance(choice, str) else None
    return convert_model(fields), bound


def read_model(content: dict[str, Any]) -> ModelSettings:
    """Return the model of a manifest of a model, or of a prompt with one; else an empty name."""
    if manifest.find_model(content)[0] is None:
        content = _constructor([*_SEQUENCE], {"first": {}, "middle": [], "last": content})
    return _read_model(content)[0]


def convert_model(fields: dict[str, Any]) -> ModelSettings:
    """Return the settings of a model; parameters of a wrong type are left out."""
    model = ModelSettings(str(fields["provider"]), str(fields["model"]))
    for name, value in fields.items():
        try:
            converted = msgspec.convert({"provider": "", "model": "", name: value}, ModelSettings)
        except msgspec.ValidationError:
            continue
        setattr(model, name, getattr(converted, name))
    return model
