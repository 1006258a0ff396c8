"""An ASGI client of the platform's application that reads streams event by event."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from config.asgi import application

PATIENCE_SECONDS = 60


@dataclass
class Answer:
    """A response, possibly incomplete; the body grows until the response ends."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any, str | None]]:
        """The complete events so far: name, data, id."""
        events = []
        for block in self.body.decode().split("\r\n\r\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.split("\r\n"))
            if "event" in lines:
                events.append((lines["event"], json.loads(lines["data"]), lines.get("id")))
        return events

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.events]


class AsgiRequest:
    """One request, from its start until the client disconnects or the response ends."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        path, _, query = path.partition("?")
        self.answer = Answer()
        self._scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method.upper(),
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {**headers, "content-length": str(len(body))}.items()
            ],
            "client": ("127.0.0.1", 50000),
            "server": ("testserver", 80),
            "scheme": "http",
        }
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self._changed = asyncio.Condition()
        self._ended = False

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {n.decode(): v.decode() for n, v in message["headers"]}
        else:
            self.answer.body += message.get("body", b"")
            self._ended = not message.get("more_body")
        async with self._changed:
            self._changed.notify_all()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(
            application(self._scope, self._incoming.get, self._send)  # type: ignore[arg-type]
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()
        await asyncio.wait_for(self._task, PATIENCE_SECONDS)

    def disconnect(self) -> None:
        """Close the connection as a client does."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def wait_until(self, condition: Any) -> Answer:
        """Wait until the answer fulfils the condition."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: condition(self.answer))
        return self.answer

    async def wait_for_start(self) -> Answer:
        return await self.wait_until(lambda answer: answer.status)

    async def wait_for_end(self) -> Answer:
        return await self.wait_until(lambda _: self._ended)


class Caller:
    """Requests to one agent with one key."""

    def __init__(self, slug: str, key: str | None = None, **headers: str) -> None:
        self.base = f"/agents/{slug}"
        self.headers = {**({"X-Api-Key": key} if key else {}), **headers}

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> AsgiRequest:
        raw = b"" if body is None else json.dumps(body).encode()
        return AsgiRequest(method, self.base + path, {**self.headers, **headers}, raw)

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        async with self.open(method, path, body, **headers) as request:
            return await request.wait_for_end()
