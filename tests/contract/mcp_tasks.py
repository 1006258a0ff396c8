"""A client of MCP that knows tasks, which no public one does yet: its requests are by hand."""

from __future__ import annotations

import time
from typing import Any, Self

import httpx

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"


class TaskClient:
    """Calls tools of an agent without a session, as tasks where the server makes them."""

    def __init__(self, agent_url: str, key: str) -> None:
        headers = {
            "X-Api-Key": key,
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
        }
        self._http = httpx.Client(base_url=agent_url, headers=headers, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def start(self, tool: str, **arguments: Any) -> str:
        """Call a tool that takes long; return the id of its task."""
        created = self._send("tools/call", tool, name=tool, arguments=arguments)
        assert (created["resultType"], created["status"]) == ("task", "working")
        return str(created["taskId"])

    def get(self, task_id: str) -> Any:
        return self._send("tasks/get", task_id, taskId=task_id)

    def cancel(self, task_id: str) -> None:
        self._send("tasks/cancel", task_id, taskId=task_id)

    def wait_for_end(self, task_id: str, seconds: float) -> Any:
        """Poll the task until it is not working; requests that fail are repeated."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                task = self.get(task_id)
            except httpx.HTTPError:
                task = {"status": "working"}
            if task["status"] != "working":
                return task
            assert time.monotonic() < deadline, f"the task is working after {seconds} s"
            time.sleep(1)

    def _send(self, method: str, name: str, /, **params: Any) -> Any:
        meta = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientCapabilities": {"extensions": {f"{META}tasks": {}}},
        }
        params = {**params, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Mcp-Method": method, "Mcp-Name": name}
        response = self._http.post("/mcp", json=body, headers=headers)
        return response.raise_for_status().json()["result"]
