"""One client for the chat APIs of all providers."""

from __future__ import annotations

import asyncio
import json

import pytest

from apps.organizations.services.workspaces import set_secrets
from apps.providers import errors, transport
from apps.providers.chat import (
    ChatMessage,
    ChatTool,
    ChatToolCall,
    FileBlock,
    ImageBlock,
    TextBlock,
    TextDelta,
    ThinkingDelta,
)
from apps.providers.client import find_keys, stream_chat
from tests.providers.conftest import KEY, collect
from tests.providers.fake_provider import Reply

pytestmark = pytest.mark.django_db
ALL = ("openai", "anthropic", "google", "azure_openai", "openai_compatible")
OBJECT = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SEARCH = ChatTool("search", "Finds things.", OBJECT)
CONVERSATION = (
    ChatMessage("system", "Be brief."),
    ChatMessage("human", "Where is it warm?"),
    ChatMessage(
        "ai", "I look.", tool_calls=[ChatToolCall("c1", "search", {"city": "Rome"}, "proof")]
    ),
    ChatMessage("tool", "30 °C", tool_call_id="c1", name="search"),
)


@pytest.mark.parametrize("name", ALL)
def test_reply_is_streamed_word_by_word(provider, keys, prepare, name):
    provider.answer = Reply("One two three", thinking="Let me see")

    events, reply = collect(prepare(name))

    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert texts == ["One ", "two ", "three"]
    thoughts = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert thoughts == "Let me see"
    assert reply.finish_reason == ("end_turn" if name == "anthropic" else "stop")
    assert reply.usage is not None
    assert reply.usage.as_json()["total_tokens"] == 120
    assert reply.usage.input_token_details["cache_read"] == 40


@pytest.mark.parametrize("name", ALL)
def test_tool_calls_are_collected_from_pieces(provider, keys, prepare, name):
    provider.answer = Reply("", tool_calls=[("search", {"city": "Rome"}), ("now", {})])

    _, reply = collect(prepare(name, tools=[SEARCH, ChatTool("now")]))

    calls = reply.message().tool_calls
    assert [(call.name, call.arguments) for call in calls] == [
        ("search", {"city": "Rome"}),
        ("now", {}),
    ]
    assert len({call.id for call in calls}) == 2


def test_openai_gets_its_format(provider, keys, prepare):
    image = ImageBlock(data="aGk=", mime_type="image/png")
    asked = ChatMessage(
        "human", [TextBlock("What is it?"), image, FileBlock("cGRm", "application/pdf")]
    )

    collect(
        prepare(
            "openai", *CONVERSATION, asked, tools=[SEARCH], tool_choice="search", temperature=0.5,
            max_tokens=9, stop=["END"], seed=3, reasoning_effort="low", model="gpt-x",
        )
    )  # fmt: skip

    [request] = provider.requests
    assert request.path == "/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    body = request.json()
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it warm?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"city":"Rome"}'},
                }
            ],
        },
        {"role": "tool", "content": "30 °C", "tool_call_id": "c1"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {
                    "type": "file",
                    "file": {
                        "filename": "file",
                        "file_data": "data:application/pdf;base64,cGRm",
                    },
                },
            ],
        },
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "search"}}
    parameters = {
        "model": "gpt-x", "temperature": 0.5, "max_completion_tokens": 9, "stop": ["END"],
    }  # fmt: skip
    assert body | parameters == body
    assert "top_p" not in body


def test_azure_gets_the_deployment_in_its_address(provider, keys, prepare):
    collect(prepare("azure_openai", model="my deployment"))

    [request] = provider.requests
    assert request.path == (
        "/openai/deployments/my%20deployment/chat/completions?api-version=2024-10-21"
    )
    assert request.headers["api-key"] == KEY


def test_anthropic_gets_its_format(provider, keys, prepare):
    collect(prepare("anthropic", *CONVERSATION, tools=[SEARCH], tool_choice="required"))

    [request] = provider.requests
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == KEY
    body = request.json()
    assert body["system"] == "Be brief."
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Where is it warm?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "search", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "30 °C"}],
                }
            ],
        },
    ]
    assert body["tool_choice"] == {"type": "any"}
    assert body["max_tokens"] == 4096


def test_google_gets_its_format(provider, keys, prepare):
    schema = {"type": "object", "properties": {}}

    collect(
        prepare("google", *CONVERSATION, tools=[SEARCH], response_schema=schema, thinking_budget=64)
    )

    [request] = provider.requests
    assert request.path == "/v1beta/models/a-model:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == KEY
    body = request.json()
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "Where is it warm?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {
                    "functionCall": {"name": "search", "args": {"city": "Rome"}},
                    "thoughtSignature": "proof",
                },
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "search", "response": {"result": "30 °C"}}}],
        },
    ]
    assert body["generationConfig"] == {
        "thinkingConfig": {"thinkingBudget": 64, "includeThoughts": True},
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }


def test_response_schema_of_anthropic_is_a_tool_whose_arguments_are_the_text(
    provider, keys, prepare
):
    provider.answer = Reply("", tool_calls=[("structured_response", {"city": "Rome"})])

    _, reply = collect(prepare("anthropic", response_schema=OBJECT))

    assert json.loads(reply.text) == {"city": "Rome"}
    assert reply.message().tool_calls == []
    body = provider.bodies[0]
    assert body["tool_choice"] == {"type": "tool", "name": "structured_response"}


def test_schema_of_any_object_is_the_json_mode(provider, keys, prepare):
    collect(prepare("openai_compatible", response_schema={"type": "object"}))

    assert provider.bodies[0]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(("is_closed", "is_strict"), [(True, True), (False, False)])
def test_openai_is_strict_about_closed_schemas_only(provider, keys, prepare, is_closed, is_strict):
    schema = OBJECT | ({"additionalProperties": False} if is_closed else {})

    collect(prepare("openai", response_schema=schema))

    assert provider.bodies[0]["response_format"]["json_schema"]["strict"] is is_strict


@pytest.mark.parametrize(
    "expected",
    [
        (400, errors.ProviderRefused, "provider_refused"),
        (401, errors.ProviderKeyRefused, "provider_key_refused"),
        (429, errors.ProviderRateLimited, "provider_rate_limited"),
        (500, errors.ProviderFailure, "provider_error"),
        (302, errors.ProviderFailure, "provider_error"),
    ],
)
@pytest.mark.parametrize("name", ALL)
def test_failure_has_the_status_of_the_provider_and_no_key(provider, keys, prepare, name, expected):
    status, error, code = expected
    provider.answer = Reply(
        status=status, error=f"Bad key {KEY}", headers={"retry-after": "7", "location": "/other"}
    )

    with pytest.raises(error) as raised:
        collect(prepare(name))

    failure = raised.value
    assert (failure.code, failure.provider_status) == (code, status)
    assert KEY not in failure.detail
    assert failure.retry_after == (7.0 if status != 302 else None)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", ALL)
def test_interrupted_reply_is_a_failure(provider, keys, prepare, name):
    provider.answer = Reply("One two three four", is_cut=True)

    with pytest.raises(errors.ProviderFailure):
        collect(prepare(name))


def test_error_in_the_stream_is_a_failure(provider, keys, prepare):
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    provider.answer = Reply(raw=f"event: error\ndata: {json.dumps(event)}\n\n".encode())

    with pytest.raises(errors.ProviderFailure, match="Anthropic interrupted the reply: Overloaded"):
        collect(prepare("anthropic"))


@pytest.mark.parametrize("raw", [b"<html>", b"data: no JSON\n\n", b"data: [1]\n\n", b""])
def test_response_that_is_no_stream_is_a_failure(provider, keys, prepare, raw):
    provider.answer = Reply(raw=raw)

    with pytest.raises(errors.InvalidResponse):
        collect(prepare("openai"))


def test_large_response_is_refused(provider, keys, prepare, monkeypatch):
    monkeypatch.setattr(transport, "MAX_RESPONSE_BYTES", 1000)
    provider.answer = Reply("word " * 1000)

    with pytest.raises(errors.ResponseTooLarge):
        collect(prepare("openai"))


def test_silent_provider_is_a_timeout(provider, keys, prepare, monkeypatch):
    monkeypatch.setattr(transport, "MAX_SILENCE_SECONDS", 0.2)
    provider.answer = Reply("one two", seconds_per_word=1.0)

    with pytest.raises(errors.ProviderTimeout):
        collect(prepare("openai"))


def test_closing_the_stream_closes_the_connection(provider, keys, prepare):
    provider.answer = Reply("word " * 200, seconds_per_word=0.02)

    async def read_one() -> None:
        stream = stream_chat(prepared)
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()

    prepared = prepare("openai")
    asyncio.run(read_one())

    assert provider.aborted.wait(10)


def test_missing_key_is_reported_with_its_name(workspace, provider, prepare):
    with pytest.raises(errors.NoProviderKey) as raised:
        prepare("openai")

    assert raised.value.errors == [{"provider": "openai", "secret": "OPENAI_API_KEY"}]
    assert find_keys(workspace.pk) == set()


def test_local_server_needs_no_key(provider, prepare):
    collect(prepare("openai_compatible", base_url=provider.url))

    assert "authorization" not in provider.requests[0].headers


@pytest.mark.parametrize("address", ["http://localhost:{port}", "https://127.0.0.1:{port}"])
def test_key_is_sent_to_its_own_address_only(workspace, provider, keys, prepare, address):
    other = address.format(port=provider.url.rpartition(":")[2])

    call = prepare("openai_compatible", base_url=other)

    assert "authorization" not in call.request.headers
    with pytest.raises(errors.NoProviderKey):
        prepare("azure_openai", base_url=other)


def test_address_of_a_provider_with_one_is_not_chosen_by_the_setting(keys, prepare):
    with pytest.raises(errors.BadChatRequest):
        prepare("openai", base_url="https://elsewhere.example")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("openai", {"temperature": 3.0}),
        ("openai", {"temperature": float("nan")}),
        ("openai", {"max_tokens": 0}),
        ("openai", {"stop": [""]}),
        ("openai", {"model": ""}),
        ("openai", {"thinking_budget": 5}),
        ("openai", {"tools": [SEARCH], "tool_choice": "other"}),
        ("anthropic", {"seed": 1}),
        ("google", {"reasoning_effort": "low"}),
        ("google", {"response_schema": {}, "tools": [ChatTool("")]}),
    ],
)
def test_request_that_a_provider_cannot_take_is_refused(keys, prepare, name, fields):
    with pytest.raises(errors.BadChatRequest):
        prepare(name, **fields)


def test_unknown_provider_is_refused(keys, prepare):
    with pytest.raises(errors.UnknownProvider):
        prepare("other")


def test_prepared_call_shows_no_key(keys, prepare):
    assert KEY not in repr(prepare("openai"))


def test_keys_that_exist_are_named(workspace, keys):
    set_secrets(workspace_id=workspace.pk, values={"GOOGLE_API_KEY": None})

    assert find_keys(workspace.pk) == {"openai", "anthropic", "azure_openai", "openai_compatible"}
