"""Raw server-sent events, which the SDK client hides."""

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
    """One event of a stream."""

    name: str
    data: Any
    id: str | None


class RawClient:
    """Sends requests without the SDK client."""

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
        with self._client.stream(method, path, json=body, headers=headers) as response:
            yield response

    def request_frames(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> list[Frame]:
        return parse_frames(self(method, path, body, **headers).text)

    def close(self) -> None:
        self._client.close()


def parse_frames(text: str) -> list[Frame]:
    """Parse the events of a body without its comments."""
    blocks = [block.split("\r\n") for block in text.split("\r\n\r\n") if block]
    return [_parse_frame(lines) for lines in blocks if lines[0].startswith("event: ")]


def iterate_frames(response: httpx.Response) -> Iterator[Frame]:
    """Yield the events of an open response as they arrive."""
    text = ""
    for piece in response.iter_text():
        *blocks, text = (text + piece).split("\r\n\r\n")
        yield from parse_frames("\r\n\r\n".join([*blocks, ""]))


def read_until(response: httpx.Response, name: str, **data: Any) -> list[Frame]:
    """Read events up to an event of that name whose data has these values."""
    received = []
    for frame in iterate_frames(response):
        received.append(frame)
        if frame.name == name and data.items() <= dict(frame.data).items():
            return received
    raise AssertionError(f"the stream ended without {name}")


def _parse_frame(lines: list[str]) -> Frame:
    fields = dict(line.split(": ", 1) for line in lines)
    return Frame(fields["event"], json.loads(fields["data"]), fields.get("id"))
