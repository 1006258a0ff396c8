"""The agents of a run and how each is doing, folded from their lifecycle."""

from __future__ import annotations

from typing import Any

from apps.agent_server.protocol.events import ProtocolEvent
from apps.core.json import loads


class AgentTree:
    """Of the run that spoke last."""

    def __init__(self) -> None:
        self._root: dict[str, Any] | None = None
        self._run: object = None

    def take(self, event: ProtocolEvent) -> None:
        if event.method != "lifecycle":
            return
        if event.run.run_id != self._run:
            self._run, self._root = event.run.run_id, _node([], event.run.graph_id)
        node = self._root
        for end in range(1, len(event.namespace) + 1):
            node = _child(node or {}, event.namespace[:end])
        if node is not None:
            data = loads(event.data)
            node["status"] = data["event"]
            node["graph_name"] = data.get("graph_name") or node["graph_name"]

    def as_json(self) -> dict[str, Any] | None:
        """None when no run was heard of."""
        return self._root


def _child(parent: dict[str, Any], namespace: list[str]) -> dict[str, Any]:
    children: list[dict[str, Any]] = parent.setdefault("children", [])
    for child in children:
        if child["namespace"] == namespace:
            return child
    children.append(_node(namespace, namespace[-1].partition(":")[0]))
    return children[-1]


def _node(namespace: list[str], name: str) -> dict[str, Any]:
    return {"namespace": namespace, "status": "started", "graph_name": name}
