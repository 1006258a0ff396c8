from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.agent_runtime.hosts.launch import launch_unconfined
from apps.graph_host.wire import Decoder, encode


class Host:
    """A real graph host, spoken to one frame at a time."""

    def __init__(self, folder: Path) -> None:
        launched = launch_unconfined(folder)
        self.process, self.socket = launched.process, launched.socket
        self.socket.settimeout(60)
        self._decoder = Decoder()
        self._frames: list[list[Any]] = []
        self.hello: dict[str, Any] = self.next("hello")[3]

    def send(self, *frame: Any) -> None:
        self.socket.sendall(encode(frame))

    def next(self, *kinds: str) -> list[Any]:
        """The next frame of these kinds; others before it are dropped."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame[0] in kinds:
                    return frame
            data = self.socket.recv(65536)
            assert data, self.process.stdout.read().decode()
            self._frames += self._decoder.feed(data)

    def ask(self, graph_id: str, method: str, **params: Any) -> Any:
        self.send("call", 1, graph_id, method, json.dumps(params).encode())
        _, _, _, done, body = self.next("result")
        return json.loads(body) if done else ("failed", json.loads(body))

    def run(self, graph_id: str, asked: dict[str, Any], **start: Any) -> tuple[list[Any], Any]:
        """The events and the end of a run on a fresh thread, or on what `start` says."""
        given = {
            "run_id": str(uuid4()), "thread_id": str(uuid4()), "graph_id": graph_id,
            "assistant_id": str(uuid4()), "attempt": 1, "metadata": {}, "head": None,
            "kwargs": json.dumps(asked).encode(), **start,
        }  # fmt: skip
        self.send("start", 1, given)
        events = []
        while (frame := self.next("events", "done"))[0] == "events":
            events += [(name, json.loads(data)) for name, data in frame[3]]
        return events, frame[3]

    def close(self) -> None:
        self.socket.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def host(tmp_path) -> Iterator[Callable[..., Host]]:
    """Makes a host for a project of these files; `langgraph.json` from the graphs named."""
    hosts: list[Host] = []

    def make(files: dict[str, str], **config: Any) -> Host:
        given = {"dependencies": ["."], **config}
        for name, text in {"langgraph.json": json.dumps(given), **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        hosts.append(Host(tmp_path))
        return hosts[-1]

    yield make
    for one in hosts:
        one.close()
