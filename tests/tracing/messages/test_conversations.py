"""Chat messages are found in the shapes in which clients record them."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.core.json import dumps
from apps.tracing.messages import (
    MessagePart,
    ToolCall,
    find_excerpt,
    message_excerpt,
    parse_documents,
    parse_messages,
    part_json,
    single_text,
)


def constructor(name, **kwargs):
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", name], "kwargs": kwargs}


HELLO = (MessagePart("text", "hello"),)


@pytest.mark.parametrize(
    "payload",
    [
        {"messages": [{"role": "user", "content": "hello"}]},
        {"messages": [{"type": "human", "content": "hello"}]},
        {"messages": [["human", "hello"]]},
        {"messages": [[constructor("HumanMessage", content="hello")]]},
        {"messages": [{"type": "human", "data": {"content": "hello"}}]},
        {"messages": [{"type": "HumanMessageChunk", "content": "hello"}]},
        {"input": {"role": "user", "content": [{"type": "text", "text": "hello"}]}},
        [{"role": "user", "content": "hello"}],
        {"role": "user", "content": "hello"},
    ],
)
def test_human_message_is_found_in_each_format(payload):
    [message] = parse_messages(payload)

    assert (message.role, message.parts) == ("human", HELLO)


@pytest.mark.parametrize(
    "payload",
    [
        {
            "generations": [
                [{"text": "hello", "message": constructor("AIMessage", content="hello")}]
            ]
        },
        {"generations": [[{"text": "hello"}]]},
        {"choices": [{"message": {"role": "assistant", "content": "hello"}}]},
        {"output": {"type": "ai", "content": "hello"}},
        {"role": "assistant", "content": "hello"},
    ],
)
def test_model_message_is_found_in_each_format(payload):
    [message] = parse_messages(payload)

    assert (message.role, message.parts) == ("ai", HELLO)


def test_tool_result_is_attached_to_its_tool_call():
    request = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "function": {"name": "find", "arguments": '{"order": 7}'}},
        {"id": "c2", "name": "wait", "args": {}},
    ]}  # fmt: skip
    result = {"role": "tool", "content": "on its way", "tool_call_id": "c1", "status": "error"}
    unmatched = {"role": "tool", "content": "no such call", "tool_call_id": "c9"}

    first, second = parse_messages({"messages": [request, result, unmatched]})

    assert first.tool_calls == (
        ToolCall("find", '{"order":7}', "c1", (MessagePart("text", "on its way"),), failed=True),
        ToolCall("wait", "{}", "c2"),
    )
    assert second.parts == (MessagePart("text", "no such call"),)


def test_reasoning_image_and_unknown_blocks_keep_their_kind():
    content = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "javascript:alert(1)"}},
        {"type": "tool_use", "id": "t", "name": "find", "input": {"a": 1}},
    ]

    [message] = parse_messages([{"role": "assistant", "content": content}])

    assert [part.kind for part in message.parts] == ["thinking", "image", "image", "json"]
    assert [part.is_link for part in message.parts] == [False, False, True, False]
    assert message.tool_calls == (ToolCall("find", '{"a":1}', "t"),)


@pytest.mark.parametrize(
    "payload",
    [None, {}, [], "text", {"messages": "no"}, {"messages": [1]}, {"documents": [{"type": "x"}]}],
)
def test_payload_without_messages_has_none(payload):
    assert parse_messages(payload) == []


def test_single_text_of_a_payload_is_found():
    assert single_text({"input": "hello"}) == "hello"
    assert single_text({"a": "b", "c": "d"}) is None
    assert single_text({"a": 1}) is None


KEYS = [
    *("messages", "role", "content", "type", "id", "lc", "kwargs", "tool_calls", "generations"),
    *("choices", "message", "data", "function", "image_url", "parts", "contents", "candidates"),
    *("output", "input", "instructions", "system", "functionCall", "functionResponse", "name"),
    *("inlineData", "toolUse", "toolResult", "image", "source", "bytes", "text", "args", "prompt"),
    *("toolCallId", "toolInvocation", "call_id", "state", "audio", "annotations", "documents"),
]
WORDS = [
    *("user", "ai", "tool", "model", "tool_use", "tool_result", "text", "image", "reasoning"),
    *("function_call", "function_call_output", "message", "constructor", "tool-call", "blob"),
    *("tool-result", "dynamic-tool", "mcp_call", "document", "data:image/png;base64,AA", "\ud800"),
]
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=500, deadline=None)
@given(json_values)
@example({"messages": [{"role": "user", "content": [{"type": [], "text": "a"}]}]})
@example({"messages": [{"role": {}, "type": [], "content": [{"type": {}}]}]})
@example({"type": [], "role": [], "parts": [{"type": {}, "text": []}]})
def test_arbitrary_payload_never_raises(payload):
    parsed = parse_messages(payload)
    single_text(payload)
    parse_documents(payload)
    find_excerpt(payload)

    for message in parsed:
        message_excerpt(message).encode()
        dumps([part_json(part) for part in message.parts])


def nest(value, depth, wrap):
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"messages": [inner]},
        lambda inner: [inner],
        lambda inner: {"type": "tool_result", "tool_use_id": "c", "content": [inner]},
        lambda inner: {"role": "user", "content": [inner]},
        lambda inner: {"type": "document", "source": {"source": inner}},
        lambda inner: {"toolResult": {"content": [inner]}},
        lambda inner: {"lc": 1, "id": ["AIMessage"], "kwargs": {"content": inner}},
    ],
)
def test_deep_payload_never_raises(wrap):
    payload = nest("end", 20_000, wrap)

    parse_messages({"messages": [{"role": "user", "content": [payload]}]})
    parse_messages(payload)
    find_excerpt(payload)


def test_many_calls_and_results_take_linear_time():
    calls = [{"name": "f", "args": {}} for _ in range(400)]
    items = [{"role": "assistant", "content": "", "tool_calls": calls} for _ in range(400)]
    items += [{"role": "tool", "content": "r"} for _ in range(400)]
    start = time.process_time()

    parse_messages({"messages": items})

    assert time.process_time() - start < 5
