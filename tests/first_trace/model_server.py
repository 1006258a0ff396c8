"""A local server that answers like OpenAI's Chat Completions, whole and streamed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "A trace is the record of one request."
USAGE = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        base = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        if body.get("stream"):
            self._send("text/event-stream", "".join(_chunks(base)))
            return
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = base | {"object": "chat.completion", "choices": [choice], "usage": USAGE}
        self._send("application/json", json.dumps(completion))

    def _send(self, content_type: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _chunks(base: dict[str, Any]) -> Iterator[str]:
    for word in ANSWER.split():
        yield _event(base, {"delta": {"role": "assistant", "content": f"{word} "}})
    yield _event(base, {"delta": {}, "finish_reason": "stop"})
    yield "data: [DONE]\n\n"


def _event(base: dict[str, Any], choice: dict[str, Any]) -> str:
    choice = {"index": 0, "finish_reason": None} | choice
    chunk = base | {"object": "chat.completion.chunk", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"


@contextmanager
def model_server() -> Iterator[str]:
    """Yield the base address for `OPENAI_BASE_URL`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
