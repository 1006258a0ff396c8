"""A deadline for whole responses.

The server sends a heartbeat every few seconds while a run is under way. Each one restarts the read
timeout of httpx, so a response to a run that never ends would never end either.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar, cast

import httpx
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient

RESPONSE_SECONDS = 120.0
C = TypeVar("C", httpx.Client, SyncLangGraphClient, LangGraphClient)


def with_deadline(client: C, seconds: float = RESPONSE_SECONDS) -> C:
    """Make the client fail on a response whose body takes longer; return the client.

    The failure is an `AssertionError`: the SDK reconnects after errors of httpx.
    """

    def limit(response: httpx.Response) -> None:
        response.stream = _LimitedStream(response, seconds)

    async def alimit(response: httpx.Response) -> None:
        response.stream = _LimitedAsyncStream(response, seconds)

    if isinstance(client, httpx.Client):
        client.event_hooks = {"response": [limit]}
    elif isinstance(client, SyncLangGraphClient):
        client.http.client.event_hooks = {"response": [limit]}
    else:
        client.http.client.event_hooks = {"response": [alimit]}
    return client


class _Deadline:
    def __init__(self, response: httpx.Response, seconds: float) -> None:
        self._request = f"{response.request.method} {response.request.url}"
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise AssertionError(f"{self._request}: no end of the response in {self._seconds} s")


class _LimitedStream(httpx.SyncByteStream):
    def __init__(self, response: httpx.Response, seconds: float) -> None:
        self._stream = cast("httpx.SyncByteStream", response.stream)
        self._deadline = _Deadline(response, seconds)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._deadline.check()
            yield chunk

    def close(self) -> None:
        self._stream.close()


class _LimitedAsyncStream(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response, seconds: float) -> None:
        self._stream = cast("httpx.AsyncByteStream", response.stream)
        self._deadline = _Deadline(response, seconds)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._deadline.check()
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
