"""Server-sent events, byte for byte, beside the client that hides them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.response_deadline import with_deadline


@dataclass(frozen=True)
class Frame:
    """One event as it was sent."""

    name: str
    data: Any
    id: str | None


class Raw:
    """Requests without the client."""

    def __init__(self, url: str, api_key: str) -> None:
        self._client = with_deadline(
            httpx.Client(base_url=url, headers={"x-api-key": api_key}, timeout=60)
        )

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self._client.request(method, path, json=body, headers=headers)

    @contextmanager
    def open(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> Iterator[httpx.Response]:
        with self._client.stream(method, path, json=body, headers=headers) as answer:
            yield answer

    def frames(self, method: str, path: str, body: Any = None, **headers: str) -> list[Frame]:
        return frames(self(method, path, body, **headers).text)

    def close(self) -> None:
        self._client.close()


def frames(text: str) -> list[Frame]:
    """The events of a body; comments are left out."""
    blocks = [block.split("\r\n") for block in text.split("\r\n\r\n") if block]
    return [_frame(lines) for lines in blocks if lines[0].startswith("event: ")]


def live_frames(answer: httpx.Response) -> Iterator[Frame]:
    """The events of an answer that stays open, as they come."""
    text = ""
    for piece in answer.iter_text():
        *blocks, text = (text + piece).split("\r\n\r\n")
        yield from frames("\r\n\r\n".join([*blocks, ""]))


def until(answer: httpx.Response, name: str, **data: Any) -> list[Frame]:
    """What comes, up to an event of that name whose data has these values."""
    found = []
    for frame in live_frames(answer):
        found.append(frame)
        if frame.name == name and data.items() <= dict(frame.data).items():
            return found
    raise AssertionError(f"the stream ended without {name}")


def _frame(lines: list[str]) -> Frame:
    fields = dict(line.split(": ", 1) for line in lines)
    return Frame(fields["event"], json.loads(fields["data"]), fields.get("id"))
