"""What agents say as the content of MCP results."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from apps.agent_server.mcp import content
from apps.agent_server.mcp.content import to_content
from tests.agent_server.test_mcp import request

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WAV = base64.b64encode(b"RIFF....WAVE").decode()


def answer_with(*blocks: Any) -> dict[str, Any]:
    user = {"type": "human", "content": [{"type": "image", "base64": PNG}]}
    return {"messages": [user, {"type": "ai", "content": list(blocks)}]}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "image", "base64": PNG, "mime_type": "image/png"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/webp;base64,{PNG}"}},
            {"type": "image", "data": PNG, "mimeType": "image/webp"},
        ),
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/gif", "data": PNG},
            },
            {"type": "image", "data": PNG, "mimeType": "image/gif"},
        ),
        (
            {"type": "audio", "base64": WAV, "mime_type": "audio/wav"},
            {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": WAV, "format": "mp3"}},
            {"type": "audio", "data": WAV, "mimeType": "audio/mpeg"},
        ),
        (
            {
                "type": "file",
                "base64": encoded('{"a": 1}'),
                "mime_type": "application/json",
                "filename": "a b.json",
            },
            {
                "type": "resource",
                "resource": {
                    "uri": "attachment:///a%20b.json",
                    "mimeType": "application/json",
                    "text": '{"a": 1}',
                },
            },
        ),
        (
            {"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf"},
            {
                "type": "resource",
                "resource": {
                    "uri": "attachment:///1",
                    "mimeType": "application/pdf",
                    "blob": "JVBERi0=",
                },
            },
        ),
        (  # text that is none is sent as it is
            {"type": "file", "base64": "/////w==", "mime_type": "text/plain"},
            {
                "type": "resource",
                "resource": {
                    "uri": "attachment:///1",
                    "mimeType": "text/plain",
                    "blob": "/////w==",
                },
            },
        ),
        (
            {"type": "file", "url": "data:text/plain,hello%20you"},
            {
                "type": "resource",
                "resource": {
                    "uri": "attachment:///1",
                    "mimeType": "text/plain",
                    "text": "hello you",
                },
            },
        ),
        (
            {"type": "file", "url": "https://x.example/a/b.pdf", "mime_type": "application/pdf"},
            {
                "type": "resource_link",
                "uri": "https://x.example/a/b.pdf",
                "name": "b.pdf",
                "mimeType": "application/pdf",
            },
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://x.example/i?size=2"}},
            {
                "type": "resource_link",
                "uri": "https://x.example/i?size=2",
                "name": "i?size=2",
            },
        ),
    ],
)
def test_media_of_all_formats_are_content_blocks(block, expected):
    assert to_content(answer_with(block), has_links=True) == [expected]


def test_content_has_the_order_of_the_message_and_nothing_else_of_it():
    output = answer_with(
        {"type": "reasoning", "reasoning": "thinking"},
        {"type": "text", "text": "Before"},
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
        {"type": "tool_call", "name": "search", "args": {}, "id": "t"},
        "After",
        {"type": "file", "file_id": "file-7"},
    )

    blocks = to_content(output, has_links=True)

    assert [block["type"] for block in blocks] == ["text", "image", "text", "text"]
    assert [block["text"] for block in blocks if "text" in block] == [
        "Before",
        "After",
        "[file: file-7]",
    ]


@pytest.mark.parametrize(
    "output",
    [
        {"answer": 42},
        answer_with({"type": "text", "text": "Hello"}),
        answer_with({"type": "file", "file_id": "file-7"}),
        {"messages": "none"},
        # Only what the agent said since the user's message is its answer.
        {"messages": [*answer_with({"type": "image", "base64": PNG})["messages"], {"type": "user",
         "content": "?"}]},
    ],
)  # fmt: skip
def test_output_without_media_is_json(output):
    [block] = to_content(output, has_links=True)

    assert block["type"] == "text"
    assert json.loads(block["text"]) == output


def test_early_clients_get_links_as_text_and_audio_as_a_resource():
    link = {"type": "file", "url": "https://x.example/a.pdf"}
    audio = {"type": "audio", "base64": WAV, "mime_type": "audio/wav"}

    blocks = to_content(answer_with(link, audio), has_links=False)

    assert blocks[0] == {"type": "text", "text": "https://x.example/a.pdf"}
    assert (blocks[1]["type"], blocks[1]["resource"]["blob"]) == ("resource", WAV)


def test_media_beyond_the_limit_are_named(monkeypatch):
    block = {"type": "image", "base64": "iVBO" + "R" * 400, "mime_type": "image/png"}
    monkeypatch.setattr(content, "MAX_MEDIA_BYTES", 900)

    blocks = to_content(
        answer_with(block, block, block, {"type": "text", "text": "x"}), has_links=True
    )

    assert [one["type"] for one in blocks] == ["image", "image", "text", "text"]
    assert blocks[2]["text"] == "[image] is left out: it has 303 bytes."


@pytest.mark.parametrize(("version", "kind"), [("2025-06-18", "audio"), ("2025-03-26", "resource")])
async def test_a_call_answers_with_the_media_of_the_last_message(call, worker, version, kind):
    output = answer_with({"type": "audio", "base64": WAV, "mime_type": "audio/wav"})
    body = request("tools/call", {"name": "agent"})

    async with call.open("POST", "/mcp", body, **{"Mcp-Protocol-Version": version}) as client:
        await worker.end(await worker.claim_run(), result=output)
        result = (await client.wait_for_end()).json()["result"]

    assert [block["type"] for block in result["content"]] == [kind]
    assert result["structuredContent"] == output
