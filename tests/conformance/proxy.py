"""An agent as the official suites expect one: without a key, and at the root of a host."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

_NOT_FORWARDED = {"host", "content-length", "transfer-encoding", "connection"}
METHODS = ["GET", "POST", "DELETE", "PUT"]


@contextmanager
def serve(
    agent_url: str, key: str, assistant_id: str, port: int, *, card_version: str = "1.0"
) -> Iterator[str]:
    """Serve the agent at this port; `/mcp` is MCP, all else A2A. Yields the address."""
    address = f"http://localhost:{port}"
    agent_path = f"/a2a/{assistant_id}"
    client = httpx.AsyncClient(timeout=120)

    async def forward(request: Request) -> Response:
        path = request.url.path
        is_card = path.startswith("/.well-known/agent")
        if "/mcp" not in path:
            path = f"{agent_path}{'/.well-known/agent-card.json' if is_card else path}"
        # Spaces around a value are no part of it, and the client refuses to send them.
        headers = {n: v.strip() for n, v in request.headers.items() if n not in _NOT_FORWARDED}
        if "/mcp" in path:
            headers["host"] = request.headers["host"]  # the suite sends foreign ones
        if is_card:
            headers.setdefault("a2a-version", card_version)
        outgoing = client.build_request(
            request.method,
            f"{agent_url}{path}",
            params=request.query_params,
            headers={**headers, "x-api-key": key},
            content=await request.body(),
        )
        response = await client.send(outgoing, stream=True)
        kept = {n: v for n, v in response.headers.items() if n not in _NOT_FORWARDED}
        if is_card:
            body = (await response.aread()).decode()
            body = body.replace(f"{agent_url}{agent_path}", address)
            return Response(body, response.status_code, kept)

        async def relay() -> AsyncIterator[bytes]:
            async for chunk in response.aiter_raw():
                yield chunk
            await response.aclose()

        return StreamingResponse(relay(), response.status_code, kept)

    application = Starlette(routes=[Route("/{path:path}", forward, methods=METHODS)])
    server = uvicorn.Server(uvicorn.Config(application, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(10)
