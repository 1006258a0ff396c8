"""The outside world that an agent's nodes act on: each call is one line, kept in order."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Recorder:
    """An HTTP server that appends each body it is sent."""

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
                """Quiet: the lines are the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def append(self, line: str) -> None:
        with self._arrived:
            self.lines.append(line)
            self._arrived.notify_all()

    def wait_for(self, line: str, seconds: float = 60) -> None:
        """Return once the line is there; `TimeoutError` with all lines when it never comes."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: line in self.lines, seconds):
                raise TimeoutError(f"{line!r} never came; there are {self.lines}")

    def of(self, run_id: str) -> list[str]:
        """`<attempt> <node>` of each effect of one run, in order."""
        return [line.partition(" ")[2] for line in self.lines if line.startswith(run_id)]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
