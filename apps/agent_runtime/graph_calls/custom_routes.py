"""The worker's part in an agent's own HTTP routes: it passes words between a tunnel and a host.

It does not look into them. It only sees to it that a host does not send more than was agreed, since
what is sent too much would pile up in Redis.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any
from uuid import UUID

from apps.agent_runtime.graph_calls.call_session import Question, Reply, failure
from apps.agent_runtime.hosts.graph_host import GraphHost
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.web.tunnels import MAX_MESSAGE_BYTES, WINDOW_BYTES, TunnelManager
from apps.core.json import dumps, loads
from apps.graph_host.wire import Frame

logger = logging.getLogger(__name__)

METHOD = "web"
MOST_AT_ONCE = 500
"""Exchanges of one host."""
_FROM_HOST = frozenset({"web", "more", "over"})
_FROM_WEB = frozenset({"web", "more"})
_SLACK = 4 * MAX_MESSAGE_BYTES


class OwnRoutes:
    """The exchanges that the hosts of one engine have with clients of their own routes."""

    def __init__(self) -> None:
        self._board = TunnelManager()
        self._of_host: Counter[UUID] = Counter()

    async def open(self, host: GraphHost, question: Question) -> Reply:
        """Begin an exchange; the answer says where the other side finds this one."""
        if host.hello.get("http") is None:
            return Reply(False, failure("ProjectError", "This revision has no routes of its own."))
        if self._of_host[host.revision.revision_id] >= MOST_AT_ONCE:
            return Reply(False, failure("Busy", "The agent's own routes are busy."))
        asked = loads(question.params)
        try:
            await self._board.listen()
        except RedisLost:
            return Reply(False, failure("RedisError", "The platform cannot reach its graphs now."))
        OwnExchange(self._board, host, bytes.fromhex(asked["id"]), asked, self._of_host)
        return Reply(True, dumps({"channel": self._board.channel}))

    def close(self) -> None:
        self._board.close()


class OwnExchange:
    """One exchange, from its request until one of its ends is gone."""

    def __init__(
        self,
        board: TunnelManager,
        host: GraphHost,
        id_: bytes,
        asked: dict[str, Any],
        counter: Counter[UUID],
    ) -> None:
        self._host = host
        self._counter = counter
        self._under_way = 0
        self._counter[host.revision.revision_id] += 1
        self._tunnel = board.open(id_, asked["channel"], self._heard, self._left)
        self._key = host.open(self)
        host.link.send(("web", self._key, {"type": "open", **asked["scope"]}))

    # From the host

    def take(self, frame: Frame) -> None:
        kind, _, _, *rest = frame
        if kind not in _FROM_HOST:
            return
        value = rest[0] if rest else None
        if kind == "web":
            self._under_way += _size(value)
            if self._under_way > WINDOW_BYTES + _SLACK:
                self._host.link.send(("web", self._key, {"type": "gone"}))
                self.lost("The agent's own routes sent more than they may.")
                return
        self._tunnel.send(kind, value)
        if kind == "over":
            self._end()

    def lost(self, reason: str) -> None:
        """The host is gone; nothing more will come."""
        self._tunnel.send("over", reason[:500])
        self._end()

    # From the web process

    def _heard(self, kind: str, value: Any) -> None:
        if kind not in _FROM_WEB:
            return
        if kind == "more":
            self._under_way -= int(value)
        self._host.link.send((kind, self._key, value))

    def _left(self) -> None:
        self._host.link.send(("web", self._key, {"type": "gone"}))
        self._end()

    def _end(self) -> None:
        self._tunnel.close()
        self._host.forget(self._key)
        revision_id = self._host.revision.revision_id
        self._counter[revision_id] -= 1
        if self._counter[revision_id] <= 0:
            del self._counter[revision_id]


def _size(message: Any) -> int:
    """Bytes of a message, as both ends count them."""
    if not isinstance(message, dict):
        return MAX_MESSAGE_BYTES
    parts = (message.get(name) for name in ("body", "bytes", "text"))
    return sum(len(part) for part in parts if isinstance(part, bytes | str)) + 64
