"""A recorder of side effects: each call of an agent's node appends one line."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

HOST = "127.0.0.2"
"""An agent reaches it through the proxy: its own loopback names are `127.0.0.1` and `localhost`."""
NETWORK = f"{HOST}/32"
"""The value of `EGRESS_NETWORKS` with which agents may reach the recorder."""


class Recorder:
    """An HTTP server that appends the body of each request."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._arrived = threading.Condition()
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                line = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.send_response(204)
                self.end_headers()
                recorder.append(line)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}/"

    def append(self, line: str) -> None:
        with self._arrived:
            self.lines.append(line)
            self._arrived.notify_all()

    def wait_for(self, line: str, seconds: float = 120) -> None:
        """Wait for the line; `TimeoutError` with all lines when it does not arrive."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: line in self.lines, seconds):
                raise TimeoutError(f"{line!r} did not arrive; the lines are {self.lines}")

    def list_effects(self, run_id: str) -> list[str]:
        """`<attempt> <node>` of each effect of one run, in order."""
        return [line.partition(" ")[2] for line in self.lines if line.startswith(run_id)]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
