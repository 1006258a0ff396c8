"""One POST to an address that a tenant chose.

The name is looked up here and the connection goes to the very addresses that were checked, so a
name server cannot answer twice. Redirects are not followed: they would lead past the checks.
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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import h11

from apps.agent_server.webhooks.rules import Target, WebhookBlocked, WebhookPolicy
from apps.core import ssrf
from apps.core.ssrf import IPAddress

TIMEOUT_SECONDS = 15.0
CONNECT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """What goes out, and where. A target of the platform's own needs no rules."""

    target: Target
    rules: WebhookPolicy | None
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """What came of one attempt."""

    status: int | None = None
    """None when nobody answered."""
    error: str = ""
    is_final: bool = False
    """Trying again would change nothing."""
    retry_after: float = 0.0
    """What the receiver asked for, in seconds."""

    @property
    def is_delivered(self) -> bool:
        return not self.error


async def send(letter: WebhookRequest, *, seconds: float = TIMEOUT_SECONDS) -> DeliveryResult:
    """Send it once. Never raises: whatever goes wrong is an outcome."""
    try:
        async with asyncio.timeout(seconds):
            return _to_result(await _post(letter))
    except WebhookBlocked as error:
        return DeliveryResult(error=error.detail, is_final=True)
    except ssrf.ResolutionFailed:
        return DeliveryResult(error=f"The host {letter.target.host} is not known.")
    except TimeoutError:
        return DeliveryResult(error=f"There was no answer within {seconds:g} s.")
    except ssl.SSLCertVerificationError as error:
        return DeliveryResult(error=f"The certificate is not good: {error.verify_message}.")
    except ssl.SSLError as error:
        return DeliveryResult(error=f"TLS failed: {error.reason or 'SSLError'}.")
    except h11.RemoteProtocolError as error:
        return DeliveryResult(error=f"The answer is not HTTP: {error}.")
    except h11.LocalProtocolError as error:
        return DeliveryResult(error=f"The request cannot be made: {error}.", is_final=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        return DeliveryResult(error=f"No connection: {reason}.")


def _to_result(answer: h11.Response) -> DeliveryResult:
    status = answer.status_code
    if 200 <= status < 300:
        return DeliveryResult(status)
    if status == 410:
        return DeliveryResult(
            status, "The receiver says that it is gone for good (410).", is_final=True
        )
    if 300 <= status < 400:
        return DeliveryResult(status, f"The answer was {status}: redirects are not followed.")
    return DeliveryResult(status, f"The answer was {status}.", retry_after=_retry_after(answer))


def _retry_after(answer: h11.Response) -> float:
    for name, value in answer.headers:
        if name == b"retry-after" and value.isdigit():
            return float(min(int(value), 3600))
    return 0.0


async def _post(letter: WebhookRequest) -> h11.Response:
    reader, writer = await _connect(letter)
    try:
        connection = h11.Connection(h11.CLIENT)
        target = letter.target
        fields = {
            "host": target.authority,
            **{name.lower(): value for name, value in letter.headers.items()},
            "content-length": str(len(letter.body)),
            "connection": "close",
        }
        request = h11.Request(method="POST", target=target.path, headers=list(fields.items()))
        for part in (request, h11.Data(data=letter.body), h11.EndOfMessage()):
            writer.write(connection.send(part) or b"")
        # A receiver may answer before it has read everything, and then close.
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                return event
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError
    finally:
        writer.transport.abort()


async def _connect(letter: WebhookRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    target = letter.target
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(None, ssrf.resolve_in_time, target.host)
    allowed = letter.rules.reachable(target.host, found) if letter.rules is not None else found
    failure: Exception = ConnectionRefusedError()
    for address in allowed:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                return await _open(address, target)
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


async def _open(
    address: IPAddress, target: Target
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


def make_secret() -> str:
    return SIGNATURE_KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature_headers(
    keys: Iterable[str], webhook_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The three headers that let a receiver know who sent the body, and that it is not a replay.

    The id is the same at every attempt. With several keys there is a signature for each.
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
