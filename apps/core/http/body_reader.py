"""Reading of request bodies: authentication first, counted bytes, a minimum pace."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from apps.core import errors
from apps.core.http.body_memory import MemoryOwner, Reservation, address_share

AsgiScope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Authenticate = Callable[[], Awaitable[MemoryOwner]]

UNAUTHENTICATED_BODY_BYTES = 65_536
"""Bodies up to this size are read before the caller is authenticated."""
BODY_GRACE_SECONDS = 30.0
MIN_BYTES_PER_SECOND = 65_536


class BodyTooSlow(errors.AppError):
    status, code, detail = 408, "body_too_slow", "The request body arrived too slowly."


async def read_body(
    scope: AsgiScope,
    receive: Receive,
    reservation: Reservation | None = None,
    authenticate: Authenticate | None = None,
) -> io.BytesIO:
    """Read the request body.

    `reservation` accounts for the received bytes. `authenticate` is awaited before the first byte
    of a body that declares more than `UNAUTHENTICATED_BODY_BYTES`, or before a body without a
    length exceeds them; its error refuses the request. Raises `TooLarge` past the limit,
    `BodyTooSlow` below the minimum pace, `BudgetExceeded` beyond the process's budget or the
    caller's share, and `ConnectionError` on a disconnect.
    """
    names = {name for name, _ in scope["headers"]}
    if b"content-length" not in names and b"transfer-encoding" not in names:
        return io.BytesIO()
    limit = settings.MAX_BODY_BYTES
    declared = next((v for n, v in scope["headers"] if n == b"content-length"), b"0")
    if int(declared) > limit:
        raise errors.TooLarge(f"The request body exceeds {limit} bytes.")
    if reservation is not None:
        client = scope.get("client")
        if authenticate is not None and int(declared) > UNAUTHENTICATED_BODY_BYTES:
            reservation.assign(await authenticate())
            authenticate = None
        elif authenticate is not None:
            reservation.assign(address_share(client[0] if client else None))
    body = io.BytesIO()
    started = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(started + BODY_GRACE_SECONDS) as timeout:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionError
                chunk = message.get("body", b"")
                size = body.tell() + len(chunk)
                if size > limit:
                    raise errors.TooLarge(f"The request body exceeds {limit} bytes.")
                if reservation is not None:
                    if authenticate is not None and size > UNAUTHENTICATED_BODY_BYTES:
                        reservation.assign(await authenticate())
                        authenticate = None
                    reservation.add(len(chunk))
                body.write(chunk)
                if not message.get("more_body"):
                    body.seek(0)
                    return body
                timeout.reschedule(started + BODY_GRACE_SECONDS + size / MIN_BYTES_PER_SECOND)
    except TimeoutError:
        raise BodyTooSlow from None
