from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.graph_host.wire import Decoder, encode
from tests.agent_runtime.host_launch import launch_unconfined


class Host:
    """A client of a real graph host process that exchanges single frames with it."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        launched = launch_unconfined(folder, env=env)
        self.process, self.socket = launched.process, launched.socket
        self.socket.settimeout(60)
        self._decoder = Decoder()
        self._frames: list[list[Any]] = []
        self.hello: dict[str, Any] = self.next("hello")[3]

    def send(self, *frame: Any) -> None:
        self.socket.sendall(encode(frame))

    def next(self, *kinds: str) -> list[Any]:
        """Return the next frame of these kinds and drop the frames before it."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame[0] in kinds:
                    return frame
            data = self.socket.recv(65536)
            assert data, self.process.stdout.read().decode()
            self._frames += self._decoder.feed(data)

    def call_graph(self, graph_id: str, method: str, **params: Any) -> Any:
        self.send("call", 1, graph_id, method, json.dumps(params).encode())
        _, _, _, succeeded, body = self.next("result")
        return json.loads(body) if succeeded else ("failed", json.loads(body))

    def start_run(self, key: int, graph_id: str, kwargs: dict[str, Any], **start: Any) -> None:
        """Start a run on a new thread. `start` overrides fields."""
        run_id = start.get("run_id") or str(uuid4())
        fields = {
            "run_id": run_id, "trace_id": run_id, "thread_id": str(uuid4()), "graph_id": graph_id,
            "assistant_id": str(uuid4()), "attempt": 1, "metadata": {}, "head": None,
            "kwargs": json.dumps(kwargs).encode(), **start,
        }  # fmt: skip
        self.send("start", key, fields)

    def run(self, graph_id: str, kwargs: dict[str, Any], **start: Any) -> tuple[list[Any], Any]:
        """Run a graph on a new thread; return its events and its end. `start` overrides fields."""
        self.start_run(1, graph_id, kwargs, **start)
        events = []
        while (frame := self.next("events", "done"))[0] == "events":
            events += [(name, json.loads(data)) for name, data in frame[3]]
        return events, frame[3]

    def close(self) -> None:
        self.socket.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def host(tmp_path) -> Iterator[Callable[..., Host]]:
    """Return a function that starts a host for a project with these files and settings."""
    hosts: list[Host] = []

    def make(files: dict[str, str], **config: Any) -> Host:
        langgraph_json = {"dependencies": ["."], **config}
        for name, text in {"langgraph.json": json.dumps(langgraph_json), **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        hosts.append(Host(tmp_path))
        return hosts[-1]

    yield make
    for host_process in hosts:
        host_process.close()
