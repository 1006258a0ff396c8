"""Calls models of all providers: prepares a request with the workspace's key, streams the reply."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from apps.core.json import is_too_deep, loads, storable
from apps.organizations.services.workspaces import secret_values
from apps.providers import errors, transport
from apps.providers.adapters.base import ReplyParser
from apps.providers.catalogue import PROVIDERS, Provider, get_provider
from apps.providers.chat import (
    MAX_MESSAGES,
    MAX_TOOLS,
    ChatEvent,
    ChatMessage,
    ChatRequest,
    FileBlock,
    Finished,
    ImageBlock,
)
from apps.providers.sse import EventParser, EventTooLarge
from apps.providers.transport import ProviderRequest, ProviderResponse

MAX_DETAIL_LENGTH = 1000
MAX_NAME_LENGTH = 300
MAX_TOKENS = 10_000_000
MAX_STOP_SEQUENCES = 16
_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
    "max_tokens": (1, MAX_TOKENS),
    "thinking_budget": (0, MAX_TOKENS),
    "seed": (-(2**63), 2**63 - 1),
}
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A request to a provider, with the key of the workspace."""

    provider: Provider
    request: ProviderRequest = field(repr=False)
    key: str | None = field(repr=False)
    organization_id: UUID
    base_url: str

    def with_chat(self, chat: ChatRequest) -> PreparedCall:
        """The call of another request to the same model. Raises `BadChatRequest`."""
        check_request(chat)
        request = self.provider.adapter.build(chat, self.base_url, self.key)
        return replace(self, request=request)


def find_keys(workspace_id: UUID) -> set[str]:
    """The ids of the providers for which the workspace has a key."""
    values = secret_values(workspace_id, [provider.key_name for provider in PROVIDERS.values()])
    return {provider.id for provider in PROVIDERS.values() if values.get(provider.key_name)}


def prepare_call(*, workspace_id: UUID, organization_id: UUID, chat: ChatRequest) -> PreparedCall:
    """Check the request and add the workspace's key. Reads secrets, so it runs in a thread.

    Raises `UnknownProvider`, `BadChatRequest`, `NoProviderKey`, `AddressBlocked`.
    """
    provider = get_provider(chat.model.provider)
    check_request(chat)
    values = secret_values(workspace_id, [provider.key_name, provider.base_url_name])
    key = values.get(provider.key_name) or None
    base_url = _choose_base_url(provider, chat.model.base_url, values.get(provider.base_url_name))
    if key is not None and not _owns_key(provider, base_url, values.get(provider.base_url_name)):
        key = None
    if key is None and provider.needs_key:
        raise errors.NoProviderKey(
            f"The workspace has no key for {provider.name}.",
            [{"provider": provider.id, "secret": provider.key_name}],
        )
    request = provider.adapter.build(chat, base_url, key)
    transport.parse_address(request.url)
    return PreparedCall(provider, request, key, organization_id, base_url)


def _choose_base_url(provider: Provider, chosen: str | None, stored: str | None) -> str:
    if chosen and not provider.has_base_url:
        raise errors.BadChatRequest(f"{provider.name} has a fixed address; omit `base_url`.")
    base_url = chosen or stored or provider.default_base_url
    if not base_url:
        raise errors.BadChatRequest(
            f"{provider.name} needs a `base_url`, or the secret {provider.base_url_name}."
        )
    return base_url


def _owns_key(provider: Provider, base_url: str, stored: str | None) -> bool:
    """Whether the key may be sent to the address.

    The setting of a column may contain any address; the key belongs to the one next to it.
    """
    known = stored or provider.default_base_url
    if known is None:
        return False
    return transport.parse_address(known).origin == transport.parse_address(base_url).origin


def check_request(chat: ChatRequest) -> None:
    """Raise `BadChatRequest` for a request that no provider takes."""
    model = chat.model
    if not model.model or len(model.model) > MAX_NAME_LENGTH:
        raise errors.BadChatRequest("Name the model.")
    for name, (low, high) in _RANGES.items():
        value = getattr(model, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            raise errors.BadChatRequest(f"`{name}` must be from {low} to {high}.")
    if len(model.stop or ()) > MAX_STOP_SEQUENCES or not all(model.stop or ["x"]):
        raise errors.BadChatRequest(
            f"`stop` may have {MAX_STOP_SEQUENCES} texts, none of them empty."
        )
    if not chat.messages:
        raise errors.BadChatRequest("The prompt has no messages.")
    if len(chat.messages) > MAX_MESSAGES:
        raise errors.BadChatRequest(f"There may be {MAX_MESSAGES} messages.")
    for message in chat.messages:
        _check_message(message)
    if len(chat.tools) > MAX_TOOLS:
        raise errors.BadChatRequest(f"There may be {MAX_TOOLS} tools.")
    if not all(tool.name for tool in chat.tools):
        raise errors.BadChatRequest("A tool needs a name.")


def _check_message(message: ChatMessage) -> None:
    if message.role == "placeholder":
        raise errors.BadChatRequest("A placeholder has no messages.")
    for block in message.blocks:
        if isinstance(block, ImageBlock) and (block.data is None) == (block.url is None):
            raise errors.BadChatRequest("An image has either `data` or `url`.")
        if isinstance(block, ImageBlock | FileBlock) and message.role != "human":
            raise errors.BadChatRequest("Only human messages may have images and files.")


async def stream_chat(call: PreparedCall) -> AsyncGenerator[ChatEvent, None]:
    """Yield the events of the reply; the last ones have the reason of its end and the usage.

    Close the iterator to cancel the call. Raises the subclasses of `ProviderFailure`, and
    `AddressBlocked`.
    """
    parser, events = call.provider.adapter.parser(), EventParser()
    is_finished = False
    async with transport.post(call.request, owner_id=call.organization_id) as response:
        if not 200 <= response.status < 300:
            raise await _build_failure(call, response)
        try:
            async for piece in response.body:
                for data in events.feed(piece):
                    for event in _parse(call, parser, data):
                        is_finished |= isinstance(event, Finished)
                        yield event
            for data in events.finish():
                for event in _parse(call, parser, data):
                    is_finished |= isinstance(event, Finished)
                    yield event
        except EventTooLarge:
            raise errors.ResponseTooLarge from None
    if not is_finished:
        raise errors.InvalidResponse(
            f"The response of {call.provider.name} ended before the reply was complete."
        )


def _parse(call: PreparedCall, parser: ReplyParser, data: bytes) -> Iterator[ChatEvent]:
    if data.strip() == _DONE:
        return
    try:
        event = loads(storable(data))
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise errors.InvalidResponse(f"The response of {call.provider.name} is not JSON.")
    if is_too_deep(event, data):
        raise errors.InvalidResponse(f"The response of {call.provider.name} is nested too deep.")
    if event.get("error"):
        raise errors.ProviderFailure(_describe(call, "interrupted the reply", event))
    yield from parser.feed(event)


async def _build_failure(call: PreparedCall, response: ProviderResponse) -> errors.ProviderFailure:
    status = response.status
    if 300 <= status < 400:
        text = f"{call.provider.name} responded with status {status}; redirects are not followed."
        return errors.ProviderFailure(text, provider_status=status)
    content = await response.read(transport.MAX_ERROR_BYTES)
    try:
        body = loads(storable(content))
    except ValueError:
        body = content.decode(errors="replace").replace("\0", "\ufffd")
    detail = _describe(call, f"responded with status {status}", body)
    kind: type[errors.ProviderFailure] = errors.ProviderFailure
    if status in {401, 403}:
        kind = errors.ProviderKeyRefused
    elif status == 429:
        kind = errors.ProviderRateLimited
    elif 400 <= status < 500:
        kind = errors.ProviderRefused
    return kind(detail, provider_status=status, retry_after=response.retry_after)


def _describe(call: PreparedCall, what: str, body: Any) -> str:
    """Return the provider's message, without the key that some of them repeat."""
    text = _find_message(body)
    if call.key:
        text = text.replace(call.key, "***")
    text = " ".join(text.split())[:MAX_DETAIL_LENGTH]
    return f"{call.provider.name} {what}: {text}" if text else f"{call.provider.name} {what}."


def _find_message(body: Any) -> str:
    if isinstance(body, list) and body:
        body = body[0]
    while isinstance(body, dict):
        values = (body.get(key) for key in ("error", "message", "detail"))
        body = next((value for value in values if isinstance(value, dict | str)), "")
    return body if isinstance(body, str) else ""
