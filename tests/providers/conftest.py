from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apps.organizations.models import Workspace
from apps.organizations.services.workspaces import set_secrets
from apps.providers.chat import ChatEvent, ChatMessage, ChatRequest, ModelSettings
from apps.providers.client import PreparedCall, prepare_call, stream_chat
from apps.providers.reply import ReplyCollector
from tests.providers.fake_provider import FakeProvider

KEY = "sk-very-secret-value"
PREFIXES = {"openai": "OPENAI", "anthropic": "ANTHROPIC", "google": "GOOGLE"}


@pytest.fixture
def provider(settings) -> Iterator[FakeProvider]:
    """A server on this machine, whose network the operator opened."""
    settings.ALLOW_PRIVATE_ADDRESSES = False
    settings.PROVIDER_NETWORKS = ("127.0.0.0/8",)
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def keys(workspace: Workspace, provider: FakeProvider) -> None:
    """Keys of all providers, whose addresses are that of the fake."""
    values = {f"{name}_API_KEY": KEY for name in PREFIXES.values()}
    values |= {f"{name}_BASE_URL": provider.url for name in PREFIXES.values()}
    values |= {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": provider.url}
    values |= {"OPENAI_COMPATIBLE_API_KEY": KEY, "OPENAI_COMPATIBLE_BASE_URL": provider.url}
    set_secrets(workspace_id=workspace.pk, values=values)


@pytest.fixture
def prepare(workspace: Workspace) -> Callable[..., PreparedCall]:
    """Return a function that prepares a call; keywords are fields of the model's settings."""

    def prepare(provider: str, *messages: Any, **fields: Any) -> PreparedCall:
        options = {
            name: fields.pop(name) for name in ("tools", "response_schema") if name in fields
        }
        model = ModelSettings(provider, fields.pop("model", "a-model"), **fields)
        chat = ChatRequest(model, list(messages) or [ChatMessage("human", "Hello")], **options)
        return prepare_call(
            workspace_id=workspace.pk, organization_id=workspace.organization_id, chat=chat
        )

    return prepare


def collect(call: PreparedCall) -> tuple[list[ChatEvent], ReplyCollector]:
    """Stream the whole reply."""

    async def run() -> list[ChatEvent]:
        return [event async for event in stream_chat(call)]

    events, collector = asyncio.run(run()), ReplyCollector()
    for event in events:
        collector.add(event)
    return events, collector
