"""Signs and sends a POST to an address that a tenant chose.

The host is resolved once, and the connection uses the checked addresses, which prevents DNS
rebinding. Redirects are not followed, because they would bypass the checks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from uuid import UUID

import h11

from apps.core import ssrf
from apps.core.ssrf import IPAddress
from apps.webhooks import resolution
from apps.webhooks.policy import WebhookBlocked, WebhookPolicy, WebhookTarget

TIMEOUT_SECONDS = 15.0
CONNECT_TIMEOUT_SECONDS = 5.0
MAX_RETRY_AFTER_SECONDS = 3600
MAX_INFORMATIONAL_RESPONSES = 16


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """The request and its target. `rules` is None for a target on the platform itself."""

    target: WebhookTarget
    rules: WebhookPolicy | None
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of one attempt."""

    status: int | None = None
    """None if there was no response."""
    error: str = ""
    is_final: bool = False
    """Whether a retry is pointless."""
    retry_after: float = 0.0
    """The receiver's `Retry-After` in seconds."""

    @property
    def is_delivered(self) -> bool:
        return not self.error


async def send(
    webhook: WebhookRequest, *, owner_id: UUID | None = None, seconds: float = TIMEOUT_SECONDS
) -> DeliveryResult:
    """Send the request once. Failures are returned, not raised.

    Names of one owner are resolved in few threads.
    """
    try:
        async with asyncio.timeout(seconds):
            return _to_result(await _post(webhook, owner_id))
    except WebhookBlocked as error:
        return DeliveryResult(error=error.detail, is_final=True)
    except ssrf.ResolutionFailed:
        return DeliveryResult(error=f"The host {webhook.target.host} cannot be resolved.")
    except TimeoutError:
        return DeliveryResult(error=f"There was no response within {seconds:g} s.")
    except ssl.SSLCertVerificationError as error:
        return DeliveryResult(error=f"The certificate is invalid: {error.verify_message}.")
    except ssl.SSLError as error:
        return DeliveryResult(error=f"TLS failed: {error.reason or 'SSLError'}.")
    except h11.RemoteProtocolError as error:
        return DeliveryResult(error=f"The response is not HTTP: {error}.")
    except (h11.LocalProtocolError, UnicodeEncodeError):
        # The message of the error may quote a header with the receiver's credentials.
        text = "The request has a header that is not valid in HTTP."
        return DeliveryResult(error=text, is_final=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        return DeliveryResult(error=f"No connection: {reason}.")


def _to_result(response: h11.Response) -> DeliveryResult:
    status = response.status_code
    if 200 <= status < 300:
        return DeliveryResult(status)
    if status == 410:
        return DeliveryResult(
            status, "The receiver responded with status 410 (gone).", is_final=True
        )
    if 300 <= status < 400:
        return DeliveryResult(
            status, f"The receiver responded with status {status}; redirects are not followed."
        )
    return DeliveryResult(
        status, f"The receiver responded with status {status}.", retry_after=_retry_after(response)
    )


def _retry_after(response: h11.Response) -> float:
    for name, value in response.headers:
        if name == b"retry-after" and value.isdigit():
            # `int` raises for thousands of digits.
            digits = value.lstrip(b"0")[:5] or b"0"
            return float(min(int(digits), MAX_RETRY_AFTER_SECONDS))
    return 0.0


async def _post(webhook: WebhookRequest, owner_id: UUID | None) -> h11.Response:
    rules = webhook.rules
    check = rules.reachable if rules is not None else _accept_any
    reader, writer = await connect(webhook.target, owner_id, check)
    try:
        connection = h11.Connection(h11.CLIENT)
        target = webhook.target
        fields = {
            "host": target.authority,
            **{name.lower(): value for name, value in webhook.headers.items()},
            "content-length": str(len(webhook.body)),
            "connection": "close",
        }
        request = h11.Request(method="POST", target=target.path, headers=list(fields.items()))
        for part in (request, h11.Data(data=webhook.body), h11.EndOfMessage()):
            writer.write(connection.send(part) or b"")
        # A receiver may respond and close before it has read the whole body.
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        return await read_head(partial(_next_event, connection, reader))
    finally:
        writer.transport.abort()


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(65_536))
    return event


async def read_head(next_event: Callable[[], Awaitable[object]]) -> h11.Response:
    """Return the head of the response, after a few informational ones.

    They take no time to send, so a server could keep the event loop busy with them. Raises
    `RemoteProtocolError` or `ConnectionResetError`.
    """
    for _ in range(MAX_INFORMATIONAL_RESPONSES + 1):
        event = await next_event()
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            raise ConnectionResetError
    raise h11.RemoteProtocolError(
        f"more than {MAX_INFORMATIONAL_RESPONSES} informational responses"
    )


def _accept_any(host: str, addresses: list[IPAddress]) -> list[IPAddress]:
    return addresses


async def connect(
    target: WebhookTarget,
    owner_id: UUID | None,
    check: Callable[[str, list[IPAddress]], list[IPAddress]],
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Resolve the host once and connect to one of the addresses that `check` returns.

    Raises the error of `check`, `ResolutionFailed`, `OSError`, or `TimeoutError`.
    """
    addresses = await resolution.resolve_async(target.host, owner_id)
    failure: Exception = ConnectionRefusedError()
    for address in check(target.host, addresses):
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                return await _open(address, target)
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


async def _open(
    address: IPAddress, target: WebhookTarget
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not target.is_secure:
        return await asyncio.open_connection(str(address), target.port)
    return await asyncio.open_connection(
        str(address), target.port, ssl=_tls(), server_hostname=target.host
    )


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


SIGNATURE_KEY_PREFIX = "whsec_"


def generate_secret() -> str:
    return SIGNATURE_KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature_headers(
    keys: Iterable[str], webhook_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The headers of the Standard Webhooks specification: id, timestamp and signatures.

    The id is the same for every attempt. Each key yields one signature.
    """
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{_signature(key, signed)}" for key in keys),
    }


def _signature(key: str, signed: bytes) -> str:
    raw = base64.b64decode(key.removeprefix(SIGNATURE_KEY_PREFIX))
    return base64.b64encode(hmac.digest(raw, signed, hashlib.sha256)).decode()
