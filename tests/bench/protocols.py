"""`make bench-protocols`: what A2A and MCP cost next to the bare run, in about two minutes.

One deployment, one client, every kind of call in turn in each round, so that other work on the
machine meets all of them. The agent is the chat of the contract tests, which answers at once.
Targets: the median of a message or a tool call is at most 1.3 times that of `runs/wait`, and that
of a stream at most 1.3 times that of `runs/stream`. A message of A2A keeps its thread, as a run on
a new thread does, which is shown next to it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx

from tests.contract.deployment import HERE as CONTRACT
from tests.contract.deployment import commit
from tests.gate import run_folder
from tests.installation import Installation

ASSISTANT = "chat"
TEXT = "hello"
ANSWER = f"You wrote: {TEXT}"
MAX_RATIO = 1.3
WARM_UP_ROUNDS = 5
META = "io.modelcontextprotocol/"
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
JSONObject = dict[str, Any]


class Call(NamedTuple):
    """A kind of call, and the bare run that it is compared with."""

    make: Callable[[], httpx.Response]
    base: str
    is_target: bool = True
    answer: str = ANSWER
    """In the response."""


class Calls:
    """The calls of one client of one agent."""

    def __init__(self, agent_url: str, key: str) -> None:
        headers = {"X-Api-Key": key, "Accept": "application/json, text/event-stream"}
        self._client = httpx.Client(base_url=agent_url, headers=headers, timeout=120)
        session = self._call_mcp("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}})
        self._session_id = session.headers["mcp-session-id"]

    def kinds(self) -> dict[str, Call]:
        wait, stream = "runs/wait", "runs/stream"
        return {
            wait: Call(self._wait, wait, is_target=False),
            "threads/{id}/runs/wait, a new thread": Call(self._wait_on_thread, wait, False),
            "A2A SendMessage, JSON-RPC": Call(self._send, wait),
            "A2A message:send, HTTP+JSON": Call(self._send_http, wait),
            "A2A message/send of 0.3": Call(self._send_legacy, wait),
            "MCP tools/call, no session": Call(self._call_tool, wait),
            "MCP tools/call, session": Call(self._call_in_session, wait),
            f"MCP tools/call of {STATELESS}": Call(self._call_stateless, wait),
            # Tokens are events of their own.
            stream: Call(self._stream, stream, False, ' hello"'),
            "A2A SendStreamingMessage": Call(
                self._send_stream, stream, answer="TASK_STATE_COMPLETED"
            ),
        }

    def _post(self, path: str, body: JSONObject, **headers: str) -> httpx.Response:
        return self._client.post(path, json=body, headers=headers).raise_for_status()

    def _wait(self) -> httpx.Response:
        return self._post("/runs/wait", _run())

    def _wait_on_thread(self) -> httpx.Response:
        body = {**_run(), "if_not_exists": "create"}
        return self._post(f"/threads/{uuid.uuid4()}/runs/wait", body)

    def _stream(self) -> httpx.Response:
        return self._post("/runs/stream", {**_run(), "stream_mode": ["messages-tuple"]})

    def _send(self, method: str = "SendMessage") -> httpx.Response:
        body = _request(method, {"message": _message()})
        return self._post(f"/a2a/{ASSISTANT}", body, **{"A2A-Version": "1.0"})

    def _send_stream(self) -> httpx.Response:
        return self._send("SendStreamingMessage")

    def _send_http(self) -> httpx.Response:
        body = {"message": _message()}
        return self._post(f"/a2a/{ASSISTANT}/message:send", body, **{"A2A-Version": "1.0"})

    def _send_legacy(self) -> httpx.Response:
        part = {"kind": "text", "text": TEXT}
        message = {**_message(), "kind": "message", "role": "user", "parts": [part]}
        body = _request("message/send", {"message": message})
        return self._post(f"/a2a/{ASSISTANT}", body)

    def _call_mcp(self, method: str, params: JSONObject, **headers: str) -> httpx.Response:
        return self._post("/mcp", _request(method, params), **headers)

    def _call_tool(self, **headers: str) -> httpx.Response:
        return self._call_mcp("tools/call", _tool_call(), **headers)

    def _call_in_session(self) -> httpx.Response:
        return self._call_tool(**{"Mcp-Session-Id": self._session_id})

    def _call_stateless(self) -> httpx.Response:
        meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
        names = {"Mcp-Method": "tools/call", "Mcp-Name": ASSISTANT}
        headers = {"MCP-Protocol-Version": STATELESS, **names}
        return self._call_mcp("tools/call", {**_tool_call(), "_meta": meta}, **headers)


def _run() -> JSONObject:
    message = {"role": "user", "content": TEXT}
    return {"assistant_id": ASSISTANT, "input": {"messages": [message]}}


def _tool_call() -> JSONObject:
    return {"name": ASSISTANT, "arguments": {"messages": TEXT}}


def _message() -> JSONObject:
    return {"role": "ROLE_USER", "messageId": str(uuid.uuid4()), "parts": [{"text": TEXT}]}


def _request(method: str, params: JSONObject) -> JSONObject:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@contextlib.contextmanager
def running_agent() -> Iterator[tuple[str, str]]:
    """Start a platform with the agent; yields the agent's URL and a key."""
    with run_folder.use() as folder:
        installation = Installation(folder / "data", SAMPLE_AGENT="false")
        installation.start()
        try:
            installation.wait_until_ready()
            commit(CONTRACT / "project", folder / "project")
            agent_url = installation.deploy("bench", folder / "project")
            yield agent_url, installation.bootstrap()["api_key"]
        finally:
            installation.end()


def measure(kinds: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """The seconds of each call; the order changes with each round."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(WARM_UP_ROUNDS + rounds):
        names = list(kinds) if number % 2 else list(reversed(kinds))
        for name in names:
            started_at = time.perf_counter()
            response = kinds[name].make()
            ended_at = time.perf_counter()
            assert kinds[name].answer in response.text, f"{name}: {response.text[:500]}"
            if number >= WARM_UP_ROUNDS:
                seconds[name].append(ended_at - started_at)
    return seconds


def report(kinds: dict[str, Call], seconds: dict[str, list[float]]) -> bool:
    """Print the medians and return whether they meet the targets."""
    print("| call | p50 | p95 | ratio of p50 | to |\n|---|--:|--:|--:|---|")
    is_met = True
    for name, call in kinds.items():
        p50 = statistics.median(seconds[name])
        p95 = statistics.quantiles(seconds[name], n=20)[-1]
        ratio = p50 / statistics.median(seconds[call.base])
        is_met &= not call.is_target or ratio <= MAX_RATIO
        print(f"| {name} | {1000 * p50:.1f} ms | {1000 * p95:.1f} ms | {ratio:.2f} | {call.base} |")
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--agent", help="the URL of a running deployment of tests/contract/project")
    parser.add_argument("--key", help="a key that may run it")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        agent_url, key = options.agent, options.key
        if agent_url is None:
            agent_url, key = stack.enter_context(running_agent())
        kinds = Calls(agent_url, key).kinds()
        seconds = measure(kinds, options.rounds)
    is_met = report(kinds, seconds)
    print("every target is met" if is_met else "a target is missed")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
