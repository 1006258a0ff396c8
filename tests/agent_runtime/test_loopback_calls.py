from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from apps.agent_runtime.hosts.loopback_calls import LoopbackCalls
from apps.agent_server.web.tunnels import WINDOW_BYTES


class RecordingLink:
    """A link that records the frames sent to the host."""

    def __init__(self) -> None:
        self.frames: list[Any] = []

    def send(self, frame: Any) -> None:
        self.frames.append(frame)


async def test_host_is_notified_once_of_a_too_large_request_body(settings):
    settings.MAX_BODY_BYTES = 10
    link = RecordingLink()
    calls = LoopbackCalls(link, uuid4(), load_asgi_app=lambda: None)
    calls.on_frame(("loop", 0, 7, "open", {}))
    part = {"body": bytes(WINDOW_BYTES + 11), "more_body": True}

    calls.on_frame(("loop", 0, 7, "web", part))
    calls.on_frame(("loop", 0, 7, "web", part))
    await asyncio.sleep(0)

    assert link.frames == [("loop", 7, "over", "The request body is too large.")]
