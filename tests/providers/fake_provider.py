"""A server with the chat APIs of OpenAI, Anthropic and Google, whose replies tests choose."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.receiver import Received


@dataclass
class Reply:
    """What the model says, or the error with which the provider responds."""

    text: str = "Hello there"
    thinking: str = ""
    tool_calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: str = "It failed."
    seconds_per_word: float = 0.0
    is_cut: bool = False
    """Whether the connection closes in the middle of the reply."""
    raw: bytes | None = None
    """A body that is sent as it is."""
    raw_error: str | None = None
    """The body of an error in place of `error`."""


class FakeProvider:
    """Records requests; `answer` returns the reply to each."""

    def __init__(self, answer: Callable[[Received], Reply] | Reply | None = None) -> None:
        self.answer = answer or Reply()
        self.requests: list[Received] = []
        self.aborted = threading.Event()
        """Set when a client closed the connection during a reply."""
        self.open_count = self.max_open_count = 0
        lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.path, headers, body)
                with lock:
                    provider.requests.append(received)
                    provider.open_count += 1
                    provider.max_open_count = max(provider.max_open_count, provider.open_count)
                try:
                    answer = provider.answer
                    self._send(answer if isinstance(answer, Reply) else answer(received))
                except (BrokenPipeError, ConnectionResetError):
                    provider.aborted.set()
                finally:
                    with lock:
                        provider.open_count -= 1
                    self.close_connection = True

            def _send(self, reply: Reply) -> None:
                if reply.status != 200:
                    content = json.dumps({"error": {"message": reply.error}}).encode()
                    if reply.raw_error is not None:
                        content = reply.raw_error.encode()
                    self._send_head(reply, "application/json", len(content))
                    self.wfile.write(content)
                    return
                if reply.raw is not None:
                    self._send_head(reply, "text/event-stream", len(reply.raw))
                    self.wfile.write(reply.raw)
                    return
                self._send_head(reply, "text/event-stream")
                events = list(_EVENTS[_kind(self.path)](reply))
                for event in events[: len(events) // 2] if reply.is_cut else events:
                    data = f"data: {json.dumps(event) if event != '[DONE]' else event}\n\n".encode()
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                    self.wfile.flush()
                    time.sleep(reply.seconds_per_word)
                if not reply.is_cut:
                    self.wfile.write(b"0\r\n\r\n")

            def _send_head(
                self, reply: Reply, content_type: str, length: int | None = None
            ) -> None:
                self.send_response(reply.status)
                self.send_header("content-type", content_type)
                if length is None:
                    self.send_header("transfer-encoding", "chunked")
                else:
                    self.send_header("content-length", str(length))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[Any]:
        return [request.json() for request in self.requests]

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


def _kind(path: str) -> str:
    if path.endswith("/v1/messages"):
        return "anthropic"
    return "google" if ":streamGenerateContent" in path else "openai"


def _words(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:] if text else []


def _openai_events(reply: Reply) -> Iterator[Any]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None}

    for word in _words(reply.thinking):
        yield chunk({"reasoning_content": word})
    for word in _words(reply.text):
        yield chunk({"content": word})
    for index, (name, arguments) in enumerate(reply.tool_calls):
        function = {"name": name, "arguments": ""}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
        text = json.dumps(arguments)
        for piece in (text[:3], text[3:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if reply.tool_calls else "stop")
    yield {
        "choices": [],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 40},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    }  # fmt: skip
    yield "[DONE]"


def _anthropic_events(reply: Reply) -> Iterator[Any]:
    usage = {"input_tokens": 50, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10}
    yield {"type": "message_start", "message": {"usage": usage | {"output_tokens": 1}}}
    yield {"type": "ping"}
    index = 0
    if reply.thinking:
        yield {"type": "content_block_start", "index": index, "content_block": {"type": "thinking"}}
        for word in _words(reply.thinking):
            delta = {"type": "thinking_delta", "thinking": word}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        delta = {"type": "signature_delta", "signature": "signed"}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        index += 1
    if reply.text:
        block = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for word in _words(reply.text):
            delta = {"type": "text_delta", "text": word}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        index += 1
    for name, arguments in reply.tool_calls:
        block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        text = json.dumps(arguments)
        for piece in (text[:3], text[3:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        index += 1
    reason = "tool_use" if reply.tool_calls else "end_turn"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 20},
    }
    yield {"type": "message_stop"}


def _google_events(reply: Reply) -> Iterator[Any]:
    def chunk(part: dict[str, Any]) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}

    for word in _words(reply.thinking):
        yield chunk({"text": word, "thought": True})
    for word in _words(reply.text):
        yield chunk({"text": word})
    for name, arguments in reply.tool_calls:
        yield chunk({"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "sig"})
    yield {
        "candidates": [{"content": {"parts": []}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 100, "candidatesTokenCount": 15, "thoughtsTokenCount": 5,
            "cachedContentTokenCount": 40, "totalTokenCount": 120,
        },
    }  # fmt: skip


_EVENTS = {
    "openai": _openai_events,
    "anthropic": _anthropic_events,
    "google": _google_events,
}
