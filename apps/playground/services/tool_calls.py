"""Calls the webhook of a column's tool, so that a model continues with a real result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from apps.core.callers import Caller
from apps.core.json import dumps
from apps.core.ssrf import IPAddress
from apps.playground import errors
from apps.playground.services.streaming import call_slots
from apps.playground.setting import MAX_NAME_LENGTH
from apps.providers import errors as provider_errors
from apps.providers import transport
from apps.providers.transport import ProviderRequest
from apps.webhooks.policy import WebhookBlocked
from apps.webhooks.signed_request import policy_of_installation

MAX_SECONDS = 60.0
MAX_RESULT_BYTES = 262_144


class ToolCallBody(msgspec.Struct, forbid_unknown_fields=True):
    """A call that a model asked for, and the address to which it is posted."""

    url: str
    name: str
    arguments: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class PreparedToolCall:
    request: ProviderRequest = field(repr=False)
    organization_id: UUID


def prepare_tool_call(caller: Caller, body: ToolCallBody) -> PreparedToolCall:
    """Check the text of the address. Raises `BadSetting` and `ToolAddressBlocked`."""
    if not 0 < len(body.name) <= MAX_NAME_LENGTH:
        raise errors.BadSetting(f"The name of a tool has 1 to {MAX_NAME_LENGTH} characters.")
    content = dumps({"name": body.name, "arguments": body.arguments})
    if len(content) > MAX_RESULT_BYTES:
        raise errors.BadSetting(f"The arguments have more than {MAX_RESULT_BYTES} bytes.")
    try:
        policy_of_installation().parse_target(body.url)
    except WebhookBlocked as error:
        raise errors.ToolAddressBlocked(error.reason) from None
    headers = {"content-type": "application/json", "accept": "application/json, text/plain, */*"}
    return PreparedToolCall(ProviderRequest(body.url, headers, content), caller.organization_id)


async def call_tool(call: PreparedToolCall) -> AsyncGenerator[bytes, None]:
    """Yield the result as JSON: the text of the response, and how long it took.

    Raises `PlaygroundBusy`, `ToolAddressBlocked` and `ToolFailed`.
    """
    started = time.monotonic()
    with call_slots.hold(call.organization_id):
        text = await _post(call)
    yield dumps({"result": text, "latency_ms": round((time.monotonic() - started) * 1000)})


async def _post(call: PreparedToolCall) -> str:
    try:
        async with (
            asyncio.timeout(MAX_SECONDS),
            transport.post(
                call.request, owner_id=call.organization_id, check=_check_addresses
            ) as response,
        ):
            content = await response.read(MAX_RESULT_BYTES + 1)
    except (TimeoutError, provider_errors.ProviderTimeout):
        raise errors.ToolTimeout(f"The tool did not respond within {MAX_SECONDS:.0f} s.") from None
    except provider_errors.ProviderFailure as error:
        raise errors.ToolFailed(error.detail.replace("The provider", "The tool")) from None
    except provider_errors.AddressBlocked as error:
        raise errors.ToolAddressBlocked(error.reason) from None
    if 300 <= response.status < 400:
        raise errors.ToolFailed(f"The tool answered {response.status}; redirects are not followed.")
    text = content.decode(errors="replace").replace("\0", "\ufffd")
    if not 200 <= response.status < 300:
        raise errors.ToolFailed(f"The tool answered {response.status}: {text[:500]}")
    if len(content) > MAX_RESULT_BYTES:
        raise errors.ToolFailed(f"The tool's result has more than {MAX_RESULT_BYTES} bytes.")
    return text


def _check_addresses(host: str, addresses: list[IPAddress]) -> list[IPAddress]:
    """The rule of webhooks: networks that are open to model providers alone stay closed."""
    try:
        return policy_of_installation().reachable(host, addresses)
    except WebhookBlocked as error:
        raise provider_errors.AddressBlocked(error.reason) from None
