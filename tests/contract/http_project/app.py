"""Custom routes of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

SEEN = {"left": 0, "started": 0}


@contextlib.asynccontextmanager
async def lifespan(app: Starlette):
    SEEN["started"] += 1
    yield {"greeting": os.environ["GREETING"]}


async def echo(request: Request) -> JSONResponse:
    body = await request.body()
    return JSONResponse(
        {
            "method": request.method,
            "path": request.url.path,
            "below": request.scope["path"].removeprefix(request.scope["root_path"]),
            "query": dict(request.query_params),
            "user": request.user.identity,
            "authenticated_for": request.user["authenticated_for"],
            "greeting": request.state.greeting,
            "started": SEEN["started"],
            "size": len(body),
            "headers": sorted(request.headers.keys()),
            "item": request.path_params.get("item"),
        },
        headers={
            "X-Own": "yes",
            "Mcp-Session-Id": "session",
            "Set-Cookie": "seen=1; Path=/; Domain =example.org; HttpOnly",
            "Alt-Svc": 'h2="attacker.example:443"; ma=86400',
            "NEL": '{"report_to": "attacker", "max_age": 86400}',
            "Report-To": '{"group": "attacker", "max_age": 86400, "endpoints": []}',
            "Reporting-Endpoints": 'attacker="https://attacker.example"',
            "Accept-CH": "Sec-CH-UA-Model",
            "Clear-Site-Data": '"*"',
            "Service-Worker-Allowed": "/",
            "Strict-Transport-Security": "max-age=86400",
            "X-Accel-Redirect": "/internal",
        },
    )


async def count(request: Request) -> StreamingResponse:
    async def numbers():
        try:
            for number in range(int(request.query_params.get("to", 3))):
                yield f"data: {number}\r\n\r\n"
                await asyncio.sleep(float(request.query_params.get("pause", 0)))
        except (asyncio.CancelledError, GeneratorExit):
            SEEN["left"] += 1
            raise

    return StreamingResponse(numbers(), media_type="text/event-stream")


async def large(request: Request) -> StreamingResponse:
    async def parts():
        for _ in range(int(request.query_params["megabytes"])):
            yield b"x" * 1024 * 1024

    return StreamingResponse(parts())


async def upload(request: Request) -> JSONResponse:
    size = 0
    with contextlib.suppress(ClientDisconnect):
        async for chunk in request.stream():
            size += len(chunk)
    return JSONResponse({"size": size})


async def seen(request: Request) -> JSONResponse:
    return JSONResponse(SEEN)


async def crash(request: Request) -> JSONResponse:
    raise RuntimeError("a secret of the route")


async def end(request: Request) -> JSONResponse:
    os._exit(3)


async def shadow(request: Request) -> JSONResponse:
    return JSONResponse([{"shadowed": True}])


async def socket(websocket: WebSocket) -> None:
    await websocket.accept(subprotocol=(websocket.scope["subprotocols"] or [None])[0])
    await websocket.send_json({"user": websocket.user.identity})
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            text = await websocket.receive_text()
            if text == "bye":
                await websocket.close(code=4001)
                return
            await websocket.send_text(text[::-1])


class Stamp:
    """Middleware of the application."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        async def send_stamped(message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-stamp", b"1")]
            await send(message)

        await self.app(scope, receive, send_stamped)


app = Starlette(
    routes=[
        Route("/own/echo", echo, methods=["GET", "POST"]),
        Route("/own/items/{item:int}", echo),
        Route("/own/count", count),
        Route("/own/large", large),
        Route("/own/upload", upload, methods=["POST"]),
        Route("/own/seen", seen),
        Route("/own/crash", crash),
        Route("/own/end", end),
        Route("/assistants/search", shadow, methods=["POST"]),
        WebSocketRoute("/own/socket", socket),
        Mount("/files", app=PlainTextResponse("a file")),
    ],
    middleware=[Middleware(Stamp)],
    lifespan=lifespan,
)
