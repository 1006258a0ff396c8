"""Each format's recorded conversation reads as the same messages, and as a line in lists."""

from __future__ import annotations

import pytest

from apps.ingest.previews import build_preview
from apps.tracing.messages import MessagePart, parse_conversation, parse_messages
from tests.tracing.messages import payloads
from tests.tracing.messages.payloads import CONVERSATIONS, MEDIA_BLOCKS

formats = pytest.mark.parametrize("name", CONVERSATIONS)


@formats
def test_conversation_of_each_format_reads_the_same(name):
    inputs, _ = CONVERSATIONS[name]

    system, question, answer = parse_messages(inputs)

    assert (system.role, system.parts) == ("system", (MessagePart("text", payloads.SYSTEM),))
    assert (question.role, question.text) == ("human", payloads.QUESTION)
    [image] = [part for part in question.parts if part.is_medium]
    assert (image.kind, image.text) == ("image", payloads.PIXEL_ADDRESS)
    assert answer.role == "ai"
    assert answer.parts == (MessagePart("thinking", payloads.THOUGHT),)
    order, parcel = answer.tool_calls
    assert (order.name, order.arguments) == ("find_order", '{"order":7}')
    assert order.result == (MessagePart("text", payloads.SHIPPED),)
    assert not order.failed
    assert (parcel.name, parcel.arguments) == ("find_parcel", '{"parcel":"x"}')
    assert parcel.result == (MessagePart("text", payloads.NO_PARCEL),)
    assert parcel.failed


@formats
def test_reply_of_each_format_is_one_message(name):
    _, outputs = CONVERSATIONS[name]

    [reply] = parse_messages(outputs)

    assert (reply.role, reply.parts) == ("ai", (MessagePart("text", payloads.REPLY),))
    assert reply.tool_calls == ()


@formats
def test_preview_of_each_format_is_the_last_message(name):
    inputs, outputs = CONVERSATIONS[name]

    assert build_preview(outputs) == payloads.REPLY
    assert build_preview(inputs) is not None
    assert not build_preview(inputs).startswith("{")


@pytest.mark.parametrize("name", MEDIA_BLOCKS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_medium_of_each_form_has_its_kind_and_address(name, role):
    block, kind, address = MEDIA_BLOCKS[name]

    [message] = parse_messages([{"role": role, "content": [block]}])

    [part] = message.parts
    assert (part.kind, part.text) == (kind, address)


@pytest.mark.parametrize("name", MEDIA_BLOCKS)
def test_medium_in_a_tool_result_is_shown(name):
    block, kind, address = MEDIA_BLOCKS[name]
    call = {"type": "tool_use", "id": "c", "name": "draw", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [block]}

    [message] = parse_messages(
        [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    )

    [part] = message.tool_calls[0].result
    assert (part.kind, part.text) == (kind, address)


def test_file_that_is_only_named_by_an_id_keeps_it():
    block = {"type": "input_file", "file_id": "file-7"}

    [message] = parse_messages([{"role": "user", "content": [block]}])

    assert message.parts == (MessagePart("file", "", name="file-7"),)


def test_spoken_reply_has_its_transcript_and_audio():
    audio = {"id": "a", "data": "UklGRgAA", "transcript": "Hello.", "expires_at": 1}
    message = {"role": "assistant", "content": None, "audio": audio}

    [reply] = parse_messages({"choices": [{"message": message}]})

    assert [(part.kind, part.text) for part in reply.parts] == [
        ("text", "Hello."),
        ("audio", "data:audio/wav;base64,UklGRgAA"),
    ]


def test_items_of_one_response_are_one_message_with_hosted_results():
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Search."}]},
        {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "tides"}},
        {
            "type": "mcp_call",
            "id": "mcp",
            "name": "tide",
            "arguments": "{}",
            "output": "high",
            "server_label": "sea",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "High."}],
        },
        {"type": "function_call", "call_id": "c", "name": "log", "arguments": '{"a": 1}'},
    ]

    [message] = parse_messages({"output": items, "object": "response"})

    assert [part.kind for part in message.parts] == ["thinking", "text"]
    assert [call.name for call in message.tool_calls] == ["web_search", "tide", "log"]
    assert message.tool_calls[1].result == (MessagePart("text", "high"),)


def test_text_of_a_responses_request_is_a_question_with_instructions():
    found = parse_conversation({"input": "Why?", "instructions": "Be brief.", "model": "gpt"})

    assert [(m.role, m.text) for m in found.messages] == [
        ("system", "Be brief."),
        ("human", "Why?"),
    ]
    assert set(found.keys) == {"input", "instructions"}


def test_single_texts_of_gemini_are_questions():
    [message] = parse_messages({"contents": "Why?", "model": "gemini"})

    assert (message.role, message.text) == ("human", "Why?")


def test_contents_of_an_adk_event_are_read():
    outputs = {"content": {"parts": [{"text": "High."}], "role": "model"}, "partial": False}

    [message] = parse_messages(outputs)

    assert (message.role, message.text) == ("ai", "High.")


def test_messages_in_a_nested_object_name_its_key():
    found = parse_conversation({"state": {"messages": [{"role": "user", "content": "Hi"}]}, "n": 1})

    assert (found.nested_key, found.keys) == ("state", ("messages",))


def test_tool_result_that_is_json_stays_json():
    result = {"role": "tool", "tool_call_id": "c", "content": {"degrees": 3, "text": "cold"}}

    [message] = parse_messages([result])

    assert message.parts == (MessagePart("json", '{"degrees":3,"text":"cold"}'),)


def test_long_list_keeps_its_first_and_last_messages():
    items = [{"role": "user", "content": str(number)} for number in range(1_500)]

    found = parse_conversation({"messages": items})

    assert (len(found.messages), found.omitted) == (1_000, 500)
    assert [found.messages[0].text, found.messages[-1].text] == ["0", "1499"]


@pytest.mark.parametrize(
    ("outputs", "line"),
    [
        (
            {
                "messages": [
                    {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {}}]}
                ]
            },
            "f({})",
        ),
        (
            {"messages": [{"role": "user", "content": [MEDIA_BLOCKS["gemini inline"][0]]}]},
            "[image]",
        ),
        ({"documents": [{"page_content": "Tides.", "metadata": {}}]}, "Tides."),
        ({"question": "Why?", "k": 4}, "Why?"),
        (
            {
                "input": {
                    "graph": None,
                    "update": None,
                    "resume": {"decisions": [{"type": "approve"}, {"type": "reject"}]},
                    "goto": [],
                }
            },
            "Resume: approve, reject",
        ),
        ({"resume": "go on", "goto": []}, "Resume: go on"),
        ({"resume": {"amount": 3}, "goto": []}, 'Resume: {"amount":3}'),
        ({"resume": None, "goto": ["a"]}, '{"resume":null,"goto":["a"]}'),
        ({"a": 1, "b": [2]}, '{"a":1,"b":[2]}'),
        ({}, None),
    ],
)
def test_preview_is_what_a_person_would_read(outputs, line):
    assert build_preview(outputs) == line
