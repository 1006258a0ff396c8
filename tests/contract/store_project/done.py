"""A custom route for webhooks: `POST /done` stores the request, `GET /done` lists the requests."""

import json

requests = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    if scope["method"] == "POST":
        has_more = True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        requests.append({"path": scope["path"], "body": json.loads(body)})
    is_done_path = scope["path"].endswith("/done")
    response = json.dumps(requests if is_done_path else {"detail": "Not Found"}).encode()
    headers = [(b"content-type", b"application/json")]
    await send(
        {"type": "http.response.start", "status": 200 if is_done_path else 404, "headers": headers}
    )
    await send({"type": "http.response.body", "body": response})
