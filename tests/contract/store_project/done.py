"""An own route that webhooks may go to: `POST /done` keeps what comes, `GET /done` shows it."""

import json

kept = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    if scope["method"] == "POST":
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        kept.append({"path": scope["path"], "body": json.loads(body)})
    is_here = scope["path"].endswith("/done")
    answer = json.dumps(kept if is_here else {"detail": "Not Found"}).encode()
    headers = [(b"content-type", b"application/json")]
    await send(
        {"type": "http.response.start", "status": 200 if is_here else 404, "headers": headers}
    )
    await send({"type": "http.response.body", "body": answer})
