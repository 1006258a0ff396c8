"""A server that a tenant chose sends informational responses (`100 Continue`) without end.

Each costs it 25 bytes, and the event loop of a worker or web process the parsing of a head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from apps.providers import errors, transport
from apps.providers.transport import ProviderRequest
from apps.webhooks import delivery_request
from apps.webhooks.delivery_request import (
    MAX_INFORMATIONAL_RESPONSES,
    DeliveryResult,
    WebhookRequest,
)
from apps.webhooks.policy import WebhookPolicy

POLICY = WebhookPolicy(allows_private=True)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
Call = Callable[[str], Awaitable[str]]


async def send_webhook(url: str) -> str:
    request = WebhookRequest(POLICY.parse_target(url), POLICY, {}, b"{}")
    result: DeliveryResult = await delivery_request.send(request)
    return result.error or str(result.status)


async def call_model(url: str) -> str:
    try:
        async with transport.post(ProviderRequest(url, {}, b"{}"), owner_id=uuid4()) as response:
            return str(response.status)
    except errors.ProviderFailure as error:
        return error.detail


async def call_server(call: Call, *parts: bytes) -> tuple[str, int]:
    """Return the outcome of a call, and how many parts the server could send.

    It sends the last part until the caller leaves.
    """
    sent = 0
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            await reader.readuntil(b"{}")
            for part in parts:
                writer.write(part)
            while sent < 1_000_000:
                writer.write(parts[-1])
                await writer.drain()
                sent += 1
        except OSError:
            pass
        finally:
            writer.close()
            left.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outcome = await call(f"http://127.0.0.1:{port}/")
        await asyncio.wait_for(left.wait(), 60)
    return outcome, sent


@pytest.mark.parametrize("call", [send_webhook, call_model])
def test_endless_informational_responses_end_the_call(settings, call):
    settings.ALLOW_PRIVATE_ADDRESSES = True

    outcome, sent = asyncio.run(call_server(call, CONTINUE))

    assert f"more than {MAX_INFORMATIONAL_RESPONSES} informational responses" in outcome
    assert sent < 1_000_000


@pytest.mark.parametrize("call", [send_webhook, call_model])
def test_a_few_informational_responses_are_read_over(settings, call):
    settings.ALLOW_PRIVATE_ADDRESSES = True

    outcome, _ = asyncio.run(call_server(call, CONTINUE, b"HTTP/1.1 103 Early\r\n\r\n", ANSWER))

    assert outcome == "204"
