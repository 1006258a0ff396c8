"""A server that receives webhooks and records them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.installation import PATIENCE_SECONDS


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """As the Standard Webhooks specification wants it checked."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode()
        key = base64.b64decode(secret.removeprefix("whsec_"))
        digest = hmac.digest(key, signed + self.body, hashlib.sha256)
        expected = f"v1,{base64.b64encode(digest).decode()}"
        return expected in self.headers["webhook-signature"].split()


class Receiver:
    """A server that answers with these statuses in turn, and then always with the last one."""

    def __init__(
        self,
        *statuses: int,
        headers: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._statuses = list(statuses or (200,))
        self._headers = headers or {}
        self._got: queue.Queue[Received] = queue.Queue()
        self.hold: Callable[[], None] = lambda: None
        """Called before each answer."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver._got.put(Received(self.path, headers, body))
                receiver.hold()
                statuses = receiver._statuses
                status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
                self.send_response(status)
                for name, value in receiver._headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    def next(self, seconds: float = PATIENCE_SECONDS) -> Received:
        """Wait for the next webhook and return it."""
        return self._got.get(timeout=seconds)

    @property
    def count_unread(self) -> int:
        return self._got.qsize()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)
