"""One conversation with an order desk, as each format records its input and its reply.

System prompt, a question with an image, thinking, two tool calls with results, of which one
failed, and the model's reply.
"""

from __future__ import annotations

from typing import Any

SYSTEM = "You help with orders."
QUESTION = "Where is order 7?"
THOUGHT = "The order and its parcel must be looked up."
SHIPPED = "shipped on Monday"
NO_PARCEL = "no such parcel"
REPLY = "It arrives on Tuesday."
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJ"
    "ggg=="
)
PIXEL_ADDRESS = f"data:image/png;base64,{PIXEL}"


def _constructor(name: str, **kwargs: Any) -> dict[str, Any]:
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


_LANGCHAIN_CALLS = [
    {"name": "find_order", "args": {"order": 7}, "id": "c1", "type": "tool_call"},
    {"name": "find_parcel", "args": {"parcel": "x"}, "id": "c2", "type": "tool_call"},
]
_LANGCHAIN_ANSWER = {
    "content": [
        {"type": "reasoning", "reasoning": THOUGHT},
        # The provider's own block, which LangChain keeps beside `tool_calls`.
        {"type": "tool_use", "id": "c1", "name": "find_order", "input": {"order": 7}},
    ],
    "tool_calls": _LANGCHAIN_CALLS,
}
_LANGCHAIN_QUESTION = [
    {"type": "text", "text": QUESTION},
    {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
]

LANGCHAIN_SERIALIZED = (
    {
        "messages": [
            [
                _constructor("SystemMessage", content=SYSTEM, type="system"),
                _constructor("HumanMessage", content=_LANGCHAIN_QUESTION, type="human"),
                _constructor("AIMessage", type="ai", **_LANGCHAIN_ANSWER),
                _constructor("ToolMessage", content=SHIPPED, type="tool", tool_call_id="c1"),
                _constructor(
                    "ToolMessage",
                    content=NO_PARCEL,
                    type="tool",
                    tool_call_id="c2",
                    status="error",
                ),
            ]
        ]
    },
    {
        "generations": [
            [
                {
                    "text": REPLY,
                    "type": "ChatGeneration",
                    "message": _constructor("AIMessage", content=REPLY, type="ai", tool_calls=[]),
                }
            ]
        ],
        "llm_output": {"model_name": "any"},
    },
)
LANGCHAIN_PLAIN = (
    {
        "messages": [
            {"type": "system", "content": SYSTEM},
            {"type": "human", "content": _LANGCHAIN_QUESTION, "id": "m1"},
            {"type": "ai", "id": "m2", **_LANGCHAIN_ANSWER},
            {"type": "tool", "content": SHIPPED, "tool_call_id": "c1", "status": "success"},
            {"type": "tool", "content": NO_PARCEL, "tool_call_id": "c2", "status": "error"},
        ]
    },
    {"messages": [{"type": "ai", "content": REPLY, "tool_calls": []}]},
)
CHAT_COMPLETIONS = (
    {
        "model": "gpt",
        "messages": [
            {"role": "developer", "content": SYSTEM},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": QUESTION},
                    {"type": "image_url", "image_url": {"url": PIXEL_ADDRESS}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": THOUGHT,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "find_order", "arguments": '{"order": 7}'},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "find_parcel", "arguments": '{"parcel": "x"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": SHIPPED},
            {"role": "tool", "tool_call_id": "c2", "content": NO_PARCEL, "is_error": True},
        ],
    },
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": REPLY, "refusal": None},
            }
        ],
        "usage": {"total_tokens": 40},
    },
)
RESPONSES = (
    {
        "model": "gpt",
        "instructions": SYSTEM,
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": QUESTION},
                    {"type": "input_image", "image_url": PIXEL_ADDRESS, "detail": "auto"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": THOUGHT}],
                "encrypted_content": "gAAAA",
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "find_order",
                "arguments": '{"order":7}',
            },
            {
                "type": "function_call",
                "id": "fc_2",
                "call_id": "c2",
                "name": "find_parcel",
                "arguments": '{"parcel":"x"}',
            },
            {"type": "function_call_output", "call_id": "c1", "output": SHIPPED},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": NO_PARCEL}],
                "status": "incomplete",
            },
        ],
    },
    {
        "id": "resp_1",
        "object": "response",
        "instructions": SYSTEM,
        "output": [
            {"type": "reasoning", "id": "rs_2", "summary": []},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": REPLY, "annotations": []}],
            },
        ],
        "usage": {"total_tokens": 40},
    },
)
ANTHROPIC = (
    {
        "model": "claude",
        "max_tokens": 100,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": QUESTION},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"},
                    {"type": "tool_use", "id": "c1", "name": "find_order", "input": {"order": 7}},
                    {
                        "type": "tool_use",
                        "id": "c2",
                        "name": "find_parcel",
                        "input": {"parcel": "x"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": SHIPPED},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "is_error": True,
                        "content": [{"type": "text", "text": NO_PARCEL}],
                    },
                ],
            },
        ],
    },
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": REPLY, "citations": None}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 30, "output_tokens": 10},
    },
)
GEMINI = (
    {
        "model": "gemini",
        "config": {"systemInstruction": {"parts": [{"text": SYSTEM}]}},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": QUESTION},
                    {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": THOUGHT, "thought": True},
                    {"functionCall": {"name": "find_order", "args": {"order": 7}}},
                    {"functionCall": {"name": "find_parcel", "args": {"parcel": "x"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "find_order", "response": {"result": SHIPPED}}},
                    {"functionResponse": {"name": "find_parcel", "response": {"error": NO_PARCEL}}},
                ],
            },
        ],
    },
    {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": REPLY}]},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {"totalTokenCount": 40},
    },
)
AI_SDK = (
    {
        "system": SYSTEM,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": QUESTION},
                    {"type": "file", "data": PIXEL, "mediaType": "image/png"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "text": THOUGHT},
                    {
                        "type": "tool-call",
                        "toolCallId": "c1",
                        "toolName": "find_order",
                        "input": {"order": 7},
                    },
                    {
                        "type": "tool-call",
                        "toolCallId": "c2",
                        "toolName": "find_parcel",
                        "input": {"parcel": "x"},
                    },
                ],
            },
            {
                "role": "tool",
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "c1",
                        "toolName": "find_order",
                        "output": {"type": "text", "value": SHIPPED},
                    },
                    {
                        "type": "tool-result",
                        "toolCallId": "c2",
                        "toolName": "find_parcel",
                        "output": {"type": "error-text", "value": NO_PARCEL},
                    },
                ],
            },
        ],
    },
    {
        "content": [{"type": "text", "text": REPLY}],
        "finishReason": "stop",
        "usage": {"totalTokens": 40},
    },
)
AI_SDK_UI = (
    {
        "system": SYSTEM,
        "messages": [
            {
                "id": "u1",
                "role": "user",
                "parts": [
                    {"type": "text", "text": QUESTION},
                    {"type": "file", "url": PIXEL_ADDRESS, "mediaType": "image/png"},
                ],
            },
            {
                "id": "a1",
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": THOUGHT, "state": "done"},
                    {
                        "type": "tool-find_order",
                        "toolCallId": "c1",
                        "state": "output-available",
                        "input": {"order": 7},
                        "output": SHIPPED,
                    },
                    {
                        "type": "dynamic-tool",
                        "toolName": "find_parcel",
                        "toolCallId": "c2",
                        "state": "output-error",
                        "input": {"parcel": "x"},
                        "errorText": NO_PARCEL,
                    },
                ],
            },
        ],
    },
    {"text": REPLY, "toolCalls": [], "finishReason": "stop"},
)
BEDROCK = (
    {
        "modelId": "anthropic.claude",
        "system": [{"text": SYSTEM}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": QUESTION},
                    {"image": {"format": "png", "source": {"bytes": PIXEL}}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "s"}}},
                    {"toolUse": {"toolUseId": "c1", "name": "find_order", "input": {"order": 7}}},
                    {
                        "toolUse": {
                            "toolUseId": "c2",
                            "name": "find_parcel",
                            "input": {"parcel": "x"},
                        }
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "c1", "content": [{"text": SHIPPED}]}},
                    {
                        "toolResult": {
                            "toolUseId": "c2",
                            "content": [{"text": NO_PARCEL}],
                            "status": "error",
                        }
                    },
                ],
            },
        ],
    },
    {
        "output": {"message": {"role": "assistant", "content": [{"text": REPLY}]}},
        "stopReason": "end_turn",
        "usage": {"totalTokens": 40},
    },
)

CONVERSATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "langchain, serialized": LANGCHAIN_SERIALIZED,
    "langchain, plain": LANGCHAIN_PLAIN,
    "chat completions": CHAT_COMPLETIONS,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ai sdk": AI_SDK,
    "ai sdk, ui messages": AI_SDK_UI,
    "bedrock": BEDROCK,
}
MEDIA_BLOCKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "langchain v1 image": (
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
        "image",
        PIXEL_ADDRESS,
    ),
    "langchain v1 url": (
        {"type": "image", "url": "https://example.com/a.png"},
        "image",
        "https://example.com/a.png",
    ),
    "langchain v0 image": (
        {"type": "image", "source_type": "base64", "data": PIXEL, "mime_type": "image/png"},
        "image",
        PIXEL_ADDRESS,
    ),
    "langchain v0 url": (
        {"type": "image", "source_type": "url", "url": "https://example.com/a.png"},
        "image",
        "https://example.com/a.png",
    ),
    "langchain audio": (
        {"type": "audio", "base64": "UklGRgAA", "mime_type": "audio/wav"},
        "audio",
        "data:audio/wav;base64,UklGRgAA",
    ),
    "langchain file": (
        {"type": "file", "base64": "JVBERi0x", "mime_type": "application/pdf"},
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "langchain google media": (
        {"type": "media", "mime_type": "application/pdf", "data": "JVBERi0x"},
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "chat completions image": (
        {"type": "image_url", "image_url": {"url": PIXEL_ADDRESS}},
        "image",
        PIXEL_ADDRESS,
    ),
    "image address as text": (
        {"type": "image_url", "image_url": PIXEL_ADDRESS},
        "image",
        PIXEL_ADDRESS,
    ),
    "chat completions audio": (
        {"type": "input_audio", "input_audio": {"data": "SUQzBAAA", "format": "mp3"}},
        "audio",
        "data:audio/mpeg;base64,SUQzBAAA",
    ),
    "chat completions file": (
        {
            "type": "file",
            "file": {
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,JVBERi0x",
            },
        },
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "responses image": (
        {"type": "input_image", "image_url": PIXEL_ADDRESS},
        "image",
        PIXEL_ADDRESS,
    ),
    "responses file": (
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0x"},
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "responses generated image": (
        {"type": "image_generation_call", "id": "ig_1", "result": PIXEL},
        "image",
        PIXEL_ADDRESS,
    ),
    "anthropic image": (
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
        },
        "image",
        PIXEL_ADDRESS,
    ),
    "anthropic url": (
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        "image",
        "https://example.com/a.png",
    ),
    "anthropic document": (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"},
        },
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "gemini inline": (
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        "image",
        PIXEL_ADDRESS,
    ),
    "gemini inline, snake case": (
        {"inline_data": {"mime_type": "image/png", "data": PIXEL}},
        "image",
        PIXEL_ADDRESS,
    ),
    "gemini file": (
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}},
        "video",
        "gs://bucket/a.mp4",
    ),
    "ai sdk image": ({"type": "image", "image": PIXEL}, "image", PIXEL_ADDRESS),
    "ai sdk buffer": (
        {"type": "image", "image": {"type": "Buffer", "data": [137, 80, 78, 71]}},
        "image",
        "data:image/png;base64,iVBORw==",
    ),
    "ai sdk byte array": (
        {
            "type": "image",
            "image": {"0": 137, "1": 80, "2": 78, "3": 71},
            "mediaType": "image/png",
        },
        "image",
        "data:image/png;base64,iVBORw==",
    ),
    "ai sdk file": (
        {
            "type": "file",
            "data": "JVBERi0x",
            "mediaType": "application/pdf",
            "filename": "a.pdf",
        },
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "opentelemetry blob": (
        {"type": "blob", "mime_type": "image/png", "modality": "image", "content": PIXEL},
        "image",
        PIXEL_ADDRESS,
    ),
    "opentelemetry uri": (
        {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
        "image",
        "https://example.com/a.png",
    ),
    "bedrock image": (
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
        "image",
        PIXEL_ADDRESS,
    ),
    "bedrock document": (
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0x"}}},
        "file",
        "data:application/pdf;base64,JVBERi0x",
    ),
    "bedrock video in s3": (
        {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://bucket/a.mp4"}}}},
        "video",
        "s3://bucket/a.mp4",
    ),
    "address in a text": ({"type": "text", "text": PIXEL_ADDRESS}, "image", PIXEL_ADDRESS),
}
"""Blocks with the kind and the address that they are parsed to."""
