"""Conversion between the parts of A2A messages and what graphs take and return."""

from __future__ import annotations

import mimetypes
from typing import Any

from apps.agent_server.a2a.params import invalid
from apps.agent_server.services.graph_schemas import INPUT_FIELD, GraphSchemas
from apps.core.json import dumps_text

JSONObject = dict[str, Any]
_BLOCK_TYPES = ("image", "audio", "video")
_QUESTION_FIELDS = ("question", "prompt", "message", "text", "description")


def to_graph_input(message: JSONObject, schemas: GraphSchemas, *, is_repeated: bool) -> Any:
    """The input of a graph: a chat message, or the fields of the data parts.

    `is_repeated`: the thread has a message with this id, which must not be replaced.
    """
    parts = message["parts"]
    has_properties = bool(schemas.input_schema.get("properties"))
    if schemas.has_messages or not has_properties:
        if not schemas.has_messages and all("data" in part for part in parts):
            return _merge_data(parts)
        return {"messages": [_to_chat_message(message, is_repeated=is_repeated)]}
    if schemas.is_input_wrapped:
        value = parts[0].get("text", parts[0].get("data")) if len(parts) == 1 else None
        if value is None or schemas.describe_problem({INPUT_FIELD: value}):
            raise invalid("message.parts: the agent expects one part with its input.")
        return schemas.to_input({INPUT_FIELD: value})
    if not all("data" in part for part in parts):
        raise invalid("message.parts: the agent has no messages; send its input as a data part.")
    fields = _merge_data(parts)
    if problem := schemas.describe_problem(fields):
        raise invalid(f"message.parts: {problem}")
    return schemas.to_input(fields)


def _merge_data(parts: list[JSONObject]) -> JSONObject:
    fields: JSONObject = {}
    for part in parts:
        if not isinstance(part["data"], dict):
            raise invalid("message.parts: the data of a part must be an object.")
        fields |= part["data"]
    return fields


def _to_chat_message(message: JSONObject, *, is_repeated: bool) -> JSONObject:
    parts = message["parts"]
    is_text = len(parts) == 1 and "text" in parts[0]
    content: Any = parts[0]["text"] if is_text else [_to_block(part) for part in parts]
    chat_message = {"role": "user", "content": content}
    if is_repeated:
        return {**chat_message, "additional_kwargs": {"message_id": message["messageId"]}}
    return {**chat_message, "id": message["messageId"]}


def _to_block(part: JSONObject) -> JSONObject:
    """A content block of LangChain."""
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "data" in part:
        return {"type": "text", "text": dumps_text(part["data"])}
    name = part.get("filename")
    media = part.get("mediaType") or mimetypes.guess_type(name or part.get("url", ""))[0]
    kind = (media or "").partition("/")[0]
    block: JSONObject = {"type": kind if kind in _BLOCK_TYPES else "file"}
    if "raw" in part:
        block |= {"base64": part["raw"], "mime_type": media or "application/octet-stream"}
    else:
        block |= {"url": part["url"], **({"mime_type": media} if media else {})}
    return {**block, **({"extras": {"filename": name}} if name else {})}


def to_resume_value(message: JSONObject, interrupt_ids: list[str]) -> Any:
    """The value that resumes a run: a text, `resume` of a data part, or the data itself.

    With several interrupts, a data part must hold a value for each, by the interrupt's id.
    """
    parts = message["parts"]
    if len(parts) != 1 or not parts[0].keys() & {"text", "data"}:
        raise invalid("message.parts: answer with one part, text or data.")
    value = parts[0].get("text", parts[0].get("data"))
    if isinstance(value, dict) and value.keys() == {"resume"}:
        value = value["resume"]
    is_by_id = isinstance(value, dict) and value and not value.keys() - set(interrupt_ids)
    if len(interrupt_ids) > 1 and not is_by_id:
        ids = ", ".join(interrupt_ids)
        raise invalid(f"message.parts: answer with a data part by interrupt id: {ids}.")
    return value


def to_output_parts(output: Any) -> list[JSONObject]:
    """The parts of a graph's output: of the last AI message, or the values as data."""
    if isinstance(output, str):
        return [{"text": output}] if output else []
    if not isinstance(output, dict):
        return [] if output is None else [{"data": output}]
    messages = output.get("messages")
    if messages is None or not _are_messages(messages):
        return [{"data": output}] if output else []
    parts = to_message_parts(last_ai_content(output))
    if output.get("structured_response") is not None:
        parts.append({"data": output["structured_response"]})
    others = {name: value for name, value in output.items() if not _are_messages(value)}
    return parts or ([{"data": others}] if others else [])


def last_ai_content(output: Any) -> Any:
    """The content of the last AI message of a graph's output; None without one since the user's."""
    messages = output.get("messages") if isinstance(output, dict) else None
    for message in reversed(messages or []) if _are_messages(messages) else ():
        if message.get("type") in {"human", "user"}:
            break
        if message.get("type") in {"ai", "AIMessageChunk"}:
            return message.get("content")
    return None


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict) and "content" in message for message in value
    )


def to_message_parts(content: Any) -> list[JSONObject]:
    """The parts of an AI message: its text, and its files."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    parts: list[JSONObject] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, str):
            parts.append({"text": block})
        elif isinstance(block, dict) and (part := _to_part(block)) is not None:
            parts.append(part)
    return parts


def _to_part(block: JSONObject) -> JSONObject | None:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return {"text": block["text"]}
    if kind not in {*_BLOCK_TYPES, "file"}:
        return None  # reasoning and tool calls are not output
    part: JSONObject
    if isinstance(block.get("base64"), str):
        part = {"raw": block["base64"]}
    elif isinstance(block.get("data"), str) and block.get("source_type") == "base64":
        part = {"raw": block["data"]}
    elif isinstance(block.get("url"), str):
        part = {"url": block["url"]}
    else:
        return None
    extras = block.get("extras") if isinstance(block.get("extras"), dict) else {}
    name = block.get("filename") or (extras or {}).get("filename")
    if isinstance(block.get("mime_type"), str):
        part["mediaType"] = block["mime_type"]
    return {**part, **({"filename": name} if isinstance(name, str) else {})}


def to_question_parts(interrupts: list[JSONObject]) -> list[JSONObject]:
    """The parts of a question: its text, if it has one, and the id and value of each interrupt."""
    parts: list[JSONObject] = []
    for interrupt in interrupts:
        value = interrupt.get("value")
        question = value if isinstance(value, str) else None
        if isinstance(value, dict):
            texts = (value.get(name) for name in _QUESTION_FIELDS)
            question = next((text for text in texts if isinstance(text, str) and text), None)
        if question:
            parts.append({"text": question})
        parts.append({"data": {"id": interrupt.get("id"), "value": value}})
    return parts
