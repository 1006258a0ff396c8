"""Makes Django's test client reach agents through the ASGI application, as a web process does.

The application runs on an event loop in its own thread. Its calls of synchronous code come
back to the thread of the test, where they see the rows of the test's open transaction.
"""

from __future__ import annotations

import asyncio
import faulthandler
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.http import HttpResponse
from django.test.client import ClientHandler

from apps.core import sync_bridge
from apps.core.http import wsgi_bridge
from apps.core.http.asgi import AGENT_PREFIX, with_agent_path

CSRF_TOKEN = "0" * 32
TIMEOUT_SECONDS = 20
"""After this time the client disconnects from a response that does not end."""
MAX_WAIT_SECONDS = 120
"""After this time without a call the application is stuck."""

_executor: ContextVar[TestThreadExecutor | None] = ContextVar("executor", default=None)


class TestThreadExecutor(Executor):
    """Runs what is submitted from other threads in the thread that calls `run`."""

    __test__ = False

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)

        self._calls.put(call)
        return future

    def run(self) -> None:
        """Run the calls until `stop`; `queue.Empty` when none comes in time."""
        while (call := self._calls.get(timeout=MAX_WAIT_SECONDS)) is not None:
            call()

    def stop(self) -> None:
        self._calls.put(None)


def install() -> None:
    """Patch the test client and the bridges to synchronous code, once per test process."""
    from apps.agent_server.web import http_context  # needs the models

    original_call, original_pool = ClientHandler.__call__, sync_bridge.thread_pool
    original_run_on_loop = sync_bridge.run_on_loop

    def call(handler: ClientHandler, environ: dict[str, Any]) -> Any:
        scope = with_agent_path(_scope(environ, enforces_csrf=handler.enforce_csrf_checks))
        if not scope["path"].startswith(AGENT_PREFIX):
            return original_call(handler, environ)
        return _serve(scope, environ)

    def thread_pool() -> Any:
        return _executor.get() or original_pool()

    async def run_on_loop(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if _executor.get() is not None:  # prepared statements have their own connections
            return await sync_bridge.in_thread(function, *args, **kwargs)
        return await original_run_on_loop(function, *args, **kwargs)

    ClientHandler.__call__ = call  # type: ignore[method-assign]
    sync_bridge.thread_pool = wsgi_bridge.thread_pool = thread_pool  # type: ignore[assignment]
    sync_bridge.run_on_loop = http_context.run_on_loop = run_on_loop  # type: ignore[attr-defined]


def _serve(scope: dict[str, Any], environ: dict[str, Any]) -> HttpResponse:
    from config.asgi import application

    executor = TestThreadExecutor()
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    messages: list[dict[str, Any]] = []

    async def serve() -> None:
        _executor.set(executor)
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await asyncio.sleep(TIMEOUT_SECONDS)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        await application(scope, receive, send)

    errors: list[BaseException] = []

    def run_loop() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
        finally:
            executor.stop()

    thread = threading.Thread(target=run_loop, name="agent-client", daemon=True)
    # As in Django's own test client: the test's transaction keeps its connection.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    thread.start()
    try:
        executor.run()
        thread.join(MAX_WAIT_SECONDS)
    except queue.Empty:
        faulthandler.dump_traceback(all_threads=True)
        raise
    finally:
        for signal in (request_started, request_finished):
            signal.connect(close_old_connections)
    assert not thread.is_alive(), "the event loop of the agent client did not end"
    if errors:
        raise errors[0]
    start = messages[0]
    response = HttpResponse(
        b"".join(message.get("body", b"") for message in messages[1:]), status=start["status"]
    )
    del response.headers["Content-Type"]
    for name, value in start["headers"]:
        response.headers[name.decode().title()] = value.decode("latin-1")
    response.wsgi_request = WSGIRequest(environ)  # type: ignore[attr-defined]
    return response


def _scope(environ: dict[str, Any], *, enforces_csrf: bool) -> dict[str, Any]:
    headers = {
        key.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for key, value in environ.items()
        if key.startswith("HTTP_") or (key in {"CONTENT_TYPE", "CONTENT_LENGTH"} and value)
    }
    headers.setdefault("host", environ["SERVER_NAME"])
    if not enforces_csrf and settings.SESSION_COOKIE_NAME in headers.get("cookie", ""):
        headers["cookie"] += f"; {settings.CSRF_COOKIE_NAME}={CSRF_TOKEN}"
        headers["x-csrftoken"] = CSRF_TOKEN
    path = environ["PATH_INFO"].encode("latin-1").decode()
    return {
        "type": "http",
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "path": path,
        "raw_path": path.encode(),
        "query_string": environ["QUERY_STRING"].encode("latin-1"),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": (environ["REMOTE_ADDR"], 50000),
        "server": (environ["SERVER_NAME"], int(environ["SERVER_PORT"])),
        "scheme": environ["wsgi.url_scheme"],
    }
