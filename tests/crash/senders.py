"""Clients that trace at full speed and send again what was not acknowledged, as SDKs do."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import zstandard

from apps.core.ids import uuid7
from apps.trace_store.dotted_order import format_segment

TRACES_A_BATCH = 10
REQUEST_SECONDS, STOP_SECONDS = 90, 60
_BOUNDARY = "5a1f"
_HEADERS = {
    "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
    "Content-Encoding": "zstd",
}
_RETRIED = {408, 425, 429, 500, 502, 503, 504}


class Sender(threading.Thread):
    """Posts beginnings, then their ends in a later request; `acknowledged` has what got a 2xx."""

    def __init__(self, url: str, key: str, project: str) -> None:
        super().__init__(name="sender", daemon=True)
        self.begun: set[str] = set()
        self.ended: set[str] = set()
        self.requests = 0
        self.repeats = 0
        self.problem: BaseException | None = None
        self._project = project
        self._client = httpx.Client(base_url=url, headers={"X-Api-Key": key}, timeout=30)
        self._over = threading.Event()

    def stop(self) -> None:
        """Finish the request that is under way, until it is acknowledged."""
        self._over.set()
        self.join(STOP_SECONDS)
        assert not self.is_alive(), "a request is not acknowledged"
        self._client.close()
        if self.problem is not None:
            raise self.problem

    def run(self) -> None:
        try:
            before: list[dict[str, Any]] = []
            while not self._over.is_set():
                fresh = [run for _ in range(TRACES_A_BATCH) for run in _trace(self._project)]
                self._send([*_beginnings(fresh), *_ends(before)])
                self.begun |= {run["id"] for run in fresh}
                self.ended |= {run["id"] for run in before}
                before = fresh
        except BaseException as error:  # noqa: BLE001  (raised where the test waits for this thread)
            self.problem = error

    def _send(self, parts: list[tuple[str, dict[str, Any]]]) -> None:
        body = zstandard.ZstdCompressor(level=1).compress(_form(parts))
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            assert time.monotonic() < deadline, f"not acknowledged in {REQUEST_SECONDS} s"
            try:
                answer = self._client.post("/runs/multipart", content=body, headers=_HEADERS)
            except httpx.TransportError:
                self.repeats += 1
                self._over.wait(0.1)
                continue
            if answer.status_code not in _RETRIED:
                assert answer.status_code == 202, answer.text
                assert answer.json() == {"message": "accepted"}
                self.requests += 1
                return
            self.repeats += 1
            self._over.wait(float(answer.headers.get("Retry-After", 0.2)))


def _trace(project: str) -> list[dict[str, Any]]:
    """A root with two children."""
    root = _run(project, None)
    return [root, _run(project, root), _run(project, root)]


def _run(project: str, parent: dict[str, Any] | None) -> dict[str, Any]:
    run_id, start = str(uuid7()), datetime.now(UTC)
    own = format_segment(start, UUID(run_id))
    return {
        "id": run_id,
        "trace_id": parent["trace_id"] if parent else run_id,
        "parent_run_id": parent["id"] if parent else None,
        "dotted_order": f"{parent['dotted_order']}.{own}" if parent else own,
        "session_name": project,
        "name": "step",
        "run_type": "chain",
        "start_time": start.isoformat(),
        "end_time": (start + timedelta(seconds=1)).isoformat(),
        "inputs": {"question": f"why {run_id}?"},
        "outputs": {"answer": f"because {run_id}. " * 40},
    }


def _beginnings(runs: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    late = ("end_time", "outputs")
    return [(f"post.{r['id']}", {k: v for k, v in r.items() if k not in late}) for r in runs]


def _ends(runs: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    kept = ("id", "trace_id", "parent_run_id", "dotted_order", "session_name")
    late = ("end_time", "outputs")
    return [(f"patch.{r['id']}", {k: r[k] for k in (*kept, *late)}) for r in runs]


def _form(parts: list[tuple[str, dict[str, Any]]]) -> bytes:
    text = "".join(
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n'
        f"Content-Type: application/json\r\n\r\n{json.dumps(content)}\r\n"
        for name, content in parts
    )
    return f"{text}--{_BOUNDARY}--\r\n".encode()
