"""Reads the spans of LiteLLM's OpenTelemetry callback (1.110.2).

A call is a span `litellm_request` with a child `raw_gen_ai_request`: the provider's request and
response, whose objects are Python literals. Within a span of the application the first is not
sent. LiteLLM then writes its attributes to the application's span, where each call replaces those
of the call before, and only the raw spans tell the calls apart.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

import orjson

from apps.ingest.otlp.attributes import parse_json
from apps.ingest.otlp.spans import Span

_SCOPE: Final = "litellm"
_CALL: Final = "litellm.call_id"
_INPUTS: Final = (
    "system",
    "system_instruction",
    "systemInstruction",
    "instructions",
    "messages",
    "contents",
    "input",
    "prompt",
)
_OUTPUTS: Final = (
    "role",
    "content",
    "choices",
    "candidates",
    "output",
    "stringified_raw_response",
    "promptFeedback",
    "stop_reason",
    "stopReason",
    "usage",
    "usageMetadata",
)
_STATED_KINDS: Final = frozenset({"langsmith.span.kind", "openinference.span.kind"})
"""With these, the application says itself what its span is."""
_USAGE_DETAILS: Final = {
    "prompt_tokens_details": ("cached_tokens", "cache_creation_tokens"),
    "completion_tokens_details": ("reasoning_tokens", "audio_tokens"),
}
_TOOL_CALL: Final = re.compile(r"gen_ai\.completion\.([0-9]{1,9})\.function_call\.(\w+)")
# An open string extends to the end, so that no quote in it is tried again.
_LITERAL: Final = re.compile(
    r"""'[^'\\]*(?:\\.[^'\\]*)*(?:'|\\?\Z)|"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)"""
    r"""|\b(?:None|True|False)\b""",
    re.DOTALL,
)
_CONSTANTS: Final = {"None": "null", "True": "true", "False": "false"}


def rewrite_raw_request(span: Span) -> bool:
    """Rename the attributes of a raw request to those of a model call.

    Returns False, and leaves the span as it is, if it is of another kind.
    """
    if span.source.scope_name != _SCOPE or _CALL in span.attributes:
        return False
    fields: dict[str, Any] = {}
    others: dict[str, Any] = {}
    provider = ""
    for name, value in span.attributes.items():
        if name.startswith("llm.") and name.count(".") > 1:
            _, provider, field_name = name.split(".", 2)
            fields[field_name] = parse_literal(value)
        else:
            others[name] = value
    inputs = {name: fields.pop(name) for name in _INPUTS if name in fields}
    outputs = {name: fields.pop(name) for name in _OUTPUTS if name in fields}
    if not inputs or not outputs.keys() - {"usage", "usageMetadata"}:
        return False
    model = fields.pop("model", None) or fields.pop("modelVersion", None)
    span.attributes = others | {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": provider,
        "gen_ai.prompt": inputs,
        "gen_ai.completion": outputs,
        "llm.invocation_parameters": fields,
    }
    if isinstance(model, str):
        span.attributes["gen_ai.response.model"] = model
    return True


def complete_call(span: Span) -> bool:
    """Complete the attributes of a call; return whether other spans contain the calls.

    That is so for a span of the application, if LiteLLM also sent a raw request for each call. It
    sends none without message content and in the mode of the semantic conventions, and one without
    a response for streams, cached answers and embeddings: then the last call is all that is known.
    """
    attributes = span.attributes
    if _CALL not in attributes:
        return False
    if "gen_ai.output.messages" in attributes:
        span.attributes = attributes = _join_tool_calls(
            attributes, are_of_this_call=span.source.scope_name == _SCOPE
        )
    usage = parse_literal(attributes.get("metadata.usage_object"))
    for group, names in _USAGE_DETAILS.items() if isinstance(usage, dict) else ():
        details = usage.get(group)
        for name in names if isinstance(details, dict) else ():
            if isinstance(count := details.get(name), int) and count:
                attributes.setdefault(f"gen_ai.usage.{group}.{name}", count)
    return (
        span.source.scope_name != _SCOPE
        and not _STATED_KINDS & attributes.keys()
        and {"gen_ai.system", "gen_ai.output.messages", "gen_ai.response.model"}
        <= attributes.keys()
        and attributes.get("llm.is_streaming") != "True"
        and attributes.get("litellm.cache_hit") is not True
    )


def _join_tool_calls(attributes: dict[str, Any], *, are_of_this_call: bool) -> dict[str, Any]:
    """Put the tool calls, which are attributes of their own, into the message of the answer.

    In a span of the application they may be of an earlier call, whose answer is replaced.
    """
    others: dict[str, Any] = {}
    functions: dict[str, dict[str, Any]] = {}
    for name, value in attributes.items():
        if match := _TOOL_CALL.fullmatch(name):
            functions.setdefault(match[1], {})[match[2]] = value
        else:
            others[name] = value
    messages = parse_json(others["gen_ai.output.messages"])
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not functions or not isinstance(last, dict):
        return others
    reason = last.get("finish_reason")
    if reason == "tool_calls" or (reason and are_of_this_call):
        last["tool_calls"] = [
            {"type": "function", "function": functions[key]} for key in sorted(functions, key=int)
        ]
        others["gen_ai.output.messages"] = messages
    return others


def parse_literal(value: Any) -> Any:
    """The list or object in a string of Python syntax; any other value unchanged.

    The text is converted to JSON, since parsing it as Python needs a multiple of the memory.
    """
    if not isinstance(value, str) or value[:1] not in {"{", "["}:
        return value
    try:
        return orjson.loads(_LITERAL.sub(_to_json, value))
    except (ValueError, SyntaxError, TypeError):
        return value


def _to_json(match: re.Match[str]) -> str:
    text = match[0]
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    content = ast.literal_eval(text) if "\\" in text or "\n" in text else text[1:-1]
    return orjson.dumps(content).decode()
