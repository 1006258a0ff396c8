from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.core.json import loads
from tests.experiment_jobs.conftest import agent, clear_caches
from tests.tracing.conftest import objects, other_workspace

__all__ = ["agent", "clear_caches", "objects", "other_workspace"]


class Mcp:
    """An MCP client with one key."""

    def __init__(self, key: str | None) -> None:
        self.client = Client(headers={"X-Api-Key": key} if key else {})

    def post(self, body: Any, **headers: str) -> Any:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/mcp", body, content_type="application/json", headers=names)

    def request(self, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.post(body).json()

    def list_tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.request("tools/list")["result"]["tools"]}

    def result(self, name: str, **arguments: Any) -> dict[str, Any]:
        response = self.request("tools/call", name=name, arguments=arguments)
        result: dict[str, Any] = response["result"]
        return result

    def call(self, name: str, **arguments: Any) -> Any:
        """The output of a call that succeeds."""
        result = self.result(name, **arguments)
        assert not result["isError"], result["content"]
        assert loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def failure(self, name: str, **arguments: Any) -> str:
        """The text of a call that fails."""
        result = self.result(name, **arguments)
        assert result["isError"], result["content"]
        text: str = result["content"][0]["text"]
        return text


@pytest.fixture
def connect() -> Callable[[str | None], Mcp]:
    return Mcp
