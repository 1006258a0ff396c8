"""Custom HTTP routes of an agent: relays messages between a web process and a graph host.

The worker does not interpret the messages. It only enforces flow control, because excess messages
of a host would accumulate in Redis.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any
from uuid import UUID

from apps.agent_runtime.graph_calls.call_session import CallResult, GraphCall, error_body
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.web.tunnels import MAX_MESSAGE_BYTES, WINDOW_BYTES, TunnelManager
from apps.core.json import dumps, loads
from apps.graph_host.wire import Frame

logger = logging.getLogger(__name__)

METHOD = "web"
MAX_SESSIONS_PER_HOST = 500
_FROM_HOST = frozenset({"web", "more", "over"})
_FROM_WEB = frozenset({"web", "more"})
_WINDOW_TOLERANCE_BYTES = 4 * MAX_MESSAGE_BYTES


class CustomRoutes:
    """The open requests and WebSockets of custom routes of one engine's hosts."""

    def __init__(self) -> None:
        self._tunnels = TunnelManager()
        self._session_counts: Counter[UUID] = Counter()

    async def open(self, host: GraphHost, call: GraphCall) -> CallResult:
        """Open a session; the result names the channel of this process."""
        if host.hello.get("http") is None:
            return CallResult(
                False, error_body("ProjectError", "This revision has no custom routes.")
            )
        if self._session_counts[host.revision.revision_id] >= MAX_SESSIONS_PER_HOST:
            return CallResult(False, error_body("Busy", "The agent's custom routes are busy."))
        request = loads(call.params)
        try:
            await self._tunnels.listen()
        except RedisLost:
            return CallResult(
                False, error_body("RedisError", "The platform cannot reach its graph hosts.")
            )
        CustomRouteSession(
            self._tunnels, host, bytes.fromhex(request["id"]), request, self._session_counts
        )
        return CallResult(True, dumps({"channel": self._tunnels.channel}))

    def close(self) -> None:
        self._tunnels.close()


class CustomRouteSession:
    """One request or WebSocket, until either side closes it."""

    def __init__(
        self,
        tunnels: TunnelManager,
        host: GraphHost,
        id_: bytes,
        request: dict[str, Any],
        counter: Counter[UUID],
    ) -> None:
        self._host = host
        self._counter = counter
        self._unacknowledged_bytes = 0
        self._expected_credits = 1
        self._counter[host.revision.revision_id] += 1
        self._tunnel = tunnels.open(
            id_, request["channel"], self._on_web_message, self._on_web_closed
        )
        self._key = host.open_session(self)
        host.link.send(("web", self._key, {"type": "open", **request["scope"]}))

    # From the host

    def on_frame(self, frame: Frame) -> None:
        kind, _, _, *fields = frame
        if kind not in _FROM_HOST:
            return
        value = fields[0] if fields else None
        if kind == "web":
            self._unacknowledged_bytes += _message_size(value)
            if self._unacknowledged_bytes > WINDOW_BYTES + _WINDOW_TOLERANCE_BYTES:
                self._reject("The custom route exceeded its flow-control window.")
                return
        elif kind == "more":
            self._expected_credits -= 1
            if self._expected_credits < 0:
                self._reject("The custom route acknowledged messages that it did not receive.")
                return
        self._tunnel.send(kind, value)
        if kind == "over":
            self._close()

    def _reject(self, reason: str) -> None:
        self._host.link.send(("web", self._key, {"type": "gone"}))
        self.on_host_exit(reason)

    def on_host_exit(self, reason: str) -> None:
        self._tunnel.send("over", reason[:500])
        self._close()

    # From the web process

    def _on_web_message(self, kind: str, value: Any) -> None:
        if kind not in _FROM_WEB:
            return
        if kind == "more":
            self._unacknowledged_bytes -= int(value)
        else:
            self._expected_credits += 1
        self._host.link.send((kind, self._key, value))

    def _on_web_closed(self) -> None:
        self._host.link.send(("web", self._key, {"type": "gone"}))
        self._close()

    def _close(self) -> None:
        self._tunnel.close()
        self._host.close_session(self._key)
        revision_id = self._host.revision.revision_id
        self._counter[revision_id] -= 1
        if self._counter[revision_id] <= 0:
            del self._counter[revision_id]


def _message_size(message: Any) -> int:
    """Return the bytes that flow control counts for a message, as web process and host do."""
    if not isinstance(message, dict):
        return MAX_MESSAGE_BYTES
    parts = (message.get(name) for name in ("body", "bytes", "text"))
    return sum(len(part) for part in parts if isinstance(part, bytes | str)) + 64
