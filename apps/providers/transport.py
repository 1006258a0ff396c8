"""Posts a request to a provider and streams the body of its response.

Members choose the addresses of some providers. The host is resolved once, the connection uses the
checked addresses, and redirects are not followed. All sizes and waits are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import h11
from django.conf import settings

from apps.core import ssrf
from apps.core.ssrf import IPAddress
from apps.providers import errors
from apps.webhooks.delivery_request import connect, read_head
from apps.webhooks.policy import WebhookBlocked, WebhookPolicy, WebhookTarget

MAX_REQUEST_BYTES = 20_971_520
MAX_RESPONSE_BYTES = 8_388_608
MAX_ERROR_BYTES = 65_536
MAX_CALL_SECONDS = 600.0
MAX_SILENCE_SECONDS = 180.0
"""Between two pieces of a response; models think for minutes before the first one."""
_READ_BYTES = 65_536
_MIN_PIECE_BYTES = 64
"""What a piece of a response counts at least: chunks of one byte take as long as long ones."""
_PIECES_PER_TURN = 100
"""After so many buffered pieces, the event loop serves others."""
_MAX_RETRY_AFTER_SECONDS = 3600


AddressCheck = Callable[[str, list[IPAddress]], list[IPAddress]]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """The head of a response, and its body as it arrives."""

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]

    async def read(self, max_bytes: int) -> bytes:
        """Return the body, cut to `max_bytes`."""
        content = b""
        async for piece in self.body:
            content += piece
            if len(content) >= max_bytes:
                break
        return content[:max_bytes]

    @property
    def retry_after(self) -> float | None:
        """The provider's `Retry-After` in seconds."""
        value = self.headers.get("retry-after", "")
        if not value.isdecimal() or not value.isascii():
            return None
        # `int` raises for thousands of digits.
        return float(min(int(value.lstrip("0")[:5] or "0"), _MAX_RETRY_AFTER_SECONDS))


def parse_address(url: str) -> WebhookTarget:
    """Parse the address of a request without resolving its host. Raises `AddressBlocked`."""
    try:
        return WebhookPolicy().parse_target(url)
    except WebhookBlocked as error:
        raise errors.AddressBlocked(error.reason) from None


def check_addresses(host: str, addresses: list[IPAddress]) -> list[IPAddress]:
    """Return the addresses if all are public or the operator opened them.

    Raises `AddressBlocked`.
    """
    if settings.ALLOW_PRIVATE_ADDRESSES:
        return addresses
    networks = [ipaddress.ip_network(network) for network in settings.PROVIDER_NETWORKS]
    for address in addresses:
        if not ssrf.is_public(address) and not any(address in network for network in networks):
            raise errors.AddressBlocked(f"{host} is on this machine or on a private network.")
    return addresses


@asynccontextmanager
async def post(
    request: ProviderRequest, *, owner_id: UUID, check: AddressCheck = check_addresses
) -> AsyncIterator[ProviderResponse]:
    """Send the request; the connection is closed at the end of the block.

    `owner_id` is the organization, whose names are resolved in few threads. `check` returns the
    addresses of the host to connect to, or raises `AddressBlocked`. Raises
    `AddressBlocked` and the subclasses of `ProviderFailure`; the body's iterator raises them, too.
    """
    if len(request.body) > MAX_REQUEST_BYTES:
        raise errors.BadChatRequest(f"The request has more than {MAX_REQUEST_BYTES} bytes.")
    target = parse_address(request.url)
    try:
        async with asyncio.timeout(MAX_CALL_SECONDS):
            reader, writer = await connect(target, owner_id, check)
            try:
                yield await _exchange(reader, writer, target, request)
            finally:
                writer.transport.abort()
    except ssrf.ResolutionFailed:
        raise errors.ProviderUnreachable(f"The host {target.host} cannot be resolved.") from None
    except TimeoutError:
        raise errors.ProviderTimeout from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "SSLError"
        raise errors.ProviderUnreachable(f"TLS failed: {reason}.") from None
    except h11.RemoteProtocolError as error:
        raise errors.InvalidResponse(f"The response is not HTTP: {error}.") from None
    except h11.LocalProtocolError:
        # The key may be in the message of the error.
        raise errors.BadChatRequest("The key or a header is not valid in HTTP.") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise errors.ProviderUnreachable(f"No connection to {target.host}: {reason}.") from None


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    target: WebhookTarget,
    request: ProviderRequest,
) -> ProviderResponse:
    connection = h11.Connection(h11.CLIENT)
    headers = {
        "host": target.authority,
        "user-agent": "Slipway/1",
        **{name.lower(): value for name, value in request.headers.items()},
        "content-length": str(len(request.body)),
        "connection": "close",
    }
    try:
        head = h11.Request(method="POST", target=target.path, headers=list(headers.items()))
    except UnicodeEncodeError:
        raise errors.BadChatRequest("The key or a header is not valid in HTTP.") from None
    for part in (head, h11.Data(data=request.body), h11.EndOfMessage()):
        writer.write(connection.send(part) or b"")
    # A server may respond and close before it has read the whole body.
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    response = await read_head(partial(_next_event, connection, reader))
    response_headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers
    }
    return ProviderResponse(response.status_code, response_headers, _read_body(connection, reader))


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        async with asyncio.timeout(MAX_SILENCE_SECONDS):
            data = await reader.read(_READ_BYTES)
        connection.receive_data(data)
    return event


async def _read_body(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> AsyncIterator[bytes]:
    size = count = 0
    while not isinstance(event := await _next_event(connection, reader), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            raise ConnectionResetError
        size, count = size + max(len(event.data), _MIN_PIECE_BYTES), count + 1
        if size > MAX_RESPONSE_BYTES:
            raise errors.ResponseTooLarge(
                f"The provider's response has more than {MAX_RESPONSE_BYTES} bytes."
            )
        yield bytes(event.data)
        if count % _PIECES_PER_TURN == 0:
            await asyncio.sleep(0)
