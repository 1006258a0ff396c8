"""Webhooks of tools: real results, failures, and the addresses that are refused."""

from __future__ import annotations

import json

import pytest

from apps.core.errors import AppError
from apps.organizations.services.workspaces import set_secrets
from apps.playground.services import tool_calls
from tests.console.conftest import create_workspace_user, signed_in
from tests.playground.conftest import read, send
from tests.providers.conftest import KEY
from tests.providers.fake_provider import Reply

pytestmark = pytest.mark.django_db


@pytest.fixture
def local(settings) -> None:
    """Webhooks may be on this machine."""
    settings.ALLOW_LOCAL_WEBHOOKS = True


@pytest.fixture
def call(page, base, provider):
    """Return a function that calls the webhook of the tool `search`."""

    def call(url: str = "", arguments: object = None):
        url = url or f"{provider.url}/tools/search"
        body = {"url": url, "name": "search", "arguments": arguments or {"q": "refund"}}
        return send(page, f"{base}/tools/call", body)

    return call


def fail(response) -> tuple[str, str]:
    """The code and the text of an error before the first piece of the response."""
    with pytest.raises(AppError) as caught:
        read(response)
    return caught.value.code, caught.value.detail


def test_result_is_the_text_of_the_response(call, provider, local, workspace):
    set_secrets(workspace_id=workspace.pk, values={"OPENAI_API_KEY": KEY})
    provider.answer = Reply(raw=b'{"days": 5}')

    result = json.loads(read(call()))

    assert result["result"] == '{"days": 5}'
    assert result["latency_ms"] >= 0
    [request] = provider.requests
    assert request.path == "/tools/search"
    assert request.json() == {"name": "search", "arguments": {"q": "refund"}}
    assert KEY not in str(request.headers)
    assert "cookie" not in request.headers


def test_failed_tool_says_how(call, provider, local):
    provider.answer = Reply(status=500, error="No index.")
    code, detail = fail(call())
    assert code == "tool_failed"
    assert detail.startswith("The tool answered 500")
    assert "No index." in detail

    provider.answer = Reply(status=302, headers={"location": "http://169.254.169.254/"})
    assert fail(call()) == (
        "tool_failed",
        "The tool answered 302; redirects are not followed.",
    )
    assert len(provider.requests) == 2


def test_large_result_is_refused(call, provider, local, monkeypatch):
    monkeypatch.setattr(tool_calls, "MAX_RESULT_BYTES", 100)
    provider.answer = Reply(raw=b"x" * 101)

    assert fail(call())[0] == "tool_failed"

    provider.answer = Reply(raw=b"x" * 100)
    assert json.loads(read(call()))["result"] == "x" * 100


def test_silent_tool_ends_at_the_deadline(call, provider, local, monkeypatch):
    monkeypatch.setattr(tool_calls, "MAX_SECONDS", 5.0)
    provider.answer = Reply("word " * 100, seconds_per_word=1)

    assert fail(call())[0] == "tool_timeout"
    assert provider.aborted.wait(20)


def test_network_of_model_providers_is_closed_to_tools(call, provider, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False
    settings.PROVIDER_NETWORKS = ("127.0.0.0/8",)

    assert fail(call())[0] == "tool_address_blocked"
    assert provider.requests == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "https://tools.example/", "name": "", "arguments": {}},
        {"url": "https://tools.example/", "name": "x" * 201, "arguments": {}},
        {"url": "https://tools.example/", "name": "x", "arguments": []},
        {"url": "https://tools.example/", "name": "x", "arguments": {"a": "y" * 300_000}},
        {"url": "https://tools.example/", "name": "x", "headers": {"authorization": "z"}},
    ],
)
def test_bad_request_is_422(page, base, body):
    response = send(page, f"{base}/tools/call", body)

    assert (response.status_code, response.json()["code"]) == (422, "bad_playground_setting")


def test_reader_calls_no_tool(workspace, base):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    body = {"url": "https://tools.example/", "name": "x", "arguments": {}}

    assert send(viewer, f"{base}/tools/call", body).status_code == 403
