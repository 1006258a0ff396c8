"""A model server is chosen by a member: its replies neither stop a process nor lose a call."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from apps.organizations.services.workspaces import set_secrets
from apps.playground.models import ModelCall
from apps.playground.services import model_calls
from apps.providers import errors, transport
from apps.providers.sse import MAX_EVENTS, EventParser, EventTooLarge
from tests.factories.datasets import make_dataset
from tests.playground.conftest import base, run_column, send, setting, shared_connection
from tests.playground.test_experiments import advance, make_calls
from tests.providers.conftest import collect, keys, prepare, provider
from tests.providers.fake_provider import Reply
from tests.tracing.conftest import objects, page

__all__ = ["base", "keys", "objects", "page", "prepare", "provider", "shared_connection"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys", "shared_connection")]


def stream_of(*events: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def openai_reply(text: str = "", usage: Any = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text, **delta}, "finish_reason": "stop"}
    return stream_of({"choices": [choice], "usage": usage})


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


HOSTILE = {
    "U+0000 in the text": openai_reply("a\0b"),
    "U+0000 in arguments": openai_reply(
        tool_calls=[
            {"index": 0, "function": {"name": "f\0", "arguments": '{"a\\u0000": "\\u0000"}'}}
        ]
    ),
    "deep arguments": openai_reply(
        tool_calls=[{"index": 0, "function": {"name": "f", "arguments": nested(800)}}]
    ),
    "deep reply": openai_reply(nested(800)),
    "U+0000 in a reply of JSON": openai_reply('{"a": "\\u0000"}'),
    "deep event": b'data: {"choices": [{"delta": {"content": "x"}}], "a": %b}\n\n'
    % nested(800).encode(),
    "more tokens than a column holds": openai_reply(
        "x", {"prompt_tokens": 2**63, "completion_tokens": 2**64 - 1}
    ),
    "half a character": b'data: {"choices": [{"delta": {"content": "\\ud800"}}]}\n\n',
    "no UTF-8": b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n',
    "wrong types": stream_of(
        {"choices": [{"delta": {"tool_calls": [{"index": 10**18}, 5, {"index": -1}]}}]},
        {"choices": [{"delta": [], "finish_reason": 5}], "usage": {"prompt_tokens": -1}},
        {"choices": {"delta": 1}},
    ),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_hostile_reply_ends_a_stream_with_its_end(page, base, provider, raw, schema):
    provider.answer = Reply(raw=raw)

    got = run_column(page, base, setting=setting(response_schema=schema))

    assert got[-1][0] == "end"
    assert got[-1][1]["status"] in {"success", "error"}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_reply_ends_the_call_of_an_experiment(page, workspace, base, provider, raw):
    dataset = make_dataset(workspace, {"question": "Why?"})
    provider.answer = Reply(raw=raw)
    column = {"letter": "A", "setting": setting(response_schema={"type": "object"})}
    send(page, f"{base}/experiments", {"dataset_id": str(dataset.pk), "columns": [column]})
    advance(workspace)

    assert make_calls() == 1

    # A reply that is no stream is asked for again; none keeps its lease.
    call = ModelCall.unscoped.get()
    assert call.status in {"succeeded", "failed", "pending"}
    advance(workspace)


@pytest.mark.parametrize(
    "body",
    ['{"error":' * 1000 + "1" + "}" * 1000, '"\\u0000"', '{"message": "\\u0000"}', "\0", "\x1b[2J"],
)
@pytest.mark.parametrize("status", [400, 500])
def test_hostile_error_is_a_failure(provider, prepare, body, status):
    provider.answer = Reply(status=status, raw_error=body)

    with pytest.raises(errors.ProviderFailure) as raised:
        collect(prepare("openai"))

    assert "\0" not in raised.value.detail


@pytest.mark.parametrize("key", ["sk-é", "sk-\n", "sk\r\nx: y", "sk-\ud7ff", "\0"])
@pytest.mark.parametrize("name", ["openai", "anthropic", "google", "azure_openai"])
def test_key_that_http_cannot_carry_is_refused_without_showing_it(
    workspace, provider, prepare, key, name
):
    names = ("OPENAI", "ANTHROPIC", "GOOGLE", "AZURE_OPENAI")
    set_secrets(workspace_id=workspace.pk, values={f"{n}_API_KEY": key for n in names})

    with pytest.raises(errors.BadChatRequest) as raised:
        collect(prepare(name))

    assert key not in str(raised.value)
    assert provider.requests == []


def test_long_line_in_short_pieces_is_read_in_linear_time():
    parser, start = EventParser(), time.process_time()

    for _ in range(300_000):
        assert not list(parser.feed(b"xxx"))

    assert time.process_time() - start < 3


def test_stream_has_a_limit_of_events():
    parser = EventParser()

    with pytest.raises(EventTooLarge):
        list(parser.feed(b"data:1\n\n" * (MAX_EVENTS + 1)))


def test_chunks_of_a_byte_count_as_longer_ones(provider, prepare, monkeypatch):
    monkeypatch.setattr(transport, "MAX_RESPONSE_BYTES", 64 * 100)
    provider.answer = Reply(raw=b"1\r\n:\r\n" * 101, headers={"transfer-encoding": "chunked"})

    with pytest.raises(errors.ResponseTooLarge):
        collect(prepare("openai"))


def test_call_that_cannot_be_prepared_does_not_stop_those_of_others(
    page, workspace, base, provider, monkeypatch
):
    dataset = make_dataset(workspace, {"question": "bad"}, {"question": "good"})
    column = {"letter": "A", "setting": setting()}
    send(page, f"{base}/experiments", {"dataset_id": str(dataset.pk), "columns": [column]})
    advance(workspace)
    build = model_calls.build_chat

    def fail_for_one(setting: Any, variables: dict[str, Any]) -> Any:
        if variables == {"question": "bad"}:
            raise OverflowError
        return build(setting, variables)

    monkeypatch.setattr(model_calls, "build_chat", fail_for_one)

    assert make_calls() == 2

    assert sorted(ModelCall.unscoped.values_list("status", flat=True)) == ["failed", "succeeded"]
